"""The plugin keeps nothing of deleted pods, not even of one deleted during a write."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from deviceplugin.cluster import Cluster
from deviceplugin.corrections import Corrections
from deviceplugin.metrics import Metrics
from deviceplugin.plugin import Plugin
from deviceplugin.record import Record
from protos.contract import names
from protos.contract.objects import Pod
from protos.kube import errors
from tests import growth
from tests.builders import a_pod, an_inventory

GPUS = an_inventory(16, node="n")


class Server:
    """An API server that refuses every write; `before_answer` may delete the pod meanwhile."""

    def __init__(self) -> None:
        self.before_answer: Any = lambda: None
        self.pod: Pod | None = None

    async def patch(self, *_: Any, **__: Any) -> bytes:
        self.before_answer()
        if self.pod is None:
            raise errors.Unavailable("PATCH", message="not now")
        meta = self.pod.metadata
        told = {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid, "resourceVersion": "2"}
        return msgspec.json.encode({"metadata": told})

    async def post(self, *_: Any, **__: Any) -> bytes:
        return b"{}"


class World:
    """One node with its pods, the record of answers and the corrections."""

    def __init__(self) -> None:
        self.server, self.record = Server(), Record()
        recorder: Any = self
        self.cluster = Cluster(cast(Any, self.server), "n", recorder)
        offer: Any = type("Offered", (), {"inventory": GPUS, "sharing": SHARING})()
        self.corrections = Corrections(self.cluster, offer, self.record, Metrics(), standalone=False)
        self.cluster.on_gone = self._gone

    async def post(self, *_: Any, **__: Any) -> bool:
        return True

    def _gone(self, uid: str) -> None:
        self.record.forget(uid)
        self.corrections.forget(uid)

    def comes(self, number: int) -> Pod:
        pod = a_pod(f"p{number}", mem=4, node="n")
        self.cluster._store(pod)
        self.record.fix(pod.metadata.uid, {"main": ("GPU-n-0",)})
        self.record.note(pod.metadata.uid, "main", names.GPU_MEM)
        self.record.limit(pod.metadata.uid, "main", 4096)
        self.record.limit_by_library(pod.metadata.uid, "side", 4096)
        self.corrections.because(pod, "adopted", "a test")
        return pod

    def goes(self, pod: Pod) -> None:
        self.cluster._remove((pod.metadata.namespace, pod.metadata.name), pod.metadata.uid)


class _Sharing:
    resources = names.Resources()
    gpushare = False


SHARING = _Sharing()


def kept(world: World) -> growth.Sizes:
    return growth.sizes(cluster=world.cluster, record=world.record, corrections=world.corrections)


BOUNDED = {"cluster._ended": 256}


async def test_nothing_is_kept_of_pods_that_went() -> None:
    world = World()
    before: growth.Sizes = growth.Sizes()
    for number in range(60):
        pod = world.comes(number)
        if number % 3 == 0:  # it goes while it is written to, which fails
            world.server.before_answer = lambda pod=pod: world.goes(pod)
        await world.corrections._round()
        world.server.before_answer = lambda: None
        world.goes(pod)
        await world.corrections._round()
        if number == 20:
            before = kept(world)
    assert growth.grown(before, kept(world), BOUNDED) == {}
    assert world.cluster.pods == {}


async def test_an_answer_older_than_the_deletion_does_not_bring_the_pod_back() -> None:
    world = World()
    pod = world.comes(1)
    world.server.pod, world.server.before_answer = pod, lambda: world.goes(pod)
    await world.cluster.annotate_pod(pod, {"a": "b"})
    assert world.cluster.pods == {}


def test_a_pod_deleted_during_its_allocate_is_forgotten_a_moment_later() -> None:
    plugin: Any = object.__new__(Plugin)
    world = World()
    plugin.cluster, plugin.record, plugin.corrections = world.cluster, world.record, world.corrections
    plugin.mps = None
    world.cluster.pods_listed.set()
    here = world.comes(1)
    world.record.note("uid-went", "main", names.GPU_MEM)
    gone = plugin._forget_gone(frozenset())
    assert world.record.uids() == {here.metadata.uid, "uid-went"}, "the watch may not have shown it yet"
    plugin._forget_gone(gone)
    assert world.record.uids() == {here.metadata.uid}
