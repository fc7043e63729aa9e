"""Who goes for a gang of 500 on a full cluster: decided, and the first evictions ordered, in CPU time.

On 4,000 and on 40,000 GPUs as many other pods are, one each, or in gangs of 32; of those as few go as the gang needs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from extender.engine.cycle.engine import Engine
from extender.engine.types.effects import Evict, SetAnnotation
from extender.engine.types.events import PodSeen, PodsListed, Tick
from extender.engine.types.settings import Settings
from extender.server.garbage import Garbage
from extender.steps import Steps
from protos.contract import allocation, codec, names
from protos.contract.allocation import Allocation, Share
from protos.contract.objects import decode_pod
from tests.bench import bodies
from tests.bench.bodies import Json
from tests.bench.fleet import WHOLE, Fleet
from tests.bench.gang import gang
from tests.bench.report import Figure

NODES, LARGE, MEMBERS, OTHERS = 500, 5_000, 500, 32
OWNED: Json = {"f:metadata": {"f:annotations": {f"f:{names.RESERVATION}": {}}}}
WRITTEN = {"manager": names.EXTENDER, "operation": "Update", "subresource": "status", "fieldsV1": OWNED}
SECONDS = 30.0
"""That the decision may take at most, by the engine's clock."""


def run() -> list[Figure]:
    """Single pods in the way, then gangs."""
    sizes = {"single pods": 1, f"gangs of {OTHERS}": OTHERS}
    return [each for nodes in (NODES, LARGE) for told, size in sizes.items() for each in _measure(told, nodes, size)]


def _measure(told: str, nodes: int, size: int) -> list[Figure]:
    engine = _filled(nodes, size)
    waiting = [_prior(bodies.stored(pod)) for pod in gang("urgent", MEMBERS, {WHOLE: 1})]
    for pod in waiting:
        _see(engine, pod)
    engine.step(PodsListed(), time.monotonic())
    while engine.run_slice(time.monotonic()):
        engine.effects()
    Garbage(Steps()).settle()
    slices = list(_decided(engine, {pod["metadata"]["name"]: pod for pod in waiting}))
    label = f"who goes for a gang of {MEMBERS} on {nodes * bodies.GPUS:,} GPUs full of {told}"
    return [
        Figure(label, sum(slices), "s", mark=5.0),
        Figure(f"{label}: longest of {len(slices)} slices", 1000 * max(slices), "ms", mark=5.0),
    ]


def in_the_way(nodes: int, size: int) -> Iterator[tuple[Json, str, str]]:
    """A pod for each GPU, in gangs of `size`: as it is made, on which node, and with which allocation."""
    for number in range(nodes * bodies.GPUS):
        made = bodies.pod(f"low-{number:05}", {WHOLE: 1})
        if size > 1:
            said = {names.GROUP: f"low-{number // size:03}", names.MIN_MEMBER: str(size)}
            made["metadata"]["annotations"] |= said
        node = f"node-{number // bodies.GPUS:05}"
        gpu = bodies.gpus_of(node).gpus[number % bodies.GPUS]
        share = Share(gpu.uuid, gpu.index, gpu.mem, 100, whole=True)
        yield made, node, allocation.encode(Allocation(codec.VERSION, 1024, 100, {"main": (share,)}))


def _filled(nodes: int, size: int) -> Engine:
    # no backfill: it would find out when the same gang starts if nobody goes, which is not what is measured here
    engine = Fleet(nodes, 0, Settings(min_runtime_s=0.0, backfill_delay_s=0.0)).engine
    for made, node, given in in_the_way(nodes, size):
        _see(engine, bodies.running(bodies.stored(made), node, {names.ALLOCATION: given}))
    return engine


def _prior(pod: Json) -> Json:
    return {**pod, "spec": {**pod["spec"], "priority": 1000}}


def _see(engine: Engine, pod: Json) -> None:
    engine.step(PodSeen(decode_pod(msgspec.json.encode(pod))), time.monotonic())


def _decided(engine: Engine, waiting: dict[str, Json]) -> Iterator[float]:
    """CPU seconds of each slice, until as many evictions are ordered as are ordered at once."""
    now, ordered = time.monotonic(), 0
    last = now + SECONDS
    effects: Sequence[Any] = ()
    while not ordered:
        if now > last:
            raise RuntimeError(f"expected evictions within {SECONDS:g} s")
        now += 0.2
        effects = yield from _step(engine, now)
        for effect in effects:
            if isinstance(effect, SetAnnotation) and effect.key == names.RESERVATION:
                metadata = waiting[effect.pod.name]["metadata"]
                metadata.setdefault("annotations", {})[effect.key] = effect.value
                metadata["managedFields"] = [WRITTEN]
                began = time.thread_time()
                engine.step(PodSeen(decode_pod(msgspec.json.encode(waiting[effect.pod.name]))), now)
                yield time.thread_time() - began
        ordered += sum(isinstance(effect, Evict) for effect in effects)


def _step(engine: Engine, now: float) -> Any:
    began, effects = time.thread_time(), [*engine.step(Tick(), now)]
    yield time.thread_time() - began
    more = True
    while more:
        began = time.thread_time()
        more = engine.run_slice(now)
        effects += engine.effects()
        yield time.thread_time() - began
    return effects
