"""The settings of the MPS component: one frozen value, read from flags and the environment, logged at start."""

from math import inf
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from deviceplugin.mps.exchange import DEFAULT_DIR
from protos.contract.flag import Flag, listed, option
from protos.contract.shared_settings import SettingsError
from protos.logs import Format, Level

ALL = "all"
LONGEST_DIR = 24
"""Characters: the path of a socket below it must fit into 107 bytes."""

Protocol = Literal["auto", "2", "3"]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of the component."""

    gpus: Annotated[
        frozenset[str],
        Flag(
            "GPUs given over to MPS: all, or their UUIDs or indexes, separated by commas.",
            lambda text: frozenset(listed(text)),
            default=ALL,
        ),
    ] = frozenset({ALL})
    mps_dir: Annotated[Path, Flag("Folder that the component and the plugin share, at the same path of the host.")] = (
        Path(DEFAULT_DIR)
    )
    control: Annotated[str, Flag("The control program of MPS.")] = "nvidia-cuda-mps-control"
    protocol: Annotated[
        Protocol, Flag("Version of the control daemon's protocol. auto: 3 where the program knows it, or else 2.")
    ] = "auto"
    multi_user: Annotated[bool, Flag("One server serves containers of all users; otherwise only those of root.")] = True
    shm_mib: Annotated[int, Flag("Shared memory of all MPS clients of the node, in MiB.")] = 8192
    probe_s: Annotated[
        float, Flag("Seconds between two connections of a client of our own to each server. 0 disables.")
    ] = 60.0
    end_clients_s: Annotated[
        float, Flag("Seconds before the kubelet kills a container when its clients are ended through the daemon.")
    ] = 2.0
    log_format: Annotated[Format, Flag("Format of the log. auto: console on a terminal, or else json.")] = "auto"
    log_level: Annotated[Level, Flag("Lowest level that is logged.")] = "info"

    def __post_init__(self) -> None:
        if not self.gpus:
            raise SettingsError("--gpus is empty: expected all, or UUIDs or indexes of GPUs")
        if not self.mps_dir.is_absolute() or len(str(self.mps_dir)) > LONGEST_DIR:
            raise SettingsError(
                f"--mps-dir is {self.mps_dir}: expected an absolute path of at most {LONGEST_DIR} characters"
            )
        for name in ("probe_s", "end_clients_s"):
            if not 0 <= getattr(self, name) < inf:
                raise SettingsError(f"{option(name)} is {getattr(self, name)}: expected 0 or more")
        if self.shm_mib < 1:
            raise SettingsError(f"--shm-mib is {self.shm_mib}: expected 1 or more")

    def takes(self, index: int, uuid: str) -> bool:
        """Whether this GPU is given over to MPS."""
        return not self.gpus.isdisjoint({ALL, uuid, str(index)})
