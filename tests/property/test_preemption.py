"""Lives of small clusters in which pods and gangs of several priorities come, are evicted and come again.

Whoever is evicted is of lower priority than somebody who waits, or spare in an elastic gang and not of a higher one; no
half gang is left; nothing is kept for ever; and who is above all others runs in the end, if it fits into the cluster at
all.
"""

from __future__ import annotations

import random

import pytest

from extender.engine.types.effects import Evict
from gangfilter.members import Stage
from gangfilter.table import Phase
from protos.contract import names
from protos.contract.objects import Pod
from tests.builders import a_node
from tests.unit.engine.gang_story import members
from tests.unit.engine.preemption_story import PreemptionStory, a_single, urgent

STEPS = 60
PLACED = (Stage.POSTED, Stage.BOUND, Stage.SUCCEEDED)


class Life:
    """What happens, as it comes."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.world = PreemptionStory(*(a_node(f"n{i}", 10, 10) for i in range(3)), min_runtime_s=3.0)
        self.made = 0
        self.seen = 0
        self.dying: dict[str, int] = {}
        """Steps until an evicted pod is gone."""

    def step(self) -> None:
        world = self.world
        match self.draw.choice(["pod", "gang", "end", "time", "time", "time", "restart"]):
            case "pod" if len(world.pods) < 14:
                self._create([a_single(self._name("p"), self.draw.choice([4, 7, 10]), self.draw.choice([0, 5, 9]))])
            case "gang" if len(world.pods) < 14:
                count, priority, name = self.draw.randint(2, 4), self.draw.choice([0, 5, 9]), self._name("g")
                least = self.draw.randint(2, count)
                said = {names.ELASTIC: self.draw.choice(["true", "false"])}
                made = members(count, gang=name, prefix=f"{name}-", mem=0, whole=1, least=least, annotations=said)
                self._create([urgent(pod, priority) for pod in made])
            case "end" if world.pods:
                self._end(self.draw.choice(sorted(world.pods)))
            case "restart" if self.draw.random() < 0.2:
                world.land()
                world.restart()
        self.pass_time()

    def pass_time(self) -> None:
        """One second passes."""
        world = self.world
        self.world.schedule()
        world.later(1.0)
        world.annotate()
        for effect in world.done[self.seen :]:
            if isinstance(effect, Evict) and effect.pod.name in world.pods:
                self._evicted(effect)
        self.seen = len(world.done)
        for name in [name for name, left in self.dying.items() if left <= 0]:
            del self.dying[name]
            if name in world.pods:
                self.made += 1
                world.again(name, self.made)
        self.dying = {name: left - 1 for name, left in self.dying.items()}

    def _evicted(self, effect: Evict) -> None:
        pod = self.world.pods[effect.pod.name]
        if pod.metadata.uid != effect.pod.uid or pod.metadata.deletion_timestamp:
            return
        if effect.reason.code == "Preempted":
            yields = "can spare" in str(effect.reason) and pod.metadata.annotations[names.ELASTIC] == "true"
            least = (pod.spec.priority or 0) + (not yields)
            above = [p for p in self.world.pods.values() if (p.spec.priority or 0) >= least]
            assert [p for p in above if not p.spec.node_name], f"{effect.pod.name} goes for nobody"
        self.world.terminate(effect.pod.name)
        self.dying[effect.pod.name] = self.draw.randint(0, 3)

    def _create(self, pods: list[Pod]) -> None:
        self.world.create(*pods)

    def _end(self, name: str) -> None:
        if name not in self.dying and name not in self.world.held:
            self.world.delete(name)

    def _name(self, prefix: str) -> str:
        self.made += 1
        return f"{prefix}{self.made}"

    def halves(self) -> list[str]:
        """Gangs that run with fewer members than their minimum, without being repaired or undone."""
        known = self.world.engine.gangs.roster.known.values()
        return [
            str(each.gang.key)
            for each in known
            if 0 < each.gang.count(*PLACED) < (each.gang.terms.min_member or 0)
            and each.gang.phase not in (Phase.DEGRADED, Phase.UNDOING, Phase.BINDING)
        ]


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 64))])
def test_nobody_goes_in_vain_and_nothing_lasts(seed: int) -> None:
    life = Life(seed)
    for _ in range(STEPS):
        life.step()
        assert life.halves() == []
    top = a_single("top", 10, 100)
    life._create([top])
    for _ in range(120):
        life.pass_time()
    assert life.world.pods["top"].spec.node_name, "who is above all others runs"
    assert not [e for e in life.world.engine.reservations.claims(()) if e[1].until < life.world.now]
    assert life.world.engine.check() == []
