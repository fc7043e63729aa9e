"""The plugin's metrics over HTTP: what Prometheus reads, and what strangers cannot take."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from deviceplugin import exposition
from deviceplugin.exposition import Exposition
from deviceplugin.metrics import Metrics
from protos.contract.shared_settings import SettingsError

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def served() -> AsyncIterator[tuple[Exposition, int]]:
    made = Exposition(Metrics().registry, 0)
    async with made as port:
        yield made, port


async def connect(port: int, source: str = "127.0.0.1") -> Connection:
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))


async def read(connection: Connection) -> bytes:
    """All that comes until the connection ends."""
    try:
        return await asyncio.wait_for(connection[0].read(), 30)
    except ConnectionError:
        return b""


async def scraped(port: int) -> set[str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        assert answer.status == 200
        return {family.name for family in text_string_to_metric_families(await answer.text())}


async def test_prometheus_reads_every_metric() -> None:
    async with served() as (_, port):
        found = await scraped(port)
    assert {"gangshare_plugin_allocate_seconds", "gangshare_plugin_gpus"} <= found


async def test_its_labels_name_no_pod() -> None:
    labels = {label for metric in Metrics().registry.collect() for sample in metric.samples for label in sample.labels}
    assert not labels & {"pod", "namespace", "container"}


async def test_probes_learn_that_the_loop_runs() -> None:
    async with served() as (_, port):
        connection = await connect(port)
        connection[1].write(b"GET /healthz HTTP/1.1\r\n\r\n")
        answer = await read(connection)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nok\n")


@pytest.mark.parametrize(("sent", "status"), [(b"POST /metrics", b"405"), (b"GET /else", b"404")])
async def test_nothing_else_is_served(sent: bytes, status: bytes) -> None:
    async with served() as (_, port):
        connection = await connect(port)
        connection[1].write(sent + b" HTTP/1.1\r\n\r\n")
        assert (await read(connection)).startswith(b"HTTP/1.1 " + status)


async def test_silent_connections_are_few_cost_no_thread_and_block_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served() as (made, port):
        before = threading.active_count()
        silent = [await connect(port, "127.0.0.2") for _ in range(100)]
        assert "gangshare_plugin_gpus" in await scraped(port)
        assert made._peers["127.0.0.2"] == exposition.OF_ONE_PEER
        assert threading.active_count() == before
        for _, writer in silent:
            writer.transport.abort()
    assert exposition.OF_ONE_PEER < exposition.CONNECTIONS


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HT", b"\r\n"])
async def test_a_slow_connection_is_closed_and_forgotten(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "EXCHANGE_S", 0.05)
    async with served() as (made, port):
        connection = await connect(port)
        connection[1].write(sent)
        assert await read(connection) == b""
        assert not made._peers.total()


async def test_a_head_without_end_is_cut_off() -> None:
    async with served() as (_, port):
        connection = await connect(port)
        connection[1].write(b"GET /metrics HTTP/1.1\r\n" + b"a: b\r\n" * 100_000)
        assert await read(connection) == b""


async def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=rf"--metrics-port is {port}: expected a free port \(Address"):
            await Exposition(Metrics().registry, port).__aenter__()
