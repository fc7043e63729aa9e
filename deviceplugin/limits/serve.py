"""Answers requests at the helper's socket."""

from pathlib import Path

import structlog

from deviceplugin import helper_lines, helper_socket
from deviceplugin.helper_socket import BUSY_S, Server
from deviceplugin.limits import protocol
from deviceplugin.limits.helper import Helper
from deviceplugin.limits.protocol import Answer, Hello, LimitError

log = structlog.get_logger()

BUSY = Answer(why=f"the driver has not answered an earlier request for {BUSY_S:g} s")


class Desk:
    """Answers the plugin's lines by one helper."""

    def __init__(self, helper: Helper) -> None:
        self._helper = helper
        self._lacks: str | None = None
        """What lacked when the plugin last asked whether limits can be set; None before."""

    def answer(self, text: bytes) -> bytes:
        """The answer to a line; blocks."""
        try:
            request = protocol.request(text)
        except LimitError as error:
            return helper_lines.line(Answer(why=str(error)))
        why = self._helper.answer(request)
        if not isinstance(request, Hello):
            log.info("asked", request=request, why=why)
        elif why != self._lacks:
            self._lacks = why
            log.info("proof", lacks=why)
        return helper_lines.line(Answer(why=why))


def server(path: Path, helper: Helper) -> Server:
    """The helper's socket, as an async context manager."""
    return Server(path, Desk(helper).answer, helper_lines.line(BUSY))


async def run(path: Path, helper: Helper) -> None:
    """Serve until SIGTERM or SIGINT; raises SettingsError."""
    await helper_socket.run(server(path, helper))
