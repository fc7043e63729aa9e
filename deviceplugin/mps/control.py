"""Commands to a control daemon: each is one short run of its program, with a deadline.

A daemon that is wedged takes the connection and never answers, so a run without an answer is ended.
"""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from deviceplugin.mps.exchange import Holder
from protos.contract.bounds import MPS_ANSWER
from protos.contract.printable import brief, printable

ANSWER_S = 5.0
"""Longest wait for an answer."""
END_S = 1.0
"""Longest wait for the end of a program that was killed."""
CHUNK = 64 << 10


class ControlError(Exception):
    """The daemon did not answer, or refused; the message says which."""


class Server(NamedTuple):
    """A server process of a daemon."""

    name: str
    pid: int
    ready: bool
    fault: bool
    """A fatal error of a client blocks it."""


class Client(NamedTuple):
    """A process that is connected to a server."""

    pid: int
    server: str


class Commands(Protocol):
    """The commands of one version of the daemon."""

    def daemon(self, multi_user: bool) -> tuple[str, ...]:
        """The arguments that start the daemon in the foreground."""
        ...

    def clients_folder(self) -> Path:
        """The pipes for a client of our own."""
        ...

    async def start_server(self) -> None: ...
    async def servers(self) -> list[Server]: ...
    async def clients(self, servers: Sequence[Server]) -> list[Client]: ...
    async def terminate(self, client: Client) -> None: ...
    async def admit(self, holders: Sequence[Holder]) -> dict[str, str]:
        """Set the limits for exactly these holders; returns the folder of the pipes for each, by its key."""
        ...

    async def quit(self) -> None: ...


class Control:
    """Runs the control program for the daemon of one pair of folders."""

    def __init__(self, program: str, pipes: Path, logs: Path, uuid: str) -> None:
        self.program, self.pipes, self.uuid = program, pipes, uuid
        self.environment = {
            **os.environ,
            "CUDA_MPS_PIPE_DIRECTORY": str(pipes),
            "CUDA_MPS_LOG_DIRECTORY": str(logs),
            "CUDA_VISIBLE_DEVICES": uuid,
        }

    async def ask(self, *arguments: str, command: str = "") -> str:
        """What the program prints for these arguments and this line of input; raises ControlError."""
        asked = command or " ".join(arguments)
        try:
            process = await asyncio.create_subprocess_exec(
                self.program,
                *arguments,
                env=self.environment,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
        except OSError as error:
            raise ControlError(f"{self.program} cannot be run ({error.strerror})") from error
        try:
            async with asyncio.timeout(ANSWER_S):
                said = await _exchange(process, command)
                status = await process.wait() if said is not None else 0
        except TimeoutError as error:
            raise ControlError(f"no answer to {asked} in {ANSWER_S:g} s") from error
        finally:
            await end(process)
        if said is None:
            raise ControlError(f"{asked}: {MPS_ANSWER.exceeded(MPS_ANSWER.most + 1)}")
        if status:
            raise ControlError(f"{asked} failed: {brief(printable(said.strip()), 120) or f'status {status}'}")
        return said


async def end(process: asyncio.subprocess.Process) -> None:
    """End a program, if it has not ended. One that leaves its output open to another process is not waited for."""
    with suppress(ProcessLookupError):
        if process.returncode is None:
            process.kill()
    with suppress(TimeoutError):
        async with asyncio.timeout(END_S):
            while process.stdout is not None and await process.stdout.read(CHUNK):
                pass
            await process.wait()


async def output(process: asyncio.subprocess.Process, most: int) -> bytes | None:
    """All that the program prints, None if it is more than this."""
    assert process.stdout is not None
    said = b""
    while chunk := await process.stdout.read(CHUNK):
        said += chunk
        if len(said) > most:
            return None
    return said


async def _exchange(process: asyncio.subprocess.Process, command: str) -> str | None:
    assert process.stdin is not None
    if command:
        process.stdin.write(f"{command}\n".encode())
    process.stdin.close()
    said = await output(process, MPS_ANSWER.most)
    return said.decode(errors="replace") if said is not None else None
