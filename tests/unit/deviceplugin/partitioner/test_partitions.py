"""Which instances the plugin offers, by what the partitioner has said: those that were made for pods never are."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from deviceplugin.machine import Gpu, Machine
from deviceplugin.metrics import Metrics
from deviceplugin.partitioner.partitions import Partitions
from deviceplugin.partitioner.protocol import Answer, Held
from protos.contract import mig
from tests.unit.deviceplugin.partitioner.machine import KINDS

CUT, WHOLE, OTHER = "GPU-cut", "GPU-whole", "GPU-other"
PLACE = mig.Place(CUT, "1g.10gb", 0, 1).name


def an_instance(uuid: str, parent: str, index: int) -> Gpu:
    return Gpu(index=index, uuid=uuid, minor=0, mem_mib=9728, profile="1g.10gb", parent=parent)


MACHINE = Machine(
    gpus=(
        *(Gpu(index=i, uuid=uuid, minor=i, mem_mib=81920, mig=True) for i, uuid in enumerate((CUT, WHOLE, OTHER))),
        an_instance("MIG-of-a-pod", CUT, 10),
        an_instance("MIG-static", CUT, 11),
        an_instance("MIG-other", OTHER, 12),
    )
)


def partitions(in_use: Collection[str] = (), *answers: Answer) -> Partitions:
    async def told(*_: str) -> None: ...

    made = Partitions(Path("/nowhere/p.sock"), Held, Metrics(), told, lambda: in_use)
    for answer in answers:
        made.take(answer)
    return made


def offered(of: Partitions) -> list[str]:
    return [gpu.uuid for gpu in of.marked(MACHINE).gpus if gpu.parent]


def test_before_the_first_answer_what_pods_were_given_tells_which_gpus_are_given_over() -> None:
    """A plugin that started anew offered the instance of a running pod as a free one."""
    assert offered(partitions({PLACE, "GPU-whole"})) == ["MIG-other"]
    assert offered(partitions()) == ["MIG-of-a-pod", "MIG-static", "MIG-other"]


def test_an_answer_tells_the_instances_of_the_operator() -> None:
    answer = Answer(gpus={CUT: KINDS}, others=("MIG-static",))
    assert offered(partitions({PLACE}, answer)) == ["MIG-static", "MIG-other"]
    assert CUT in partitions({PLACE}, answer).marked(MACHINE).kinds


def test_a_gpu_that_does_not_answer_keeps_its_instances_hidden() -> None:
    """It fell out of the answer, and its pods' instances were offered as free ones."""
    failing = partitions({PLACE}, Answer(gpus={CUT: KINDS}, others=("MIG-static",)), Answer(unread=(CUT,)))
    assert offered(failing) == ["MIG-static", "MIG-other"]
    assert CUT not in failing.marked(MACHINE).kinds


def test_a_gpu_that_is_given_over_no_longer_is_the_operators() -> None:
    back = partitions((), Answer(gpus={CUT: KINDS}, others=("MIG-static",)), Answer())
    assert offered(back) == ["MIG-of-a-pod", "MIG-static", "MIG-other"]
