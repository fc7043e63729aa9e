"""What people's questions cost kube-scheduler: filter over HTTP, alone and beside a crowd that asks for everything.

The ports are served by one process as the extender does, the crowd asks from another: 300 connections that ask for
`/inspect` and `/metrics` again and again, and open anew when they are sent away. The mark is held against what the
longest turn of the event loop takes of the processor: so long does a question of kube-scheduler wait at most. What
filter pays by the clock is told beside it: where all processors are busy, that is the machine's. What the longest piece
of each page takes, between which others have their turn, is measured by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from itertools import zip_longest

import msgspec
import structlog
import uvloop

from extender.engine.types.events import GroupSeen, PodSeen, PodsListed, Tick
from extender.metrics import Metrics
from extender.server.binds import Binds
from extender.server.core import Core
from extender.server.desk import Refusal, Traffic
from extender.server.garbage import Garbage
from extender.server.gate import Gate
from extender.server.pages import Page, Pages, Request, loopback_only
from extender.server.ports import Ports
from extender.server.status import Health, Status
from extender.server.verbs import VerbQuestions, Verbs
from extender.settings import Address, Settings
from gangfilter import podgroups
from gangfilter.group import Declaration, GroupKey
from protos.contract import names
from protos.contract.objects import decode_pod
from protos.kube.client import ApiClient
from protos.kube.credentials import Credentials
from tests.bench import bodies, gang
from tests.bench.fleet import MEM, WHOLE, Fleet
from tests.bench.report import Figure, percentile
from tests.cluster.gangshare import ROOT

SIZES = ((500, 4_000), (5_000, 20_000))
"""Nodes and pods."""
CROWD, FILTERS, PAUSE_S = 300, 600, 0.01
TURNING_S = 3.0
PATHS = ("/inspect", "/metrics")
LARGEST_GANG, OVER, ROUNDS = 2_000, 8_000, 3
EVERY_PAGE = (
    *PATHS, "/inspect/node-00000", "/classes", "/queues", "/queues/default",
    "/explain/default/trainer-000000?scores=true", "/explain/default/big-0000", "/explain/groups/default/big",
    "/explain/groups/default/over", "/defrag/default/big-0000", "/whatif",
)  # fmt: skip

WHAT_IF = {
    "apiVersion": "visibility.gangshare.io/v1alpha1",
    "kind": "WhatIf",
    "spec": {
        "pods": [
            {
                "template": {
                    "metadata": {"name": "asked", "annotations": {names.GROUP: "asked", names.MIN_MEMBER: "1000"}},
                    "spec": bodies.pod("asked", {WHOLE: 8})["spec"],
                },
                "count": 1000,
            }
        ]
    },
}
"""About a gang of a thousand members."""


async def _serve(nodes: int, pods: int) -> None:
    """Tell the ports and a question; at a line, what turns of the event loop take in s; serve until the next line."""
    fleet = Fleet(nodes, pods)
    metrics = Metrics(fleet.engine.counters)
    garbage = Garbage(metrics.steps)
    traffic = Traffic(metrics.steps)
    core = Core(fleet.engine, metrics, lambda _: None)
    pending = bodies.stored(bodies.pod("asked", {MEM: 4}))
    core.tell(PodSeen(decode_pod(msgspec.json.encode(pending))))
    gate, free = Gate(lambda _: None), Address("127.0.0.1", 0)
    gate.open()
    ports = Ports(Settings(listen=free, status_listen=free))
    told = Status(core, Health(time.monotonic, ""), traffic, open_allocations=False)
    async with asyncio.TaskGroup() as tasks:
        verbs = Verbs(core, Binds(core, None, tasks), gate)  # type: ignore[arg-type]  # no Binding is written
        asked = VerbQuestions(core, gate, verbs.handlers, traffic)
        servers = list(ports.servers(asked, Pages(lambda _: None), told, ApiClient(Credentials("http://127.0.0.1:1"))))
        serving = [tasks.create_task(server.serve(sockets=[opened])) for server, opened in servers]
        question = {"Pod": pending, "NodeNames": fleet.names}
        told_ports = {"verbs": ports.verbs.address.port, "status": ports.status.address.port}
        print(json.dumps(told_ports | {"question": question}), flush=True)
        garbage.settle()
        await asyncio.to_thread(sys.stdin.readline)
        print(json.dumps(await _turns(garbage)), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for task in serving:
            task.cancel()


async def _turns(garbage: Garbage) -> list[float]:
    """What each turn of the event loop takes of the processor: so long would a question of kube-scheduler wait."""
    took, until = list[float](), time.monotonic() + TURNING_S
    began = time.thread_time()
    while time.monotonic() < until:
        await asyncio.sleep(0)
        now = time.thread_time()
        took.append(now - began)
        garbage.tick(leads=True)
        began = time.thread_time()
    return took


def _gang_of(fleet: Fleet) -> None:
    """One as large as may be, which waits, and others that are over."""
    for made in gang.gang("big", LARGEST_GANG, {WHOLE: 8}):
        fleet.engine.step(PodSeen(decode_pod(msgspec.json.encode(bodies.stored(made)))), time.monotonic())
    for number in range(OVER):
        seen = GroupSeen(podgroups.KINDS[0].source, GroupKey("default", f"over-{number}"), Declaration(source="bench"))
        fleet.engine.step(seen, time.monotonic())
    fleet.engine.step(PodsListed(), time.monotonic())
    for _ in range(20):
        fleet.engine.step(Tick(), time.monotonic())


def _pages(nodes: int, pods: int) -> dict[str, float]:
    """What the longest piece of each page takes of the processor, in s: the least of some rounds, piece by piece."""
    fleet = Fleet(nodes, pods)
    _gang_of(fleet)
    metrics = Metrics(fleet.engine.counters)
    garbage = Garbage(metrics.steps)
    core = Core(fleet.engine, metrics, lambda _: None)
    told = Status(core, Health(time.monotonic, ""), Traffic(metrics.steps), open_allocations=True)
    garbage.settle()
    return {path: max(map(min, zip_longest(*_rounds(told, path, garbage), fillvalue=math.inf))) for path in EVERY_PAGE}


def _rounds(told: Status, path: str, garbage: Garbage) -> Iterator[list[float]]:
    name, _, query = path.partition("?")
    page = told.page(Request(name, query, "127.0.0.1", "", "127.0.0.1", ""), loopback_only)
    assert page is not None
    made = page.work if isinstance(page, Page) else partial(page.work, msgspec.json.encode(WHAT_IF))
    for _ in range(ROUNDS):
        work, took, ended = made(), list[float](), False
        while not ended:
            began = time.thread_time()
            try:
                ended = next(work, None) is None
            except Refusal:
                ended = True
            took.append(time.thread_time() - began)
            garbage.look()
        yield took


async def _answer(reader: asyncio.StreamReader) -> bytes:
    """Read an answer; its head."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length"))
    await reader.readexactly(int(length.partition(b":")[2]))
    return head


