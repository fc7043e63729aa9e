"""The commands of MPS before driver 615: lines of text for the control program.

Limits hold for all clients of a server. A client may only tighten them by its own environment, so a server's limits are
those of its largest holder, and each container gets its own limits by its environment: it can take them off.
Source: docs.nvidia.com/deploy/mps, "Legacy MPS v2 Interface".
"""

import re
from collections.abc import Sequence
from pathlib import Path

from deviceplugin.mps.control import Client, Control, ControlError, Server
from deviceplugin.mps.exchange import Holder

_STATE = re.compile(r"\b(ACTIVE|INITIALIZING|FAULT)\b")
DEVICE = "0"
"""The daemon sees one GPU."""
UNLIMITED = 100


class V2:
    """The daemon of one GPU, by version 2 of its protocol."""

    def __init__(self, control: Control, total_mib: int) -> None:
        self._control, self._total_mib = control, total_mib
        self._set: tuple[int, int, tuple[str, ...]] | None = None
        """The limits in force, and the servers that have them."""

    def daemon(self, multi_user: bool) -> tuple[str, ...]:
        return ("-f", "-multiuser-server") if multi_user else ("-f",)

    def clients_folder(self) -> Path:
        return self._control.pipes

    async def start_server(self) -> None:
        self._set = None
        await self._limit(*ceiling((), self._total_mib), ())
        await self._tell("start_server -uid 0")

    async def servers(self) -> list[Server]:
        pids = numbers(await self._tell("get_server_list"))
        return [self._server(pid, await self._tell(f"get_server_status {pid}")) for pid in pids]

    async def clients(self, servers: Sequence[Server]) -> list[Client]:
        found = []
        for server in servers:
            found += [Client(pid, server.name) for pid in numbers(await self._tell(f"get_client_list {server.name}"))]
        return found

    async def terminate(self, client: Client) -> None:
        await self._tell(f"terminate_client {client.server} {client.pid}")

    async def admit(self, holders: Sequence[Holder]) -> dict[str, str]:
        servers = tuple(str(pid) for pid in numbers(await self._tell("get_server_list")))
        mem, percent = ceiling(holders, self._total_mib)
        if self._set != (mem, percent, servers):
            await self._limit(mem, percent, servers)
        return {holder.key: str(self._control.pipes) for holder in holders}

    async def quit(self) -> None:
        await self._tell("quit")

    async def _limit(self, mem: int, percent: int, servers: tuple[str, ...]) -> None:
        """Set the limits of new clients of these servers, and of new servers."""
        await self._tell(f"set_default_active_thread_percentage {percent}")
        await self._tell(f"set_default_device_pinned_mem_limit {DEVICE} {mem}M")
        for server in servers:
            await self._tell(f"set_active_thread_percentage {server} {percent}")
            await self._tell(f"set_device_pinned_mem_limit {server} {DEVICE} {mem}M")
        self._set = (mem, percent, servers)

    async def _tell(self, command: str) -> str:
        return await self._control.ask(command=command)

    @staticmethod
    def _server(pid: int, said: str) -> Server:
        state = _STATE.search(said)
        word = state[1] if state else "ACTIVE"  # drivers before get_server_status name no state
        return Server(str(pid), pid, word == "ACTIVE", word == "FAULT")


def numbers(said: str) -> list[int]:
    """The process IDs in an answer; raises ControlError for anything else."""
    words = said.split()
    if not all(word.isascii() and word.isdecimal() and len(word) < 11 for word in words):
        raise ControlError(f"expected process IDs, and the answer was {' '.join(words)[:80]!r}")
    return [int(word) for word in words]


def ceiling(holders: Sequence[Holder], total_mib: int) -> tuple[int, int]:
    """Memory in MiB and percentage of threads of the largest holder, or of the GPU where somebody has no limit."""
    mems, percents = [holder.mem_mib for holder in holders], [holder.percent for holder in holders]
    return (
        min(max(mems), total_mib) if mems and all(mems) else total_mib,
        max(percents) if percents and all(percents) else UNLIMITED,
    )
