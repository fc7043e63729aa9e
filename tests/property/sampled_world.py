"""A large cluster of which kube-scheduler checks a part for each pod, in random lives.

kube-scheduler filters the nominated node first, else it stops after so many nodes that pass. Its own filters refuse
some nodes for some pods, for reasons that the extender does not see. What the extender writes arrives late, or never.
"""

from __future__ import annotations

import random
from collections import Counter

from extender.engine.types.effects import Deny, Effect, RemoveNomination, Requeue
from extender.engine.types.look import LEAST
from protos.contract import allocation, choose, names
from protos.contract.objects import Pod
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import GangStory, a_member
from tests.unit.engine.test_sampled import BY_US

NODES, GPU_NODES, UNITS = LEAST + 40, 10, 10
REFUSED = 3
"""Nodes with GPUs that kube-scheduler refuses for one pod, at most."""
LEAP_S = 600.0
"""Seconds that pass at once while nothing goes on: backfill reservations end."""


class SampledWorld(GangStory):
    """What the API server holds, kube-scheduler's queue, and writes on their way."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.closed: dict[str, frozenset[str]] = {}
        """The nodes that kube-scheduler's own filters refuse, by pod."""
        self.queue: dict[str, None] = {}
        """The pods that kube-scheduler will take."""
        self.writes: list[Requeue | RemoveNomination] = []
        self.gangs: dict[str, list[str]] = {}
        self.torn: set[str] = set()
        """Gangs of which Bindings were lost. If nobody kept the room, the others go on without those members."""
        self._turn = self._made = 0
        every = [f"n{i:03}" for i in range(NODES)]
        self.with_gpus = sorted(self.rng.sample(every, GPU_NODES))
        gpus = {node: [UNITS] * self.rng.randint(1, 2) for node in self.with_gpus}
        super().__init__(*(a_node(node, *gpus.get(node, [])) for node in every))

    def carry(self, effects: list[Effect]) -> list[Effect]:
        for effect in effects:
            if isinstance(effect, Requeue | RemoveNomination):
                self.writes.append(effect)
            elif isinstance(effect, Deny):
                self.queue[effect.pod.name] = None
        return super().carry(effects)

    # -- what happens

    def deed(self) -> None:
        """One thing that may happen."""
        deeds = {
            self.comes: 9, self.gang_comes: 1, self.cycle: 20, self.write: 16, self.lands: 14, self.ends: 4,
            self.is_deleted: 1, self.time_passes: 6, self.all_are_taken_again: 1, self.dies: 1,
        }  # fmt: skip
        (deed,) = self.rng.choices(list(deeds), list(deeds.values()))
        deed()
        self.check()

    def comes(self) -> None:
        """A single pod."""
        mem = self.rng.choice((0, 2, 3, 5, 8, UNITS))
        annotations = {names.GPU_COUNT: "2"} if mem in (2, 8) and self.rng.random() < 0.3 else {}
        priority = {"priority": self.rng.choice((0, 0, 10))}
        self._create(a_pod(self._name(), mem=mem, whole=int(not mem), annotations=annotations, spec=priority))

    def gang_comes(self) -> None:
        size, gang = self.rng.randint(2, 3), f"g{self._made}"
        named = [self._name() for _ in range(size)]
        self.gangs[gang] = named
        self._create(*(a_member(name, gang=gang, least=size, owner="", whole=1) for name in named))

    def _name(self) -> str:
        self._made += 1
        return f"p{self._made:03}"

    def _create(self, *pods: Pod) -> None:
        refused = self.rng.sample(self.with_gpus, self.rng.choice((0, 0, self.rng.randint(1, REFUSED))))
        for pod in pods:
            self.closed[pod.metadata.name] = frozenset(refused)
            self.queue[pod.metadata.name] = None
        self.create(*pods)

    def cycle(self) -> None:
        """kube-scheduler takes the next pod."""
        name = next(iter(self.queue), "")
        self.queue.pop(name, None)
        if name not in self.pods or not self._pending(name):
            return
        nominated, closed = self.pods[name].status.nominated_node_name or "", self.closed[name]
        offered: tuple[str, ...] = ()
        if nominated and nominated not in closed:
            offered = self.ask(name, [nominated]).nodes
        if not offered:
            offered = self.ask(name, self._sample(closed)).nodes
        if offered and self.bind(name, offered[0]) not in ("flying", "held", "bound"):
            self.queue[name] = None

    def _sample(self, closed: frozenset[str]) -> list[str]:
        every = sorted(self.nodes)
        turned = every[self._turn :] + every[: self._turn]
        self._turn = self.rng.randrange(NODES)
        return [node for node in turned if node not in closed][:LEAST]

    def _pending(self, name: str) -> bool:
        return not self.pods[name].spec.node_name and name not in self.flying and name not in self.held

    def write(self) -> None:
        """The first write of the extender arrives."""
        if not self.writes:
            return
        effect = self.writes.pop(0)
        pod = self.pods.get(effect.pod.name)
        if pod is None or pod.spec.node_name:
            return
        nominated: dict[str, str] = {}
        if isinstance(effect, RemoveNomination):
            nominated = {"nominated_node_name": ""}
        elif effect.node and effect.nominate:
            nominated = {"nominated_node_name": effect.node}
        woken = {**pod.metadata.annotations, names.WAKE: f"{self.now}"}
        self.change(effect.pod.name, annotations=woken, managed=BY_US, **nominated)
        if isinstance(effect, Requeue) and self._pending(effect.pod.name):
            self.queue[effect.pod.name] = None

    def lands(self) -> None:
        if self.flying:
            self.land(self.rng.choice(sorted(self.flying)))

    def ends(self) -> None:
        """A bound pod goes; of a gang all members."""
        bound = sorted(name for name, pod in self.pods.items() if pod.spec.node_name)
        if bound:
            self._go(self.rng.choice(bound))

    def is_deleted(self) -> None:
        waiting = sorted(name for name in self.pods if self._pending(name))
        if waiting:
            self._go(self.rng.choice(waiting))

    def _go(self, name: str) -> None:
        of = next((of for of in self.gangs.values() if name in of), [name])
        if any(other in self.flying or other in self.held for other in of):
            return
        self.delete(*of)

    def time_passes(self) -> None:
        self.later(self.rng.choice((0.3, 1.0, 3.0, 12.0, 20.0)))

    def all_are_taken_again(self) -> None:
        """As kube-scheduler does every five minutes."""
        self.queue |= dict.fromkeys(name for name in self.pods if self._pending(name))

    def dies(self) -> None:
        """Another process leads. Bindings and writes on their way are lost; kube-scheduler tries such pods again."""
        lost = [*self.flying, *self.held]
        self.torn |= {gang for gang, of in self.gangs.items() if not self.flying.keys().isdisjoint(of)}
        self.writes.clear()
        self.restart()
        self.queue |= dict.fromkeys(lost)
        self.all_are_taken_again()  # the new process does not know why they were refused

    # -- what must hold

    def check(self) -> None:
        """No GPU has more than it can hold, by the annotations of the bound pods."""
        used: Counter[tuple[str, int]] = Counter()
        for pod in self.pods.values():
            if pod.spec.node_name:
                given = allocation.decode(pod.metadata.annotations[names.ALLOCATION])
                assert given is not None
                for share in (share for shares in given.containers.values() for share in shares):
                    used[pod.spec.node_name, share.index] += UNITS if share.whole else share.mem
        assert all(amount <= UNITS for amount in used.values()), used

    def comes_to_rest(self) -> None:
        """Only what must happen still happens. Then each pod that fits has a node, and gangs have all or none."""
        quiet = leaps = 0
        for _ in range(2_000):
            busy = bool(self.queue or self.writes or self.flying)
            quiet = 0 if busy else quiet + 1
            while self.writes:
                self.write()
            for _ in range(len(self.queue)):
                self.cycle()
            self.land()
            self.check()
            self.later(1.0)
            if quiet > 70:  # longer than a pod is not nominated again
                if leaps == 2:
                    break
                leaps, quiet = leaps + 1, 0
                self.now += LEAP_S
        assert leaps == 2, "there is always something going on"
        assert not [pod for pod in self.engine.pods.values() if pod.state == "held"]
        for gang, of in self.gangs.items():
            bound = [name for name in of if name in self.pods and self.pods[name].spec.node_name]
            assert len(bound) in (0, len(of)) or gang in self.torn, of
        for name in set(self.pods) - {name for of in self.gangs.values() for name in of}:
            assert self.pods[name].spec.node_name or not self._fits(name), f"{name} waits, but fits"

    def _fits(self, name: str) -> bool:
        ask = self.engine.pods[self.pods[name].metadata.uid].ask
        assert ask is not None
        books = {node: self.engine.nodes[node].books for node in self.with_gpus if node not in self.closed[name]}
        return any(choose.choose(ask, found) for found in books.values() if found is not None)
