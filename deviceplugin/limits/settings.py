"""The helper's settings: one frozen value, read from flags and the environment, logged at start."""

from pathlib import Path
from typing import Annotated

import msgspec

from deviceplugin import cgroups
from deviceplugin.limits.protocol import DEFAULT_SOCKET
from deviceplugin.sockets import LONGEST_PATH
from protos.contract.flag import Flag
from protos.contract.shared_settings import SettingsError
from protos.logs import Format, Level


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of the helper."""

    socket: Annotated[Path, Flag("Socket on which the plugin asks for limits. Only root may enter its folder.")] = Path(
        DEFAULT_SOCKET
    )
    cgroup_root: Annotated[Path, Flag("Where the host's cgroup v2 hierarchy is mounted.")] = cgroups.ROOT
    log_format: Annotated[Format, Flag("Format of the log. auto: console on a terminal, or else json.")] = "auto"
    log_level: Annotated[Level, Flag("Lowest level that is logged.")] = "info"

    def __post_init__(self) -> None:
        if not self.socket.is_absolute() or len(bytes(self.socket)) > LONGEST_PATH:
            raise SettingsError(f"--socket is {self.socket}: expected an absolute path of at most {LONGEST_PATH} bytes")
