"""What the settings of the plugin and of the measuring process have in common."""

from typing import Annotated

from protos.contract.flag import Flag, option
from protos.contract.shared_settings import SettingsError

NodeName = Annotated[str, Flag("Name of this node.", variables=("NODE_NAME",))]


def check_node_name(name: str) -> None:
    """Raise SettingsError without a name."""
    if not name:
        raise SettingsError("--node-name is empty: expected the name of this node, or the variable NODE_NAME")


def check_port(field: str, port: int, zero: str) -> None:
    """Raise SettingsError unless this is a port; `zero` says what 0 stands for."""
    if not 0 <= port <= 65535:
        raise SettingsError(f"{option(field)} is {port}: expected a port, or 0 for {zero}")
