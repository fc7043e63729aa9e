"""Which container a call of the kubelet is for while the API server is slow, silent or behind."""

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from deviceplugin import allocate
from deviceplugin.allocate import Allocator
from deviceplugin.answers import Style
from deviceplugin.candidates import Listed, Name
from deviceplugin.cluster import Cluster as cluster_of
from deviceplugin.devices import Sharing
from deviceplugin.identify import Identifier, RefusedError
from deviceplugin.metrics import Metrics
from deviceplugin.offer import Offer
from deviceplugin.podresources import PodResources
from deviceplugin.record import Record
from protos.contract import names
from protos.contract.objects import Node, Pod
from protos.kube import errors
from tests.unit.deviceplugin.builders import a_container, a_machine, a_pod, listed


class Kubelet(PodResources):
    """A kubelet with a fixed List."""

    def __init__(self, *shown: Listed) -> None:
        self.shown = shown

    async def list(self) -> tuple[Listed, ...]:
        return self.shown


class Cluster:
    """The pods as last seen, and as the API server has them (None: it does not answer)."""

    def __init__(self, *seen: Pod, now: tuple[Pod, ...] | None = (), followed: bool = True) -> None:
        self.pods: dict[Name, Pod] = {_name(pod): pod for pod in seen}
        self.now, self.followed, self.read = now, followed, list[Name]()
        self.pods_listed = asyncio.Event()
        self.node: Node | None = None

    async def refresh(self, wanted: Iterable[Name]) -> dict[Name, Pod | None]:
        wanted = list(wanted)
        self.read += wanted
        if self.now is None:
            raise errors.Unavailable("GET pods")
        there = {_name(pod): pod for pod in self.now}
        return {name: there.get(name) for name in wanted}

    async def tell(self, *_: object) -> None:
        return


def _name(pod: Pod) -> Name:
    return pod.metadata.namespace, pod.metadata.name


def identifier(cluster: Any) -> Identifier:
    return Identifier(Kubelet(listed("p", main={})), cluster, Record())


async def test_while_the_watch_is_up_a_single_candidate_is_not_read() -> None:
    cluster = Cluster(a_pod("p"))
    meant, _ = await identifier(cluster).exactly(names.GPU_MEM, 4)
    assert (meant.pod.metadata.uid, cluster.read) == ("uid-p", [])


async def test_while_the_watch_is_down_another_pod_of_the_same_name_is_noticed() -> None:
    cluster = Cluster(a_pod("p"), now=(a_pod("p", uid="new"),), followed=False)
    meant, _ = await identifier(cluster).exactly(names.GPU_MEM, 4)
    assert meant.pod.metadata.uid == "new"


async def test_while_the_api_server_is_silent_a_single_known_pod_is_meant() -> None:
    cluster = Cluster(a_pod("p"), now=None, followed=False)
    meant, _ = await identifier(cluster).exactly(names.GPU_MEM, 4)
    assert meant.pod.metadata.uid == "uid-p"


async def test_pods_in_doubt_are_read_a_few_times_only() -> None:
    others = [a_pod(f"other-{number}", a_container()) for number in range(100)]
    cluster = Cluster(*others, now=tuple(others))
    kubelet = Kubelet(*(listed(f"other-{number}", main={}) for number in range(100)))
    with pytest.raises(RefusedError, match="cannot tell which container asks"):
        await Identifier(kubelet, cluster, Record()).exactly(names.GPU_MEM, 4)  # type: ignore[arg-type]
    assert len(cluster.read) <= 100 * 6


async def test_a_pod_that_comes_while_others_are_in_doubt_is_found() -> None:
    cluster = Cluster(now=())
    waiting = asyncio.create_task(identifier(cluster).exactly(names.GPU_MEM, 4))
    await asyncio.sleep(0.05)
    cluster.now = (a_pod("p"),)
    meant, _ = await waiting
    assert meant.pod.metadata.uid == "uid-p"


async def test_the_kubelet_never_waits_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocate, "HOLD_S", 0.05)
    cluster: Any = Cluster(a_pod("p"))  # its pods are never listed
    corrections: Any = None
    offer = Offer(Sharing())
    offer.set(a_machine(), {}, {})
    identify = Identifier(Kubelet(listed("p", main={})), cluster, Record())
    allocator = Allocator(identify, offer, corrections, Metrics(), Style(), lambda told: told.close())
    with pytest.raises(RefusedError, match=r"no answer in 0\.05 s: the API server or the kubelet is too slow"):
        await allocator.allocate(names.GPU_MEM, ["GPU-0::m0"] * 4)


class Server:
    """An API server with these pods, as text."""

    def __init__(self, **texts: bytes) -> None:
        self.texts = texts

    async def get(self, path: str) -> bytes:
        return self.texts[path.rpartition("/")[2]]


async def test_a_pod_that_cannot_be_decoded_keeps_no_other_pod_from_its_gpu() -> None:
    """One pod of a tenant made every Allocate of its node fail."""
    bad = b'{"metadata": {"name": "bad", "uid": "u"}, "spec": {"containers": 7}}'
    server: Any = Server(bad=bad, p=msgspec.json.encode(a_pod("p")))
    recorder: Any = None
    cluster = cluster_of(server, "n", recorder)
    cluster._store(a_pod("p"))
    kubelet: Any = Kubelet(listed("p", main={}), listed("bad", main={}))
    meant, _ = await Identifier(kubelet, cluster, Record()).exactly(names.GPU_MEM, 4)
    assert meant.pod.metadata.uid == "uid-p"


async def test_of_a_pod_that_cannot_be_decoded_any_more_the_last_state_stays() -> None:
    server: Any = Server(p=b'{"metadata": {"name": "p", "uid": "uid-p"}, "spec": 7}')
    recorder: Any = None
    cluster, gone = cluster_of(server, "n", recorder), list[str]()
    cluster.on_gone = gone.append
    cluster._store(a_pod("p"))
    assert await cluster.refresh([("default", "p")]) == {("default", "p"): a_pod("p")}
    assert gone == []
