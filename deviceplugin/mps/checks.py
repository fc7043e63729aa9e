"""Whether the daemon of one GPU works: not only its pipe, but its server and a client's connection.

A check has a deadline, and one that fails is repeated once before the daemon counts as wedged.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from deviceplugin.mps import control, processes
from deviceplugin.mps.control import Client, Commands, ControlError, Server
from deviceplugin.mps.ending import Stuck
from protos.contract.printable import printable

PATIENCE_S = 20.0
"""Seconds that a server may be busy with itself, and that a client may be listed after its end."""
FAILURES = 2
"""So many checks in a row must fail."""
PROBE_S = 20.0
"""Longest time that a client may take to connect."""
CLIENT_SAYS = 4096
"""Bytes that a client prints at most."""
NOT_READY = "the MPS server does not take clients"
FAULT = "a fatal error of a client blocks the MPS server"
NO_SERVER = "the MPS server has ended"

Probe = Callable[[], Awaitable[str]]
"""Connects as a client; returns what went wrong."""


class Checks:
    """The checks of one daemon; `trouble` is why it does not work, "" if it does."""

    def __init__(self, commands: Commands, probe: Probe | None, probe_every: float) -> None:
        """`probe` connects every so many seconds; None never does."""
        self._commands, self._probe, self._every = commands, probe, probe_every
        self.reset()

    def reset(self) -> None:
        """Begin anew, with a new daemon."""
        self.trouble = ""
        self.servers: list[Server] = []
        self._clients: list[Client] = []
        self._failures, self._probed = 0, 0.0
        self._busy_since: float | None = None
        self._refused = ""
        """What the last probe said."""
        self._stuck = Stuck(PATIENCE_S)

    @property
    def failing(self) -> bool:
        """Whether the last check failed."""
        return self._failures > 0

    async def run(self) -> None:
        """Check once."""
        now = asyncio.get_running_loop().time()
        try:
            self.servers = await self._commands.servers()
            self._clients = await self._commands.clients(self.servers)
            trouble = self._judge(now)
        except ControlError as error:
            trouble = str(error)
        if not trouble:
            trouble = await self._ask_a_client(now)
        self._failures = self._failures + 1 if trouble else 0
        if not trouble or self._failures >= FAILURES:
            self.trouble = trouble

    def _judge(self, now: float) -> str:
        if not self.servers:
            return NO_SERVER
        if any(server.fault for server in self.servers):
            return FAULT
        if all(server.ready for server in self.servers):
            self._busy_since = None
        elif self._busy_since is None:
            self._busy_since = now
        elif now - self._busy_since > PATIENCE_S:
            return NOT_READY
        stuck = self._stuck.see(self._clients, lambda pid: processes.of(pid) is not None, now)
        return f"the MPS server does not let go of process {stuck[0].pid}, which has ended" if stuck else ""

    async def _ask_a_client(self, now: float) -> str:
        if self._probe is None or (now - self._probed < self._every and not self._refused):
            return ""
        self._refused = await self._probe()
        self._probed = asyncio.get_running_loop().time()
        return f"a client cannot connect ({self._refused})" if self._refused else ""


async def ask_a_client(program: Sequence[str], environment: dict[str, str], unknown: int) -> str:
    """Run a program that connects as a client; returns what went wrong. The exit status `unknown` says nothing."""
    process = await asyncio.create_subprocess_exec(
        *program, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(PROBE_S):
            said = await control.output(process, CLIENT_SAYS) or b""
            status = await process.wait()
    except TimeoutError:
        return f"no answer in {PROBE_S:g} s"
    finally:
        await control.end(process)
    return printable(said.decode(errors="replace").strip())[:120] if status not in (0, unknown) else ""
