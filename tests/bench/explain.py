"""What `explain pod` takes at 5,000 nodes with 10,000 pending pods, in CPU time of the extender's page."""

from __future__ import annotations

import gc
import time

import msgspec

from extender.engine.types.events import PodSeen
from extender.server import explain
from protos.contract.objects import decode_pod
from tests.bench import bodies
from tests.bench.fleet import MEM, Fleet
from tests.bench.report import Figure, percentile

NODES, PODS, PENDING, EXPLAINED = 5_000, 20_000, 10_000, 200
ASKED, SIZES = 100, (70, 79)
MARK_MS = 50.0


def run() -> list[Figure]:
    """Times of whole answers, and of their longest pieces, between which kube-scheduler is answered."""
    fleet = Fleet(NODES, PODS)
    engine, now = fleet.engine, time.monotonic()
    for number in range(PENDING):
        limits = {MEM: SIZES[number % len(SIZES)]}
        pod = decode_pod(msgspec.json.encode(bodies.stored(bodies.pod(f"pending-{number:05}", limits))))
        engine.step(PodSeen(pod), now)
        if number % (PENDING // EXPLAINED) == 0:
            names = fleet.names[:ASKED]
            while engine.prepare(pod, names, now):
                pass
            engine.filter(pod, names, now)
        engine.effects()
    gc.collect()
    gc.freeze()
    pieces = [_explained(fleet, number, now) for number in range(0, PENDING, PENDING // EXPLAINED)]
    whole, longest = [1000 * sum(each) for each in pieces], [1000 * max(each) for each in pieces]
    label = f"explain pod, {NODES:,} nodes, {PENDING:,} pending pods"
    return [
        Figure(f"{label}: p50", percentile(whole, 0.5), "ms"),
        Figure(f"{label}: p99", percentile(whole, 0.99), "ms", mark=MARK_MS),
        Figure(f"{label}: p99 of the longest piece", percentile(longest, 0.99), "ms"),
    ]


def _explained(fleet: Fleet, number: int, now: float) -> list[float]:
    """Seconds of CPU of each piece of one answer."""
    times, last = [], time.thread_time()
    for _ in explain.pod(fleet.engine, "default", f"pending-{number:05}", now):
        times.append(time.thread_time() - last)
        last = time.thread_time()
    return times