async def _crowd(port: int) -> None:
    """Ask until killed."""
    answers = 0

    async def asker(path: str) -> None:
        nonlocal answers
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                with contextlib.closing(writer):
                    while True:
                        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                        head = await _answer(reader)
                        answers += head.startswith(b"HTTP/1.1 200")
            await asyncio.sleep(0.05)

    askers = [asyncio.create_task(asker(PATHS[number % len(PATHS)])) for number in range(CROWD)]
    await asyncio.to_thread(sys.stdin.readline)
    print(answers, flush=True)
    for asking in askers:
        asking.cancel()
    await asyncio.wait(askers)


@contextlib.contextmanager
def _child(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.bench.questions", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _told(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def _asked(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return _told(process)


async def _filters(port: int, question: bytes) -> list[float]:
    """Seconds that each filter took, on one connection as kube-scheduler keeps it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    took = []
    for _ in range(FILTERS):
        began = time.perf_counter()
        writer.write(b"POST /scheduler/filter HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(question) + question)
        await _answer(reader)
        took.append(time.perf_counter() - began)
        await asyncio.sleep(PAUSE_S)
    writer.close()
    return took


def _measure(nodes: int, pods: int) -> list[Figure]:
    with _child("serve", f"{nodes}", f"{pods}") as server:
        known = json.loads(_told(server))
        question = msgspec.json.encode(known["question"])
        alone = asyncio.run(_filters(known["verbs"], question))
        with _child("crowd", f"{known['status']}") as crowd:
            time.sleep(1)
            beside = asyncio.run(_filters(known["verbs"], question))
            turns = json.loads(_asked(server))
            answers = int(_asked(crowd))
    if not answers:
        raise RuntimeError("expected the crowd to get answers, it got none")
    label = f"{CROWD} askers of everything, {nodes:,} nodes, {pods:,} pods"
    lasted = sum(beside) + FILTERS * PAUSE_S + TURNING_S
    more = percentile(beside, 0.5) - percentile(alone, 0.5)
    return [
        Figure(f"{label}: longest turn of {len(turns):,}, of the processor", 1000 * max(turns), "ms", mark=5.0),
        Figure(f"{label}: p99.9 of turns", 1000 * percentile(turns, 0.999), "ms"),
        Figure(f"{label}: filter's p50 pays", 1000 * more, "ms"),
        Figure(f"{label}: filter's p99 pays", 1000 * (percentile(beside, 0.99) - percentile(alone, 0.99)), "ms"),
        Figure(f"{label}: answers a second", answers / lasted, "/s", better="more"),
    ]


def run() -> list[Figure]:
    """500 and 5,000 nodes."""
    nodes, pods = SIZES[-1]
    with _child("pages", f"{nodes}", f"{pods}") as measured:
        longest: dict[str, float] = json.loads(_told(measured))
    label = f"{nodes:,} nodes, {pods:,} pods, a gang of {LARGEST_GANG:,}: longest piece of"
    pieces = [Figure(f"{label} {path}, of the processor", 1000 * s, "ms", mark=5.0) for path, s in longest.items()]
    return [*(figure for size in SIZES for figure in _measure(*size)), *pieces]


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    match sys.argv[1:]:
        case ["pages", *size]:
            print(json.dumps(_pages(*map(int, size))), flush=True)
        case ["serve", *size]:
            uvloop.run(_serve(*map(int, size)))
        case ["crowd", port]:
            uvloop.run(_crowd(int(port)))
