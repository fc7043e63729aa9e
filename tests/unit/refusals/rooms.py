"""Why a pod gets no GPUs: none that it selects, none that suffice, or none free; and its GpuClass."""

from __future__ import annotations

from functools import partial

from extender.engine.types.events import ClassSeen, PodSeen
from protos.contract import names
from protos.contract.gpu_class import GpuClass
from protos.contract.objects import Pod
from protos.contract.reason import Reason
from protos.contract.selection import Selection
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import GangStory, members
from tests.unit.engine.story import Story
from tests.unit.engine.whatif_story import outcome
from tests.unit.refusals.case import Case, after, on_one_node, refusal

LARGE = 120
"""Nodes of a cluster of which kube-scheduler checks a sample."""


def behind_the_first_in_line() -> Reason:
    world = GangStory(a_node("n", *[16] * 4), backfill_delay_s=30.0)
    for number in range(3):
        world.create(a_pod(f"r{number}", whole=1, annotations={names.EXPECTED_RUNTIME: "600"}))
        world.come(f"r{number}")
        world.land()
    world.create(*members(2, gang="big", mem=0, whole=2, annotations={names.EXPECTED_RUNTIME: "600"}))
    world.later(40.0)
    return _asked(world, a_pod("long", whole=1, annotations={names.EXPECTED_RUNTIME: "1h"}))


def _asked(world: GangStory, pod: Pod, nodes: list[str] | None = None) -> Reason:
    world.create(pod)
    reason = world.ask(pod.metadata.name, nodes).reason
    assert reason is not None
    return reason


def surplus_behind_a_pending_gang() -> Reason:
    world = GangStory(a_node("n", *[16] * 4))
    world.start(*members(2, gang="old", prefix="old", mem=0, whole=1))
    runs = members(3, gang="runs", prefix="runs", least=1, mem=0, whole=1)
    world.start(*runs[:2])
    urgent = members(4, gang="waits", prefix="waits", mem=0, whole=1, spec={"priority": 1})
    world.create(*urgent, runs[2])
    world.come("runs2", *(pod.metadata.name for pod in urgent))
    world.later(1)
    for name in ("old0", "old1"):
        world.terminate(name)
        world.delete(name)
    world.ask("runs2")
    reason = world.engine.pods["uid-runs2"].refusal
    assert reason is not None
    return reason


def fits_where_nobody_looked() -> Reason:
    nodes = [a_node(f"n{i:03}", *([16] if i == LARGE - 1 else [])) for i in range(LARGE)]
    return _asked(GangStory(*nodes), a_pod(whole=1), sorted(node.metadata.name for node in nodes)[:100])


def asked_beforehand() -> Reason:
    """The answer of what-if about a pod without GPUs, while another one takes the CPU."""
    cpu = {"requests": {"cpu": "40"}}
    world = GangStory(a_node("n", 16))
    world.tell(PodSeen(a_pod("p", containers=[{"name": "main", "resources": cpu}], node="n")))
    reason = outcome(world, a_pod("q", containers=[{"name": "main", "resources": cpu}])).reason
    assert reason is not None
    return reason


ROOMS = [
    Case("NoRoom", "no GPU with <amount> free", lambda: _busy(a_pod("q", mem=12))),
    Case("NoRoom", "no node with <amount> free", lambda: _busy(a_pod("q", whole=1))),
    Case("NoRoom", "no node has the requested CPU and memory free", asked_beforehand),
    Case(
        "NoRoom",
        "pending workloads go before members beyond the minimum of a running gang",
        surplus_behind_a_pending_gang,
    ),
    Case("InLine", "the free GPUs are reserved for workloads before this pod in its queue", behind_the_first_in_line),
    Case(
        "NodesNotChecked",
        "the pod fits on a node that kube-scheduler did not check; the pod is nominated to that node",
        fits_where_nobody_looked,
        "nothing",
    ),
    Case(
        "CannotFit",
        "no node in the cluster could fit <amount>, even if it were empty",
        partial(on_one_node, a_pod(whole=64)),
    ),
    *(
        Case(
            "NoIsolation",
            f"no node that could fit the pod {enforces}, which gangshare.io/isolation: {demanded} demands",
            partial(on_one_node, a_pod(mem=4, annotations={names.ISOLATION: demanded})),
        )
        for demanded, enforces in (
            ("memory", "enforces the memory of containers"),
            ("compute", "enforces the memory and caps the compute of containers"),
        )
    ),
    Case(
        "NoMatch",
        "no GPU in the cluster matches <conditions>",
        partial(on_one_node, a_pod(mem=4, annotations={names.GPU_MODEL: "V100"})),
    ),
    Case(
        "NoMatch",
        "no node in the cluster has <links> for <count> GPUs",
        partial(on_one_node, a_pod(mem=4, annotations={names.LINK: "nvlink", names.GPU_COUNT: "2"})),
    ),
    Case(
        "NoMatch",
        "no node in the cluster has <links> for <count> GPUs that match <conditions>",
        lambda: on_one_node(
            a_pod(mem=4, annotations={names.LINK: "nvlink", names.GPU_COUNT: "2", names.GPU_MODEL: "T4"})
        ),
    ),
]


def _busy(pod: Pod) -> Reason:
    story = Story(a_node("n", 16))
    assert story.run(a_pod("p", mem=8))
    return refusal(story, pod)


def _of_class(*classes: GpuClass, **annotations: str) -> Reason:
    pod = a_pod(mem=4, annotations={names.GPU_CLASS: "large", **annotations})
    return after(*map(ClassSeen, classes), PodSeen(pod), pod=pod)


CLASSES = [
    Case(
        "NoMatch",
        "no GPU in the cluster is of class <class>",
        lambda: _of_class(GpuClass(name="large", selection=Selection(models=("V100",)))),
    ),
    Case(
        "AskMalformed",
        "gangshare.io/mig-profile is <value>: expected <profile>, as its GpuClass says",
        lambda: _of_class(
            GpuClass(name="large", selection=Selection(profile="3g.40gb")), **{names.MIG_PROFILE: "1g.10gb"}
        ),
        "name the profile of the class, or none",
    ),
    Case("ClassMissing", "GpuClass <class> does not exist; the pod waits for it", _of_class),
    Case(
        "ClassUnreadable",
        "GpuClass <class> cannot be read; the pod waits until it is corrected",
        lambda: _of_class(GpuClass(name="large", problem="spec cannot be read")),
    ),
]
