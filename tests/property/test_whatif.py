"""What-if says what the engine then does: in random lives, about pods and gangs that are created right afterwards.

It leaves the engine as it was. `now` is followed by a start on the places that it named, `preempts` by the evictions of
the victims that it named, and all else by neither.
"""

from __future__ import annotations

import msgspec
import pytest

from protos.contract import names
from protos.contract.objects import Pod
from protos.contract.queue import GPU, GPUS
from tests.builders import a_node
from tests.property.test_preemption import Life
from tests.unit.engine.gang_story import members
from tests.unit.engine.preemption_story import REFUSED, PreemptionStory, a_single, urgent
from tests.unit.engine.test_queues import a_queue
from tests.unit.engine.whatif_story import outcome, places, victims

STEPS = 12
QUEUES = "a", "b", ""


class Asked(Life):
    """A life with two queues, in which questions are asked of pods that then come."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.world = PreemptionStory(
            *(a_node(f"n{i}", 10, 10) for i in range(3)), min_runtime_s=3.0, backfill_delay_s=20.0
        )
        self.world.tell(a_queue("a", capability={GPUS: 3 * GPU}), a_queue("b"))

    def _create(self, pods: list[Pod]) -> None:
        named = self.draw.choice(QUEUES)
        said = {names.QUEUE: named} if named else {}
        super()._create([_with(pod, said) for pod in pods])

    def asked(self) -> list[Pod]:
        """A pod or a gang that does not exist."""
        named, priority = self.draw.choice(QUEUES), self.draw.choice([0, 5, 9])
        said = {names.QUEUE: named} if named else {}
        if self.draw.random() < 0.5:
            return [_with(a_single("new", self.draw.choice([3, 7, 10, 11]), priority), said)]
        count = self.draw.randint(2, 5)
        made = members(count, gang="new", prefix="new-", mem=0, whole=1, least=self.draw.randint(1, count))
        return [_with(urgent(pod, priority), said) for pod in made]

    def place(self, name: str) -> str:
        """NODE:INDEX,… of a bound pod."""
        pod = self.world.engine.pods[self.world.pods[name].metadata.uid]
        shares = pod.allocation.containers.values() if pod.allocation is not None else ()
        return f"{pod.node}:{','.join(map(str, sorted({share.index for own in shares for share in own})))}"

    def settle(self, *, alone: bool) -> None:
        """All that is under way comes to its end; `alone`: whoever waits then gives up."""
        for _ in range(60):
            self.pass_time()
        if not alone:
            return
        for name in [name for name, pod in self.world.pods.items() if not pod.spec.node_name]:
            self.world.delete(name)
        for _ in range(30):
            self.pass_time()


def _with(pod: Pod, said: dict[str, str]) -> Pod:
    metadata = msgspec.structs.replace(pod.metadata, annotations={**pod.metadata.annotations, **said})
    return msgspec.structs.replace(pod, metadata=metadata)


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(12, 200))])
def test_what_if_says_what_the_engine_then_does(seed: int) -> None:
    """In each third life others wait too, some of them with nodes that are reserved for them."""
    life = Asked(seed)
    world = life.world
    for _ in range(STEPS * 3):
        life.step()
    alone = seed % 3 > 0
    life.settle(alone=alone)
    pods = life.asked()
    told = outcome(world, *pods)
    named = [pod.metadata.name for pod in pods]
    world.create(*pods)
    came = dict(zip(named, world.come(*named), strict=True))
    started = [name for name, what in came.items() if what in ("flying", "held") or name in world.flying]
    if told.state == "now":
        world.land()
        assert {name: life.place(name) for name in started} == places(told)
        return
    assert started == []
    if not alone:
        return  # others may preempt meanwhile
    for name in named:
        world.change(name, conditions=(REFUSED,))
    evicted = world.preempt(4.0)
    assert evicted == (victims(told) if told.state == "preempts" else []), told.reason
