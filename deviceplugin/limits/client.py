"""The plugin's side: asks the helper, in bounded time."""

from pathlib import Path

from deviceplugin import helper_lines, helper_socket
from deviceplugin.helper_socket import HelperError
from deviceplugin.limits import protocol
from deviceplugin.limits.protocol import Hello, LimitError, Request

ANSWER_S = 8.0
HELLO_S = 3.0
"""The plugin reads its GPUs no further meanwhile."""
COMPONENT = "isolation-limits"


class Limits:
    """The helper behind one socket."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def lacking(self) -> str:
        """Why the helper cannot set limits on this node, "" if it can."""
        try:
            await self.ask(Hello(), HELLO_S)
        except LimitError as error:
            return str(error)
        return ""

    async def ask(self, request: Request, patience: float = ANSWER_S) -> None:
        """Have it done; raises LimitError, when patience (in seconds) is over at the latest."""
        try:
            text = await helper_socket.asked(self._path, helper_lines.line(request), patience, COMPONENT)
        except HelperError as error:
            raise LimitError(str(error)) from error
        why = protocol.answer(text).why
        if why:
            raise LimitError(why)
