"""Pods that run although the kubelet never asked for their GPUs are told."""

from __future__ import annotations

from typing import Any

import pytest

from deviceplugin.candidates import Listed
from deviceplugin.devices import Sharing
from deviceplugin.metrics import Metrics
from deviceplugin.podresources import PodResourcesError
from deviceplugin.record import Record
from deviceplugin.unallocated import Watch, confirmed, suspects
from protos.contract import names
from protos.contract.objects import Pod
from tests.unit.deviceplugin.builders import a_container, a_pod, a_sidecar, listed

BARE: dict[str, tuple[str, ...]] = {}
RUNS: dict[str, Any] = {"phase": "Running", "running": ("main",)}


def record(*answered: str) -> Record:
    made = Record()
    for uid in answered:
        made.note(uid, "main", names.GPU_MEM)
    return made


@pytest.mark.parametrize(
    ("says", "pod", "seen", "known", "found"),
    [
        ("it runs without devices", a_pod("p", **RUNS), listed("p", main=BARE), record(), "main"),
        ("it has devices", a_pod("p", **RUNS), listed("p", main={"mem": ("x",)}), record(), ""),
        ("we answered for it", a_pod("p", **RUNS), listed("p", main=BARE), record("uid-p"), ""),
        ("it does not run", a_pod("p"), listed("p", main=BARE), record(), ""),
        ("it has ended", a_pod("p", phase="Failed", running=("main",)), listed("p", main=BARE), record(), ""),
        ("it asks for nothing", a_pod("p", {"name": "main"}, **RUNS), listed("p", main=BARE), record(), ""),
        ("the kubelet does not know it", a_pod("p", **RUNS), listed("q", main=BARE), record(), ""),
        (
            "it is being deleted",
            a_pod("p", **RUNS, deletionTimestamp="2026-01-01T00:00:00Z"),
            listed("p", main=BARE),
            record(),
            "",
        ),
        (
            "the second container lacks them",
            a_pod("p", {"name": "web"}, a_container("main", whole=1), phase="Running", running=("web", "main")),
            listed("p", web=BARE, main=BARE),
            record(),
            "main",
        ),
        (
            "an init container, which the kubelet does not list, has no say",
            a_pod("p", {"name": "main"}, init=(a_sidecar(mem=4),), **RUNS),
            listed("p", main=BARE),
            record(),
            "",
        ),
    ],
)
def test_whom_nothing_was_allocated(says: str, pod: Pod, seen: Listed, known: Record, found: str) -> None:
    certain = confirmed(suspects([pod], known, Sharing()), [seen])
    assert [one.container for one in certain.values()] == [found] * bool(found), says


class World:
    """The plugin's sight of a node."""

    def __init__(self, *pods: Pod) -> None:
        self.pods = {(pod.metadata.namespace, pod.metadata.name): pod for pod in pods}
        self.listed, self.answers, self.asked = [listed("p", main=BARE)], True, 0
        self.events: list[str] = []

    async def list(self) -> list[Listed]:
        self.asked += 1
        if not self.answers:
            raise PodResourcesError("silent")
        return self.listed

    async def tell(self, pod: Pod, reason: str, sentence: str, kind: str) -> None:
        self.events.append(f"{kind} {reason} {pod.metadata.name}: {sentence}")


def watch(world: World, metrics: Metrics, known: Record | None = None) -> Watch:
    sight: Any = world
    return Watch(sight, known or Record(), sight, Sharing(), metrics)


def number(metrics: Metrics) -> float | None:
    return metrics.registry.get_sample_value("gangshare_plugin_unallocated_pods")


async def test_a_pod_is_told_once_when_it_is_seen_twice() -> None:
    world, metrics = World(a_pod("p", **RUNS)), Metrics()
    watching = watch(world, metrics)
    await watching.look()
    assert (world.events, number(metrics)) == ([], 0)
    for _ in range(3):
        await watching.look()
    (event,) = world.events
    assert event.startswith(
        "Warning GpuNotAllocated p: container main runs, and the kubelet has allocated no gangshare"
    )
    assert number(metrics) == 1
    world.pods.clear()
    await watching.look()
    assert number(metrics) == 0


async def test_a_pod_that_the_kubelet_admits_meanwhile_is_not_told() -> None:
    world, known = World(a_pod("p", **RUNS)), Record()
    watching = watch(world, Metrics(), known)
    await watching.look()
    known.note("uid-p", "main", names.GPU_MEM)
    for _ in range(2):
        await watching.look()
    assert world.events == []


async def test_a_silent_kubelet_says_nothing_and_one_without_such_pods_is_not_asked() -> None:
    world = World(a_pod("p", **RUNS))
    world.answers = False
    watching = watch(world, Metrics())
    for _ in range(3):
        await watching.look()
    assert world.events == []
    idle = World(a_pod("p"))
    await watch(idle, Metrics()).look()
    assert idle.asked == 0
