"""A filled cluster: N nodes of 8 GPUs with 79 units each, and pods of mixed asks, placed on them by the engine."""

from __future__ import annotations

import random
import time

import msgspec

from extender.engine.cycle.engine import Engine
from extender.engine.types.effects import PostBinding
from extender.engine.types.events import BindDone, NodeSeen, PodSeen
from extender.engine.types.settings import Settings
from protos.contract import names
from protos.contract.objects import decode_node, decode_pod
from tests.bench import bodies
from tests.bench.bodies import Json, Limits
from tests.builders import a_ref

MEM, SLICE, WHOLE = names.GPU_MEM, names.GPU_SLICE, names.WHOLE_GPU
SMALL: tuple[Limits, ...] = ({MEM: 1}, {MEM: 2}, {MEM: 4}, {MEM: 6}, {MEM: 2, SLICE: 5}, {SLICE: 3})
LARGE: tuple[Limits, ...] = ({MEM: 10}, {MEM: 20}, {MEM: 40}, {SLICE: 50}, {WHOLE: 1}, {WHOLE: 2})
MIXED = SMALL + LARGE
SEED = 42
NODES_OF_RACK = 16
DEFAULTS = Settings()


class Fleet:
    """`engine` holds all of it; `bound` has the running pods as JSON."""

    def __init__(self, nodes: int, pods: int, settings: Settings = DEFAULTS) -> None:
        """Where 20 or more pods share each GPU, all of them are small."""
        self.rng = random.Random(SEED)
        self.names = [f"node-{i:05}" for i in range(nodes)]
        self.engine = Engine(settings, time.monotonic(), time.time() - time.monotonic())
        self.bound: list[Json] = []
        for i, name in enumerate(self.names):
            found = decode_node(msgspec.json.encode(bodies.node(name, f"rack-{i // NODES_OF_RACK:03}")))
            self.engine.step(NodeSeen(found), time.monotonic())
        asks = SMALL if pods >= 20 * bodies.GPUS * nodes else MIXED
        for i in range(pods):
            self.bound.append(self._run(bodies.pod(f"trainer-{i:06}", self.rng.choice(asks))))

    def _run(self, made: Json) -> Json:
        """Place one pod; it is an error if there is no room."""
        pending = bodies.stored(made)
        pod = decode_pod(msgspec.json.encode(pending))
        self.engine.step(PodSeen(pod), time.monotonic())
        best = self.engine.filter(pod, self.names, time.monotonic()).nodes[0]
        answer = self.engine.bind(a_ref(pod), best, time.monotonic())
        assert isinstance(answer, PostBinding), answer
        self.engine.step(BindDone(pod.metadata.uid, "bound"), time.monotonic())
        return bodies.running(pending, best, answer.annotations)
