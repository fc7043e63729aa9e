"""Which container an Allocate is for."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from deviceplugin.candidates import Listed, candidates
from deviceplugin.record import Record
from protos.contract import names
from protos.contract.objects import Pod
from tests.unit.deviceplugin.builders import a_container, a_pod, a_sidecar, listed

MEM, SLICE = names.GPU_MEM, names.GPU_SLICE
EMPTY: dict[str, tuple[str, ...]] = {}


def record(*answered: tuple[str, str, str], refused: tuple[str, ...] = ()) -> Record:
    made = Record()
    for uid, container, resource in answered:
        made.note(uid, container, resource)
    for uid in refused:
        made.refuse(uid)
    return made


def pods(*found: Pod) -> dict[tuple[str, str], Pod | None]:
    return {(pod.metadata.namespace, pod.metadata.name): pod for pod in found}


class Case(NamedTuple):
    says: str
    seen: list[Listed]
    pods: list[Pod]
    found: list[str]
    """`pod/container` of each candidate."""
    record: Callable[[], Record] = record
    resource: str = MEM
    amount: int = 4
    unknown: tuple[str, ...] = ()


TWO = a_pod("p", a_container("a", mem=4), a_container("b", mem=4))
INIT = a_pod("p", a_container("main", mem=4), init=(a_container("prepare", mem=4), a_sidecar("side", mem=4)))
WHOLE = a_pod("p", a_container(whole=1))
BOTH = a_pod("p", a_container("main", mem=4, slices=25))

CASES = [
    Case("the pod under admission shows no device", [listed("p", main=EMPTY)], [a_pod("p")], ["p/main"]),
    Case(
        "pods that show their devices are not asking",
        [listed("p", main={"mem": ("x",)}), listed("q", main=EMPTY)],
        [a_pod("p"), a_pod("q")],
        ["q/main"],
        lambda: record(("uid-p", "main", MEM)),
    ),
    Case(
        "a pod that asks nothing of this is not asking",
        [listed("p", main=EMPTY)],
        [a_pod("p", a_container(whole=1))],
        [],
    ),
    Case("a pod that asks another amount is not asking", [listed("p", main=EMPTY)], [a_pod("p")], [], amount=5),
    Case("of two equal containers the first comes first", [listed("p", a=EMPTY, b=EMPTY)], [TWO], ["p/a"]),
    Case(
        "then the second",
        [listed("p", a={"mem": ("x",)}, b=EMPTY)],
        [TWO],
        ["p/b"],
        lambda: record(("uid-p", "a", MEM)),
    ),
    Case(
        "the second too when the record was lost but the kubelet shows the first",
        [listed("p", a={"mem": ("x",)}, b=EMPTY)],
        [TWO],
        ["p/b"],
    ),
    Case(
        "an answer that the kubelet lost when it was restarted is asked for again, before the next container's",
        [listed("p", a=EMPTY, b=EMPTY)],
        [TWO],
        ["p/a"],
        lambda: record(("uid-p", "a", MEM)),
    ),
    Case("init containers, which List hides, come first", [listed("p", side=EMPTY, main=EMPTY)], [INIT], ["p/prepare"]),
    Case(
        "then the sidecar",
        [listed("p", side=EMPTY, main=EMPTY)],
        [INIT],
        ["p/side"],
        lambda: record(("uid-p", "prepare", MEM)),
    ),
    Case(
        "then the app container",
        [listed("p", side={"mem": ("x",)}, main=EMPTY)],
        [INIT],
        ["p/main"],
        lambda: record(("uid-p", "prepare", MEM), ("uid-p", "side", MEM)),
    ),
    Case(
        "a container that was answered for one resource asks for the other",
        [listed("p", main={"mem": ("x",)})],
        [BOTH],
        ["p/main"],
        lambda: record(("uid-p", "main", MEM)),
        SLICE,
        25,
    ),
    Case(
        "a container later in the order does not ask before the one ahead of it",
        [listed("p", a=EMPTY, b=EMPTY)],
        [a_pod("p", a_container("a", mem=2), a_container("b", mem=4))],
        [],
    ),
    Case(
        "an answered container that List shows empty asks again",
        [listed("p", main=EMPTY)],
        [a_pod("p")],
        ["p/main"],
        lambda: record(("uid-p", "main", MEM)),
        unknown=("p",),
    ),
    Case(
        "but only where nobody asks for the first time",
        [listed("p", main=EMPTY), listed("q", main=EMPTY)],
        [a_pod("p"), a_pod("q")],
        ["q/main"],
        lambda: record(("uid-p", "main", MEM)),
        unknown=("p",),
    ),
    Case(
        "two equal pods that wait cannot be told apart",
        [listed("p", main=EMPTY), listed("q", main=EMPTY)],
        [a_pod("p"), a_pod("q")],
        ["p/main", "q/main"],
    ),
    Case(
        "a pod that runs without devices had its turn",
        [listed("p", main=EMPTY), listed("q", main=EMPTY)],
        [a_pod("p", running=("main",)), a_pod("q")],
        ["q/main"],
    ),
    Case(
        "alone it asks: its status may be of a kubelet before",
        [listed("p", main=EMPTY)],
        [a_pod("p", running=("main",))],
        ["p/main"],
    ),
    Case(
        "it is not preferred to a pod that asks again",
        [listed("p", main=EMPTY), listed("q", main=EMPTY)],
        [a_pod("p", running=("main",)), a_pod("q", running=("main",))],
        ["p/main", "q/main"],
        lambda: record(("uid-q", "main", MEM)),
        unknown=("q",),
    ),
    Case(
        "a pod that was refused has no second chance beside another",
        [listed("p", main=EMPTY), listed("q", main=EMPTY)],
        [a_pod("p"), a_pod("q")],
        ["q/main"],
        lambda: record(refused=("uid-p",)),
    ),
    Case(
        "nor alone: another may have its name by now",
        [listed("p", main=EMPTY)],
        [a_pod("p")],
        [],
        lambda: record(refused=("uid-p",)),
        unknown=("p",),
    ),
    Case(
        "finished pods need not be read while it is clear who asks",
        [listed("done", main=EMPTY), listed("p", main=EMPTY)],
        [a_pod("done", phase="Succeeded"), a_pod("p")],
        ["p/main"],
    ),
    Case(
        "pods that end and never asked for this need not be read",
        [
            listed("done", main=EMPTY),
            listed("ending", main=EMPTY),
            listed("static", main=EMPTY),
            listed("p", main=EMPTY),
        ],
        [
            a_pod("done", a_container(whole=1), phase="Failed"),
            a_pod("ending", a_container(whole=1), deletionTimestamp="2026-01-01T00:00:00Z"),
            a_pod("static", {"name": "main"}, annotations={"kubernetes.io/config.mirror": "x"}),
        ],
        [],
        unknown=("p",),
    ),
    Case("a pod that was never seen must be read", [listed("p", main=EMPTY)], [], [], unknown=("p",)),
    Case(
        "a deleted pod is none, and another may have its name",
        [listed("p", main=EMPTY)],
        [a_pod("p", deletionTimestamp="2026-01-01T00:00:00Z")],
        [],
        unknown=("p",),
    ),
    Case(
        "a finished pod is none, and another may have its name",
        [listed("p", main=EMPTY)],
        [a_pod("p", phase="Failed")],
        [],
        unknown=("p",),
    ),
    Case(
        "an unknown pod that shows its devices is not asking",
        [listed("gone", main={"mem": ("x",)}), listed("p", main=EMPTY)],
        [a_pod("p")],
        ["p/main"],
    ),
    Case(
        "a mirror pod is not what the kubelet admits",
        [listed("p", main=EMPTY)],
        [a_pod("p", annotations={"kubernetes.io/config.mirror": "x"})],
        [],
        unknown=("p",),
    ),
    Case(
        "of two pods with one name, the old shows devices and the new is asking",
        [listed("p", main={"mem": ("x",)}), listed("p", main=EMPTY)],
        [a_pod("p", uid="new")],
        ["p/main"],
        lambda: record(("old", "main", MEM)),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.says for case in CASES])
def test_candidates(case: Case) -> None:
    answer = candidates(case.resource, case.amount, case.seen, pods(*case.pods), case.record())
    assert [f"{found.pod.metadata.name}/{found.container}" for found in answer.found] == case.found
    assert tuple(name for _, name in answer.unknown) == case.unknown


def test_a_name_that_the_api_server_does_not_have_is_no_longer_unknown() -> None:
    answer = candidates(MEM, 4, [listed("static", main=EMPTY)], {("default", "static"): None}, record())
    assert answer == ((), ())
