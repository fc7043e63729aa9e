"""A cluster for a week: an API server that tells of nodes and pods, kube-scheduler's questions, and what people do.

Only what the extender sees of them is there, and as little as that takes: objects are written when they are told.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Self

import msgspec

from protos.contract import inventory, names
from protos.kube import paths
from tests.bench import bodies
from tests.bench.bodies import Json

QUEUES, SHAPES, PINS = 200, 500, 2_000
_MADE = "2026-01-01T00:00:00Z"
_MAKER = [{"manager": "kube-controller-manager", "fieldsV1": {"f:spec": {"f:containers": {}}}}]
"""Who wrote what of a pod; a Binding's annotations leave no trace there."""


class Pod(msgspec.Struct):
    """One pod, without what all pods have in common."""

    name: str
    mem: int
    whole: int
    cpu: int
    gang: str = ""
    members: int = 1
    queue: str = ""
    pin: str = ""
    node: str = ""
    phase: str = "Pending"
    annotations: dict[str, str] = {}

    @property
    def uid(self) -> str:
        return f"uid-{self.name}"

    def json(self, version: int) -> Json:
        """As the API server has it."""
        said = dict(self.annotations)
        said |= {names.QUEUE: self.queue} if self.queue else {}
        said |= {names.GROUP: self.gang, names.MIN_MEMBER: str(self.members)} if self.gang else {}
        said |= {names.GPU_UUID: self.pin} if self.pin else {}
        limits = {names.WHOLE_GPU: str(self.whole)} if self.whole else {names.GPU_MEM: str(self.mem)}
        requests = {"cpu": f"{self.cpu}m", "memory": "1Gi"}
        spec: Json = {
            "schedulerName": names.PROFILE,
            "containers": [{"name": "main", "resources": {"limits": limits, "requests": requests}}],
        }
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": _MADE}
        return {
            "metadata": {
                "name": self.name, "namespace": "default", "uid": self.uid, "resourceVersion": str(version),
                "annotations": said, "creationTimestamp": _MADE, "managedFields": _MAKER,
                "ownerReferences": [{"kind": "Job", "name": "job", "uid": "uid-job", "controller": True}],
            },
            "spec": {**spec, "nodeName": self.node} if self.node else spec,
            "status": {"phase": self.phase, "conditions": [scheduled] if self.node else []},
        }  # fmt: skip


class Server:
    """The API server, as far as two feeds read it: lists in pages, and watches that last until they are ended."""

    def __init__(self, nodes: int) -> None:
        self.nodes = dict.fromkeys((f"node-{i:05}" for i in range(nodes)), 0)
        """And how often each changed."""
        self.pods: dict[str, Pod] = {}
        self._version = 1
        self._news: dict[str, deque[bytes]] = {paths.nodes(): deque(), paths.pods(): deque()}
        self._stirred = {path: asyncio.Event() for path in self._news}

    def node(self, name: str) -> Json:
        changes = self.nodes[name]
        amounts = {"cpu": "192", "memory": "2113442652Ki", "pods": "250"}
        return {
            "metadata": {
                "name": name, "resourceVersion": str(self._version), "labels": {"example.com/seen": str(changes)},
                "annotations": {names.GPUS: inventory.encode(bodies.gpus_of(name))},
            },
            "spec": {"unschedulable": changes % 7 == 6},
            "status": {"capacity": amounts, "allocatable": amounts},
        }  # fmt: skip

    @property
    def mib(self) -> float:
        """What its pods take of this process."""
        of_pods = sum(map(sys.getsizeof, [*self.pods, *self.pods.values()]))
        return (sys.getsizeof(self.pods) + of_pods) / 2**20

    def tell(self, kind: str, path: str, made: Json) -> None:
        """Put a change on the watch."""
        self._version += 1
        made["metadata"]["resourceVersion"] = str(self._version)
        self._news[path].append(msgspec.json.encode({"type": kind, "object": made}) + b"\n")
        self._stirred[path].set()

    def end_watch(self, path: str) -> None:
        """Its versions are too old: whoever reads it has to list. What was not read is lost."""
        self._news[path].clear()
        status = {"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410, "message": "too old"}
        self._news[path].append(msgspec.json.encode({"type": "ERROR", "object": status}) + b"\n")
        self._stirred[path].set()

    def quiet(self) -> bool:
        """Whether all that was told was read."""
        return not any(self._news.values())

    # -- what a reflector asks

    async def fetch(self, path: str, decoder: Any, *, params: dict[str, str]) -> Any:
        start, limit = int(params.get("continue", "0")), int(params.get("limit", "500"))
        if start == 0 and limit > 1:
            self._news[path].clear()  # a list tells it all
        every = self.nodes if path == paths.nodes() else self.pods
        some = sorted(every)[start : start + limit]
        node = path == paths.nodes()
        every_item = (self.node(name) if node else self.pods[name].json(self._version) for name in some)
        items = [msgspec.Raw(msgspec.json.encode(item)) for item in every_item]
        more = {"continue": str(start + limit)} if start + limit < len(every) else {}
        await asyncio.sleep(0)
        return decoder.decode(
            msgspec.json.encode({"metadata": {"resourceVersion": str(self._version), **more}, "items": items})
        )

    @asynccontextmanager
    async def stream(self, path: str, **_: object) -> AsyncIterator[Chunks]:
        yield Chunks(self._news[path], self._stirred[path])


class Chunks:
    """What a watch tells, until its versions are too old or it is closed."""

    def __init__(self, news: deque[bytes], stirred: asyncio.Event) -> None:
        self._news, self._stirred, self._ended = news, stirred, False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not (self._news or self._ended):
            self._stirred.clear()
            await self._stirred.wait()
        if self._ended:
            raise StopAsyncIteration
        line = self._news.popleft()
        self._ended = b'"ERROR"' in line[:20]
        return line

    def close(self) -> None:
        self._ended = True
        self._stirred.set()


def arrivals(prefix: str, count: int, nodes: list[str], seed: int) -> Iterator[list[Pod]]:
    """Pods as they come, in all so many: alone or as gangs, of 500 shapes of which few are asked most of the time."""
    rng, made, pins = random.Random(seed), 0, 0
    asks = [(mem, 0) for mem in range(1, 41)] + [(0, whole) for whole in (1, 1, 2, 4, 8)]
    shapes = [(*asks[i % len(asks)], 1000 * (1 + i // len(asks))) for i in range(SHAPES)]
    weights = [1 / (1 + rank) for rank in range(SHAPES)]
    rng.shuffle(shapes)
    while made < count:
        mem, whole, cpu = rng.choices(shapes, weights)[0]
        queue = f"q{rng.randrange(QUEUES)}" if rng.random() < 0.5 else ""
        size = rng.choice((2, 4, 8)) if rng.random() < 0.05 else 1
        pin = ""
        if size == 1 and not whole and pins < PINS and rng.random() < 2 * PINS / count:
            pins += 1
            pin = bodies.gpus_of(rng.choice(nodes)).gpus[rng.randrange(bodies.GPUS)].uuid
        gang = f"{prefix}-{made:06}" if size > 1 or rng.random() < 0.1 else ""
        yield [
            Pod(f"{prefix}-{made + i:06}", mem, whole, cpu, gang=gang, members=size, queue=queue, pin=pin)
            for i in range(size)
        ]
        made += size
