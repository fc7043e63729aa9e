"""The extender as an operating-system process: start, signals, exit codes."""

import asyncio
import itertools
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from extender.sim.apiserver.api import Api
from tests.unit.extender_shell.world import FaultyServer, add_node, add_pod, binding, hold_lease, read_pod, until

COMMAND = "import typer; from extender.server.command import command; typer.run(command)"
FREE = ("--listen", "127.0.0.1:0", "--status-listen", "127.0.0.1:0", "--log-format", "json")


class Told:
    """What the process writes to standard error, line by line."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.lines.append(msgspec.json.decode(line) if line.startswith(b"{") else {"event": line.decode()})

    def of(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == event]

    async def ended(self) -> int:
        await self._reading
        return await self.process.wait()


@asynccontextmanager
async def started(*arguments: str, **environment: str) -> AsyncIterator[Told]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", COMMAND, *arguments, stderr=PIPE, env={"COLUMNS": "200", **environment}
    )
    told = Told(process)
    try:
        yield told
    finally:
        if process.returncode is None:
            process.kill()
        await told.ended()


async def ask(url: str, verb: str, body: Any) -> Any:
    async with aiohttp.ClientSession() as session, session.post(url + verb, data=msgspec.json.encode(body)) as answer:
        return msgspec.json.decode(await answer.read())


@asynccontextmanager
async def api_server(folder: Path) -> AsyncIterator[tuple[FaultyServer, str]]:
    server = FaultyServer(Api())
    await server.start()
    add_node(server.api, "node-a", gpus=2)
    yield server, str(server.write_kubeconfig(folder / "kubeconfig"))
    await server.stop()


async def test_sigterm_ends_it_with_code_0_and_settings_come_from_the_environment(tmp_path: Path) -> None:
    async with (
        api_server(tmp_path) as (_, kubeconfig),
        started(*FREE, GANGSHARE_KUBECONFIG=kubeconfig, GANGSHARE_LEADER_ELECTION="none") as told,
    ):
        await until(lambda: told.of("ready"), "ready")
        assert told.of("starting")[0]["kubeconfig"] == kubeconfig
        told.process.send_signal(signal.SIGTERM)
        assert await told.ended() == 0
        assert told.of("stopped")


async def test_a_setting_that_cannot_be_used_ends_it_with_code_2_and_one_line() -> None:
    async with started("--kubeconfig", "/nowhere/at/all", *FREE) as told:
        assert await told.ended() == 2
        assert told.lines[-1]["event"] == "gangshare extender: /nowhere/at/all: no such file, expected a kubeconfig\n"


async def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    async with (
        api_server(tmp_path) as (server, kubeconfig),
        started("--kubeconfig", kubeconfig, "--listen", server.url.removeprefix("http://")) as told,
    ):
        assert await told.ended() == 2
        assert "cannot listen there (Address already in use)" in told.lines[-1]["event"]


async def test_stopped_and_continued_it_writes_nothing_before_it_saw_the_lease_again(tmp_path: Path) -> None:
    """SIGSTOP with binds under way and a Retry-After waited for; the Lease goes to another meanwhile; SIGCONT."""
    renewals = itertools.count()
    async with api_server(tmp_path) as (server, kubeconfig):
        arrived = asyncio.Event()

        async def busy(request: web.BaseRequest) -> web.StreamResponse | None:
            if not request.path.endswith("/binding"):
                return None
            arrived.set()
            return web.Response(status=429, headers={"Retry-After": "1"})

        async def renew() -> None:
            while True:
                hold_lease(server.api, "us_1", next(renewals))
                await asyncio.sleep(0.1)

        renewing = asyncio.create_task(renew())
        lead = ("--lease-identity-prefix", "us_", "--renew-deadline", "2")
        async with started("--kubeconfig", kubeconfig, *lead, *FREE) as told:
            await until(lambda: told.of("leadership"), "the Lease seen renewed")
            url = told.of("listening")[0]["verbs"]
            pods = [add_pod(server.api, f"p{i}") for i in range(5)]
            for pod in pods:
                await ask(url, "/scheduler/filter", {"Pod": pod, "NodeNames": ["node-a"]})
            server.fault = busy
            asking = [asyncio.create_task(ask(url, "/scheduler/bind", binding(pod, "node-a"))) for pod in pods]
            await arrived.wait()
            await until(lambda: len(server.writes) == 5, "all Bindings were sent once")
            told.process.send_signal(signal.SIGSTOP)
            renewing.cancel()
            await asyncio.sleep(2.5)
            hold_lease(server.api, "them_1", next(renewals), transitions=1)
            before = len(server.writes)
            told.process.send_signal(signal.SIGCONT)
            answers = await asyncio.gather(*asking)
            assert all("nothing was written" in answer["Error"] for answer in answers)
            assert len(server.writes) == before
            assert all("nodeName" not in read_pod(server.api, f"p{i}")["spec"] for i in range(5))
