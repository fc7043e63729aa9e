"""The plugin's side: asks the helper, in bounded time."""

import asyncio
import os
from pathlib import Path

from deviceplugin.limits import protocol
from deviceplugin.limits.protocol import Hello, LimitError, Request
from deviceplugin.limits.serve import peer_user
from protos.contract.bounds import LIMITS_LINE

ANSWER_S = 8.0
HELLO_S = 3.0
"""The plugin reads its GPUs no further meanwhile."""


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
            async with asyncio.timeout(patience):
                text = await self._exchange(protocol.line(request))
        except TimeoutError as error:
            raise LimitError(f"it does not answer in {patience:g} s") from error
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise LimitError(f"it does not answer at {self._path}: is components/isolation-limits there?") from error
        why = protocol.answer(text).why
        if why:
            raise LimitError(why)

    async def _exchange(self, line: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(self._path, limit=LIMITS_LINE.most)
        try:
            if (user := peer_user(writer.get_extra_info("socket"))) != os.geteuid():
                raise LimitError(f"user {user} listens at {self._path}: expected {os.geteuid()}")
            writer.write(line)
            await writer.drain()
            return await reader.readuntil(protocol.END)
        finally:
            writer.transport.abort()
