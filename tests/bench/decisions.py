"""filter + prioritize in the process: from the request's bytes to the answer's, with pod updates flowing in between.

The cluster: N nodes of 8 GPUs with 79 units, 20,000 pods of mixed asks on it. Before each decision the pod updates that
200/s bring meanwhile are taken in, from their JSON; every tenth of them ends a pod and so changes a node.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator

import msgspec

from extender.engine.effects import BindDone, NodeSeen, Place, PodGone, PodSeen
from extender.engine.engine import Engine
from extender.engine.settings import Settings
from extender.metrics import Metrics
from extender.server.binds import Binds
from extender.server.core import Core
from extender.server.verbs import Verbs
from extender.wire import shapes
from protos.contract.objects import Pod, decode_pod
from tests.bench.report import Figure, percentile
from tests.builders import a_node, a_pod, a_ref

ASKS = (
    {"mem": 1}, {"mem": 2}, {"mem": 4}, {"mem": 8}, {"mem": 2, "slices": 5}, {"slices": 3},
    {"mem": 10}, {"mem": 20}, {"mem": 40}, {"slices": 50}, {"whole": 1}, {"whole": 2},
)  # fmt: skip
PODS = 20_000
DECISIONS = 2_000


class _Cluster:
    """An engine with a filled cluster behind the verbs, and the world's pods as JSON."""

    def __init__(self, nodes: int) -> None:
        self.rng = random.Random(42)
        self.names = [f"node-{i:05}" for i in range(nodes)]
        self.engine = Engine(Settings())
        self.now = 0.0
        for name in self.names:
            self.engine.step(NodeSeen(a_node(name, *[79] * 8)), 0.0)
        self.bound: list[tuple[str, bytes]] = []
        small = ASKS[:6] if nodes < 1000 else ASKS
        for i in range(PODS):
            self.place(a_pod(f"p{i}", **self.rng.choice(small)))  # type: ignore[arg-type]

    def place(self, pod: Pod) -> None:
        self.now += 0.001
        found = self.engine.filter(pod, self.names, self.now).nodes
        if not found:
            return
        answer = self.engine.bind(a_ref(pod), found[0], self.now)
        assert isinstance(answer, Place)
        self.engine.step(BindDone(pod.metadata.uid, "bound"), self.now)
        body = msgspec.to_builtins(pod, builtin_types=(msgspec.Raw,))
        for raw in ("affinity", "tolerations", "topologySpreadConstraints"):
            body["spec"].pop(raw)
        body["metadata"].pop("managedFields")
        body["metadata"]["annotations"] = dict(answer.annotations)
        body["spec"]["nodeName"] = answer.node
        body["status"]["phase"] = "Running"
        self.bound.append((pod.metadata.uid, msgspec.json.encode(body)))

    def updates(self) -> Iterator[None]:
        """Pod updates as the watch brings them, one at each step."""
        while True:
            i = self.rng.randrange(len(self.bound))
            uid, body = self.bound[i]
            if self.rng.random() < 0.1 and len(self.bound) > PODS // 2:
                self.bound[i] = self.bound[-1]
                self.bound.pop()
                self.engine.step(PodGone(uid), self.now)
            else:
                self.engine.step(PodSeen(decode_pod(body)), self.now)
            yield


async def _measure(nodes: int) -> list[float]:
    cluster = _Cluster(nodes)
    core = Core(cluster.engine, Metrics(cluster.engine.counters), lambda _: None)
    seconds = []
    async with asyncio.TaskGroup() as tasks:
        verbs = Verbs(core, Binds(core, None, tasks))  # type: ignore[arg-type]  # no Binding is written here
        updates, owed = cluster.updates(), 0.0
        for i in range(DECISIONS):
            pod = a_pod(f"new{i}", **cluster.rng.choice(ASKS))  # type: ignore[arg-type]
            body = _request(pod, cluster.names)
            began = time.perf_counter()
            answer = msgspec.json.decode((await verbs.filter(body))[2])
            if names := answer.get("NodeNames"):
                again = _request(pod, names)
                await verbs.prioritize(again)
            took = time.perf_counter() - began
            seconds.append(took)
            owed += max(took, 0.005) * 200
            while owed >= 1:
                owed -= 1
                next(updates)
            if names:
                cluster.engine.bind(a_ref(pod), names[0], core.clock())
                cluster.engine.step(PodGone(pod.metadata.uid), core.clock())
    return seconds


def _request(pod: Pod, names: list[str]) -> bytes:
    body = {"metadata": {"name": pod.metadata.name, "namespace": "default", "uid": pod.metadata.uid}}
    containers = [
        {"name": c.name, "resources": {"limits": c.resources.limits if c.resources else {}}}
        for c in pod.spec.containers
    ]
    return shapes.encode({"Pod": {**body, "spec": {"containers": containers}}, "Nodes": None, "NodeNames": names})


def run() -> list[Figure]:
    """p50 and p99 at 100, 1,000 and 5,000 nodes."""
    figures = []
    for nodes in (100, 1_000, 5_000):
        milliseconds = [1000 * value for value in asyncio.run(_measure(nodes))]
        label = f"filter+prioritize, {nodes:,} nodes × 8 GPUs, {PODS:,} pods, 200 updates/s"
        figures.append(Figure(f"{label}: p50", percentile(milliseconds, 0.5), "ms"))
        figures.append(Figure(f"{label}: p99", percentile(milliseconds, 0.99), "ms", mark=5.0))
    return figures
