"""The settings of the measuring process."""

from math import inf
from pathlib import Path
from typing import Annotated

from deviceplugin.common_settings import NodeName, check_node_name, check_port
from protos.contract import names
from protos.contract.flag import Flag, option
from protos.contract.shared_settings import SettingsError, SharedSettings
from protos.logs import Format, Level

SHORTEST_S, LONGEST_S = 1.0, 60.0
"""The driver remembers the last minute or so of what processes did."""


class Settings(SharedSettings, frozen=True, kw_only=True):
    """All settings of the measuring process."""

    node_name: NodeName = ""
    fake: Annotated[str, Flag("Measure the processes of a fake profile: its name, or a YAML file.")] = ""
    kubeconfig: Annotated[
        str, Flag("Kubeconfig file. Without one: the service account, or else $KUBECONFIG.", metavar="FILE")
    ] = ""
    library_dir: Annotated[
        Path | None,
        Flag("The plugin's --library-dir: its regions tell the use of memory where the driver does not."),
    ] = None
    port: Annotated[int, Flag("Port of the metrics and of the page `/usage`, on all interfaces.")] = names.USAGE_PORT
    period_s: Annotated[float, Flag("Seconds between two measurements.")] = 10.0
    overuse_events: Annotated[
        bool, Flag("Post an Event on a pod of which a container uses more GPU memory than it was promised.")
    ] = False
    idle_events_s: Annotated[
        float,
        Flag("Seconds after which a pod that does nothing on its GPUs gets an Event. 0: no Events."),
    ] = 0.0
    mark_idle_s: Annotated[
        float,
        Flag(
            "Seconds after which a pod that does nothing on its GPUs gets the annotation gangshare.io/idle, for "
            "--idle-first of the extender. 0: no annotations."
        ),
    ] = 0.0
    log_format: Annotated[Format, Flag("Format of the log. auto: console on a terminal, or else json.")] = "auto"
    log_level: Annotated[Level, Flag("Lowest level that is logged.")] = "info"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_node_name(self.node_name)
        if not SHORTEST_S <= self.period_s <= LONGEST_S:
            raise SettingsError(f"--period is {self.period_s}: expected {SHORTEST_S:g} to {LONGEST_S:g}")
        for name in ("idle_events_s", "mark_idle_s"):
            if not 0 <= getattr(self, name) < inf:
                raise SettingsError(f"{option(name)} is {getattr(self, name)}: expected 0 or more seconds")
        check_port("port", self.port, "a free one")
