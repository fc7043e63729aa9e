"""The partitioner's settings: one frozen value, read from flags and the environment, logged at start."""

import re
from pathlib import Path
from typing import Annotated

import msgspec

from deviceplugin.common_settings import NodeName, check_node_name
from deviceplugin.partitioner.protocol import DEFAULT_SOCKET
from deviceplugin.sockets import LONGEST_PATH
from protos.contract.flag import Flag, listed
from protos.contract.shared_settings import SettingsError
from protos.logs import Format, Level

GPU = re.compile(r"all|[0-9]{1,3}|GPU-[0-9A-Za-z-]{1,96}")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of the partitioner."""

    gpus: Annotated[
        tuple[str, ...],
        Flag(
            "GPUs in MIG mode that are given over: indexes or UUIDs, separated by commas, or all.",
            listed,
            default="all",
        ),
    ] = ("all",)
    state_dir: Annotated[
        Path, Flag("Folder of the file that says which instances are its own. It must outlive the process.")
    ] = Path("/var/lib/gangshare/partitioner")
    socket: Annotated[Path, Flag("Socket on which the plugin asks. Only root may enter its folder.")] = Path(
        DEFAULT_SOCKET
    )
    fake: Annotated[
        str, Flag("Make instances on the fake GPUs of a profile: its name, or a YAML file. Needs --node-name.")
    ] = ""
    node_name: NodeName = ""
    log_format: Annotated[Format, Flag("Format of the log. auto: console on a terminal, or else json.")] = "auto"
    log_level: Annotated[Level, Flag("Lowest level that is logged.")] = "info"

    def __post_init__(self) -> None:
        for gpu in self.gpus:
            if not GPU.fullmatch(gpu):
                raise SettingsError(f"--gpus has {gpu[:40]!r}: expected an index, a UUID like GPU-1c…, or all")
        if self.fake:
            check_node_name(self.node_name)
        if not self.socket.is_absolute() or len(bytes(self.socket)) > LONGEST_PATH:
            raise SettingsError(f"--socket is {self.socket}: expected an absolute path of at most {LONGEST_PATH} bytes")
