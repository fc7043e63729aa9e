"""Answers requests at the partitioner's socket."""

from pathlib import Path

import structlog

from deviceplugin import helper_lines
from deviceplugin.helper_socket import BUSY_S, Server
from deviceplugin.partitioner import protocol
from deviceplugin.partitioner.partitioner import Partitioner
from deviceplugin.partitioner.protocol import Answer, PartitionError

log = structlog.get_logger()

BUSY = Answer(why=f"the driver has not answered an earlier request for {BUSY_S:g} s")


class Desk:
    """Answers the plugin's lines by one partitioner."""

    def __init__(self, partitioner: Partitioner) -> None:
        self._partitioner = partitioner
        self._told: tuple[str, dict[str, str]] = ("", {})

    def answer(self, text: bytes) -> bytes:
        """The answer to a line; blocks."""
        try:
            held = protocol.request(text)
        except PartitionError as error:
            return helper_lines.line(Answer(why=str(error)))
        found = self._partitioner.answer(held)
        if (found.why, found.refused) != self._told:
            self._told = found.why, found.refused
            log.info("refusing", why=found.why, refused=found.refused)
        return helper_lines.line(found)


def server(path: Path, partitioner: Partitioner) -> Server:
    """The partitioner's socket, as an async context manager."""
    return Server(path, Desk(partitioner).answer, helper_lines.line(BUSY))
