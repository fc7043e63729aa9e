"""An engine that is told mutated objects: nothing raises, nothing is stuck, and the books stay sound.

A world is made of a seed and a number: one that fails is found again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import Any

from extender.cluster import kinds
from extender.cluster.kinds import WatchedKind
from extender.engine.types.effects import Deny, Effect, Evict, Open
from extender.engine.types.events import (
    BudgetGone,
    BudgetSeen,
    ClassGone,
    ClassSeen,
    Event,
    GroupGone,
    GroupSeen,
    Leading,
    NodeGone,
    NodeSeen,
    PodGone,
    PodSeen,
    QueueGone,
    QueueSeen,
    ScalerGone,
    ScalerSeen,
    ScalersServed,
)
from gangfilter import podgroups
from gangfilter.podgroups import PodGroupError
from protos.contract import budget, gpu_class, names, namespace, objects, priority, queue_sources, training
from protos.contract.codec import BAD_JSON
from protos.contract.objects import Pod
from protos.kube.changes import Ref
from tests.fuzz import corpus
from tests.fuzz.mutate import WHOLE, WORDS, Mutator
from tests.unit.engine.preemption_story import REFUSED, PreemptionStory

LIFE = 60
"""Inputs of one world."""
TOLD, MUTATED = 0.6, 0.7
"""How many inputs are objects of any kind, and how many of those are mutated."""
MOST_PODS = 40
SHORT = tuple(number for number in WHOLE if len(number) < 100)
Told = Callable[[bytes], Event]


REF = Ref("default", "n1", "u")
UNHEALTHY = Ref("kube-system", f"{names.UNHEALTHY_CONFIGMAP_PREFIX}n1", "")
OPTIONAL = kinds.optional(lambda *_: None)


def _told(kind: WatchedKind, ref: Ref = REF) -> Told:
    def told(data: bytes) -> Event:
        event = kind.seen(ref, kind.decode(data))
        assert event is not None
        return event

    return told


def _rows(kinds: Collection[str], samples: Sequence[str]) -> list[tuple[Told, Sequence[str]]]:
    """The optional kinds of these names."""
    return [(_told(kind), samples) for kind in OPTIONAL if kind.kind in kinds]


KINDS: tuple[tuple[int, Sequence[tuple[Told, Sequence[str]]]], ...] = (
    (40, [(_told(kinds.PODS), corpus.PODS)]),
    (15, [(_told(kinds.NODES), corpus.NODES)]),
    (10, _rows({kind.kind for kind in podgroups.KINDS}, corpus.GROUPS)),
    (6, _rows({kind.kind for kind in queue_sources.SOURCES}, corpus.QUEUES)),
    (4, _rows({gpu_class.KIND}, corpus.CLASSES)),
    (3, _rows({budget.KIND}, corpus.BUDGETS)),
    (2, _rows({priority.KIND}, corpus.PRIORITIES)),
    (2, _rows({namespace.KIND}, corpus.NAMESPACES)),
    (4, _rows(training.PLURALS, corpus.SCALERS)),
    (1, [(_told(kinds.unhealthy_gpus(lambda *_: None), UNHEALTHY), corpus.CONFIG_MAPS)]),
)  # fmt: skip


class Life(PreemptionStory):
    """A cluster in which pods come and go; what is asked for is done, for whatever objects there are."""

    def carry(self, effects: list[Effect]) -> list[Effect]:
        self.done += effects
        for effect in effects:
            if isinstance(effect, Open | Deny):
                self.held.discard(effect.pod.name)
            if isinstance(effect, Open) and effect.pod.name in self.pods:
                self.flying[effect.pod.name] = effect.place
            text = str(getattr(effect, "reason", ""))
            assert len(text) < LONGEST, f"{len(text)} characters: {text[:200]}"
        return effects

    def put(self, pod: Pod) -> None:
        """The pod is there, or another one now; one of the same name is gone."""
        former = self.pods.get(pod.metadata.name)
        if former is not None and former.metadata.uid != pod.metadata.uid:
            self.drop(pod.metadata.name)
        self.pods[pod.metadata.name] = pod
        self.show(pod.metadata.name)

    def drop(self, name: str) -> None:
        """The pod is gone."""
        self.flying.pop(name, None)
        self.held.discard(name)
        self.tell(PodGone(self.pods.pop(name).metadata.uid))


class World:
    """One life of an engine."""

    def __init__(self, seed: int, number: int) -> None:
        self.random = random = Random(f"{seed} world {number}")
        self.mutator, self.made, self.data = Mutator(random), 0, b""
        nodes = [objects.decode_node(text.encode()) for text in corpus.NODES]
        self.life = Life(
            *nodes, gpushare=random.random() < 0.2, min_runtime_s=1.0, backfill_delay_s=5.0, scale_out_delay_s=5.0,
            resource_mem=names.ALIYUN_MEM if random.random() < 0.1 else "",
        )  # fmt: skip
        self.engine = self.life.engine
        self.life.tell(Leading(yes=True), ScalersServed("ScaleIn", yes=True), ScalersServed("ScaleOut", yes=True))

    def input(self) -> bool:
        """Tell one object, and let the cluster go on; whether it could be read."""
        read = self._tell() if self.random.random() < TOLD else self._create()
        self._go_on()
        return read

    def sound(self) -> None:
        """The books are."""
        assert self.engine.check() == []

    # -- what is told

    def _tell(self) -> bool:
        """An object of any kind."""
        _, kinds = self.random.choices(KINDS, [share for share, _ in KINDS])[0]
        told, seeds = self.random.choice(kinds)
        self.data = self._mutated(self.random.choice(seeds), seeds)
        try:
            event = told(self.data)
        except (*BAD_JSON, PodGroupError):
            return False
        if isinstance(event, PodSeen):
            self.life.put(event.pod)
        else:
            self.life.tell(event)
            if isinstance(event, NodeSeen):
                self.life.nodes[event.node.metadata.name] = event.node
            if self.random.random() < 0.1 and (gone := _gone(event)) is not None:
                self.life.tell(gone)
        return True

    def _mutated(self, text: str, seeds: Sequence[str]) -> bytes:
        return self.mutator.changed(text, seeds) if self.random.random() < MUTATED else text.encode()

    def _create(self) -> bool:
        """A pod or a gang that are as they should be, but for one value."""
        random, self.made = self.random, self.made + 1
        gang = random.random() < 0.5
        size = random.choice((1, 2, 3)) if gang else 1
        said = {names.GROUP: f"gang-{self.made}", names.MIN_MEMBER: str(size)} if gang else {}
        spec: dict[str, Any] = {"priority": random.choice((0, 5, 1000)), "schedulerName": names.SCHEDULER}
        odd = random.random()
        if odd < 0.4:
            key = random.choice((*corpus.SELECTING, *corpus.GANG, *corpus.OTHERS, *corpus.GPUSHARE, names.CHECKPOINT))
            said[key] = random.choice(WORDS)
        elif odd < 0.6:
            number = max(-(2**31), min(2**31 - 1, int(random.choice(SHORT))))
            spec[random.choice(("terminationGracePeriodSeconds", "priority"))] = number
        whole = random.choice((0, 0, 1, 2, int(random.choice(SHORT)) if odd > 0.9 else 1))
        limits = {names.WHOLE_GPU: whole} if whole else {names.GPU_MEM: random.choice((4, 12, 16))}
        for member in range(size):
            body = corpus.pod(f"made-{self.made}-{member}", said, None, corpus.container(**limits))
            body["spec"] = {"containers": body["spec"]["containers"], **spec}
            self.data = json.dumps(body).encode()
            self.life.put(objects.decode_pod(self.data))
        return True

    # -- what goes on

    def _go_on(self) -> None:
        """kube-scheduler and the kubelets do their work, and time passes."""
        life, random = self.life, self.random
        waiting = [name for name, pod in life.pods.items() if not pod.spec.node_name]
        for name in random.sample(waiting, min(6, len(waiting))):
            self._schedule(name)
        if random.random() < 0.9:
            life.land()
        else:
            life.fail()
        life.annotate()
        for effect in life.done:
            if isinstance(effect, Evict) and effect.pod.name in life.pods and random.random() < 0.7:
                life.drop(effect.pod.name)
        life.done.clear()
        life.written = 0
        for name in random.sample(list(life.pods), min(2, len(life.pods))):
            life.change(name, phase=random.choice(("Running", "Running", "Running", "Succeeded", "Failed")))
        if len(life.pods) > MOST_PODS or random.random() < 0.1:
            for name in random.sample(list(life.pods), len(life.pods) // 4):
                life.drop(name)
        life.later(random.choice((0.01, 0.2, 1.5, 12.0)))

    def _schedule(self, name: str) -> None:
        life, engine = self.life, self.engine
        if life.pods[name].spec.node_name or name in life.held or name in life.flying:
            return
        verdict, pod = life.ask(name), life.pods[name]
        engine.prioritize(pod, sorted(life.nodes))
        engine.preempt(pod, {"n1": ["uid-p4"]})
        state = engine.pods.get(pod.metadata.uid)
        told = engine.explain(state) if state is not None else None
        assert told is None or len(str(told)) < LONGEST, f"{len(str(told))} characters: {str(told)[:200]}"
        if verdict.nodes:
            life.bind(name, verdict.nodes[0])
        else:
            life.change(name, conditions=(REFUSED,))


LONGEST = 20_000
"""Characters of a sentence: of several values each is cut."""


def _gone(event: Event) -> Event | None:
    """The object of this event is gone."""
    match event:
        case NodeSeen(node):
            return NodeGone(node.metadata.name)
        case GroupSeen(kind, key):
            return GroupGone(kind, key)
        case QueueSeen(found):
            return QueueGone(found.source, found.name)
        case ClassSeen(found):
            return ClassGone(found.name)
        case BudgetSeen(found):
            return BudgetGone(found.metadata.namespace, found.metadata.name)
        case ScalerSeen(found):
            return ScalerGone(found.kind, found.namespace, found.name)
        case _:
            return None
