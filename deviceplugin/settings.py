"""The plugin's settings: one frozen value, read from flags and the environment, logged at start."""

from math import inf
from pathlib import Path
from typing import Annotated

from deviceplugin import cdi
from deviceplugin.answers import Strategy
from deviceplugin.devices import Sharing
from deviceplugin.health import COOL_DOWN_S, IGNORED_XIDS
from deviceplugin.slices import TimeSlicing
from protos.contract import names
from protos.contract.flag import Flag, listed
from protos.contract.shared_settings import SettingsError, SharedSettings
from protos.logs import Format, Level


def xids(text: str) -> frozenset[int]:
    """Error numbers separated by commas; raises SettingsError."""
    parts = listed(text)
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise SettingsError(f"{text!r} is no list of XIDs: expected numbers separated by commas, like 13,31")
    return frozenset(map(int, parts))


def _folders(text: str) -> tuple[Path, ...]:
    return tuple(map(Path, listed(text)))


class Settings(SharedSettings, frozen=True, kw_only=True):
    """All settings of the plugin."""

    node_name: Annotated[str, Flag("This node's name.", variables=("NODE_NAME",))] = ""
    fake: Annotated[str, Flag("Serve the machine of this profile (a shipped name or a YAML file), not real GPUs.")] = ""
    standalone: Annotated[bool, Flag("No extender: the plugin places the pods of this node.")] = False
    kubelet_dir: Annotated[Path, Flag("The kubelet's device plugin folder.")] = Path(names.DEVICE_PLUGIN_DIR)
    pod_resources: Annotated[Path, Flag("The kubelet's PodResources socket.")] = Path(names.POD_RESOURCES_SOCKET)
    kubeconfig: Annotated[str, Flag("Credentials; else the service account, else $KUBECONFIG.")] = ""
    time_slicing_config: Annotated[
        Path | None, Flag("NVIDIA's configuration file with sharing.timeSlicing.", variables=("CONFIG_FILE",))
    ] = None
    time_slicing: TimeSlicing = TimeSlicing()
    """The content of that file: replicas of whole GPUs."""
    device_list_strategy: Annotated[Strategy, Flag("How the container runtime learns a container's GPUs.")] = (
        Strategy.ENVVAR
    )
    cdi_kind: Annotated[str, Flag("cdi-cri: vendor/class of the GPUs' CDI devices.")] = names.CDI_KIND
    cdi_spec_dirs: Annotated[
        tuple[Path, ...],
        Flag(
            "cdi-cri: folders with CDI specifications, separated by commas.",
            _folders,
            default=",".join(map(str, cdi.SPEC_DIRS)),
        ),
    ] = cdi.SPEC_DIRS
    ignored_xids: Annotated[
        frozenset[int],
        Flag(
            "XIDs that do not make a GPU sick, separated by commas.",
            xids,
            default=",".join(map(str, sorted(IGNORED_XIDS))),
        ),
    ] = IGNORED_XIDS
    cool_down_s: Annotated[float, Flag("Seconds without errors until a sick GPU is healthy again.")] = COOL_DOWN_S
    drain_s: Annotated[float, Flag("Seconds between publishing `leaving` on the node and stopping.")] = 3.0
    metrics_port: Annotated[int, Flag("Port of Prometheus metrics on every interface; 0 disables.")] = 0
    log_format: Annotated[Format, Flag("auto: console on a terminal, else json.")] = "auto"
    log_level: Annotated[Level, Flag("The least important line that is written.")] = "info"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.node_name:
            raise SettingsError("node_name is empty: expected the name of this node (--node-name or NODE_NAME)")
        for name in ("cool_down_s", "drain_s"):
            if not 0 <= getattr(self, name) < inf:
                raise SettingsError(f"{name} is {getattr(self, name)}: expected 0 or more")
        if not cdi.KIND.fullmatch(self.cdi_kind):
            raise SettingsError(f"cdi_kind is {self.cdi_kind!r}: expected vendor/class, like {names.CDI_KIND}")
        if not 0 <= self.metrics_port <= 65535:
            raise SettingsError(f"metrics_port is {self.metrics_port}: expected a port, or 0 for none")

    @property
    def sharing(self) -> Sharing:
        """How GPUs are divided."""
        return Sharing(
            resources=self.resources,
            unit_mib=self.unit_mib,
            slices_per_gpu=self.slices_per_gpu,
            replicas=self.time_slicing.replicas,
            gpushare=self.gpushare,
        )
