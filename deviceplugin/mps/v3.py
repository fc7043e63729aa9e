"""The commands of MPS from driver 615 on: one server for the GPU, and a namespace with limits for each container.

A container sees only the folder of its own namespace, so it connects with these limits or not at all.
Source: docs.nvidia.com/deploy/mps, "MPS v3 Interface".
"""

import re
from collections.abc import Sequence
from pathlib import Path

from deviceplugin.mps.control import Client, Control, ControlError, Server
from deviceplugin.mps.exchange import SERVER, Holder, namespace

CSV = "--format=csv,noheader"
_NAMESPACE = re.compile(r"c[0-9a-f]{16}")
_SIZES = {"K": 1 / 1024, "M": 1.0, "G": 1024.0}


class V3:
    """The daemon of one GPU, by version 3 of its protocol."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def daemon(self, multi_user: bool) -> tuple[str, ...]:
        return ("-p", "3", "-m", "-f") if multi_user else ("-p", "3", "-f")

    def clients_folder(self) -> Path:
        return self._control.pipes / SERVER

    async def start_server(self) -> None:
        await self._tell("server", "create", SERVER, "--uid=0", f"--allowed-devices={self._control.uuid}")

    async def servers(self) -> list[Server]:
        rows = table(await self._tell("server", "list", CSV), 4)
        return [
            Server(row[0], int(row[2]), row[3] == "Ready", "fault" in row[3].lower()) for row in rows if _pid(row[2])
        ]

    async def clients(self, servers: Sequence[Server]) -> list[Client]:
        rows = table(await self._tell("client", "list", "--all", CSV), 2)
        names = {server.name for server in servers}
        return [Client(int(row[0]), row[1]) for row in rows if row[1] in names and _pid(row[0])]

    async def terminate(self, client: Client) -> None:
        await self._tell("client", "terminate", str(client.pid))

    async def admit(self, holders: Sequence[Holder]) -> dict[str, str]:
        wanted = {namespace(holder.key): holder for holder in holders}
        present = await self._limits()
        for name in present.keys() - wanted.keys():
            if _NAMESPACE.fullmatch(name):
                await self._tell("namespace", "delete", name, f"--server={SERVER}", "--force")
        unset = [name for name, holder in wanted.items() if present.get(name) != _limits_of(holder)]
        for name in unset:
            await self._create(name, wanted[name], name in present)
        if unset:
            present = await self._limits()
        wrong = [name for name, holder in wanted.items() if present.get(name) != _limits_of(holder)]
        return {
            holder.key: str(self._control.pipes / SERVER / name) for name, holder in wanted.items() if name not in wrong
        }

    async def quit(self) -> None:
        await self._tell("-q")

    async def _create(self, name: str, holder: Holder, exists: bool) -> None:
        if not exists:
            await self._tell("namespace", "create", name, f"--server={SERVER}")
        limits = [f"--pinned-memory-limit={holder.mem_mib}M"] if holder.mem_mib else []
        limits += [f"--active-thread-percentage={holder.percent}"] if holder.percent else []
        if limits:
            await self._tell("namespace", "set", name, f"--server={SERVER}", *limits)

    async def _limits(self) -> dict[str, tuple[int, int]]:
        """The memory in MiB and the percentage of each namespace, as the daemon tells them."""
        rows = table(await self._tell("namespace", "list", f"--server={SERVER}", CSV), 5)
        return {row[0]: (_mebibytes(row[3]), _percent(row[4])) for row in rows}

    async def _tell(self, *arguments: str) -> str:
        return await self._control.ask("-p", "3", *arguments)


def table(said: str, columns: int) -> list[list[str]]:
    """The rows of comma-separated values; raises ControlError for shorter rows."""
    rows = [[cell.strip() for cell in line.split(",")] for line in said.splitlines() if line.strip()]
    if any(len(row) < columns for row in rows):
        raise ControlError(f"expected rows of {columns} values or more, and the answer was {said.strip()[:80]!r}")
    return rows


def _pid(cell: str) -> bool:
    return cell.isascii() and cell.isdecimal() and len(cell) < 11


def _limits_of(holder: Holder) -> tuple[int, int]:
    return holder.mem_mib, 0 if holder.percent == 100 else holder.percent


def _mebibytes(text: str) -> int:
    """The MiB of a limit like `4G` or `512M`, 0 if it is none."""
    number, size = text[:-1], text[-1:].upper()
    if not number.isascii() or not number.isdecimal() or size not in _SIZES:
        return 0
    return int(int(number) * _SIZES[size])


def _percent(text: str) -> int:
    """The whole percents of a limit like `50.00`, 0 if it limits nothing."""
    whole = text.partition(".")[0]
    return int(whole) if whole.isascii() and whole.isdecimal() and 0 < int(whole[:4]) < 100 else 0
