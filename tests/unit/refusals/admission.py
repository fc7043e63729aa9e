"""Why the device plugin refuses a container of a bound pod, so that the kubelet fails the pod."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deviceplugin import allocate, identify
from deviceplugin.allocate import Allocator
from deviceplugin.answers import Style
from deviceplugin.devices import Sharing
from deviceplugin.identify import Identifier, Meant, RefusedError
from deviceplugin.library.keeper import Keeper
from deviceplugin.library.regions import Owner, Regions
from deviceplugin.metrics import Metrics
from deviceplugin.mps import exchange
from deviceplugin.mps.partner import Partner
from deviceplugin.offer import Offer
from deviceplugin.partitioner import partitions as partitions_module
from deviceplugin.partitioner.partitions import Partitions
from deviceplugin.partitioner.protocol import Held
from deviceplugin.record import Record
from protos.contract import names
from protos.contract.allocation import Share
from protos.contract.isolation import Isolation
from protos.contract.objects import Pod
from protos.contract.reason import Reason
from tests.unit.deviceplugin.builders import a_container, a_machine, a_pod, an_inventory, listed
from tests.unit.deviceplugin.test_identify import Cluster, Kubelet
from tests.unit.refusals.case import Case, Section


class _Ending(Identifier):
    """The pod ends at the moment at which it is found."""

    async def exactly(self, resource: str, amount: int) -> Meant:
        meant, seen = await super().exactly(resource, amount)
        status = msgspec.structs.replace(meant.pod.status, phase="Succeeded")
        return meant._replace(pod=msgspec.structs.replace(meant.pod, status=status)), seen


def _refused(
    *pods: Pod,
    resource: str = names.GPU_MEM,
    amount: int = 4,
    known: bool = True,
    hold_s: float = allocate.HOLD_S,
    single: bool = False,
    identifier: type[Identifier] = Identifier,
    isolation: Isolation | None = None,
) -> Reason:
    """Why the plugin of a node with a GPU of 16 units refuses the first pod; `known`: the node's pods are listed."""

    async def asked() -> Reason:
        cluster: Any = Cluster(*pods, now=pods)
        if known:
            cluster.pods_listed.set()
        offer = Offer(Sharing(replicas={names.WHOLE_GPU: 4} if single else {}))
        offer.set(a_machine(16), {}, {}, isolation)
        kubelet = Kubelet(*(listed(pod.metadata.name, main={}) for pod in pods[:1]))
        corrections: Any = type("Corrections", (), {"because": lambda *_: None})()
        identify_it, style = identifier(kubelet, cluster, Record()), Style(single=single)
        allocator = Allocator(identify_it, offer, corrections, Metrics(), style, lambda told: told.close())
        with pytest.raises(RefusedError) as refused:
            await allocator.allocate(resource, ["id"] * amount)
        return refused.value.reason

    with pytest.MonkeyPatch.context() as patch:
        for module, name, seconds in (
            (identify, "PATIENCE_S", 0.05),
            (allocate, "KNOW_S", 0.05),
            (allocate, "HOLD_S", hold_s),
        ):
            patch.setattr(module, name, seconds)
        return asyncio.run(asked())


def _refused_by_mps(*shares: Share) -> Reason:
    """Why a container with these shares is refused on a node whose MPS is wedged."""

    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        gpus = {share.uuid: exchange.Served(phase="wedged") for share in shares}
        exchange.write(folder, exchange.State(v=1, beat=exchange.now(), protocol=2, gpus=gpus))
        mps = Partner(folder, list, lambda: an_inventory(16, 16), lambda: True)
        with pytest.raises(RefusedError) as refused:
            mps.admit("uid", "main", shares)
        return refused.value.reason


def _refused_by_library() -> Reason:
    """Why a container is refused on a node whose folder of regions is gone."""

    async def asked() -> Reason:
        folder = Path("/nowhere")
        keeper = Keeper(Regions(folder), folder / "libvgpu.so", folder, list, set, caps_compute=False)
        with pytest.raises(RefusedError) as refused:
            await keeper.give(Owner("uid", "main"), (PART,), 4096, an_inventory(16))
        return refused.value.reason

    return asyncio.run(asked())


def _refused_by_partitioner() -> Reason:
    """Why a container is refused on a node whose partitioner does not answer."""

    async def asked() -> Reason:
        async def told(*_: str) -> None: ...

        partitions = Partitions(Path("/nowhere/p.sock"), Held, Metrics(), told)
        with pytest.raises(RefusedError) as refused:
            await partitions.have(["GPU-0/1g.10gb@0:1"])
        return refused.value.reason

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitions_module, "MAKE_S", 0.0)
        return asyncio.run(asked())


P = a_pod("p")
PART, BESIDE = Share("GPU-0", 0, 4), Share("GPU-1", 1, 4)
CASES = [
    Case(
        "NodeFull",
        "no GPU of this node has enough free for <amount>",
        lambda: _refused(a_pod("p", a_container(mem=12)), a_pod("o", a_container(mem=8), running=("main",)), amount=12),
        "another scheduler bound the pod: set `schedulerName` to one that asks Gangshare, or taint the nodes",
    ),
    Case(
        "PodUnknown",
        "cannot tell which container asks for <count> of <resource>",
        _refused,
        "a static pod cannot have GPUs; for other pods look at the plugin's log",
    ),
    Case(
        "NodeUnknown",
        "the pods of this node cannot be listed: the API server does not answer, or does not allow it",
        lambda: _refused(P, known=False),
        "the plugin's log says why",
    ),
    Case(
        "ApiSilent",
        "no answer in <seconds> s: the API server or the kubelet is too slow",
        lambda: _refused(P, known=False, hold_s=0.02),
        "look at the API server's health and the node's load",
    ),
    Case(
        "OneReplica",
        "a container may ask one <resource> at most on this node",
        lambda: _refused(a_pod("p", a_container(whole=2)), resource=names.WHOLE_GPU, amount=2, single=True),
        "ask one: `failRequestsGreaterThanOne` is set in the node's time-slicing file",
    ),
    Case(
        "AskUneven",
        "<resource> <amount> does not divide by gangshare.io/gpu-count <count>: <amounts> would",
        lambda: _refused(a_pod("p", annotations={names.GPU_COUNT: "3"})),
    ),
    Case("PodEnded", "the pod has ended", lambda: _refused(P, identifier=_Ending), "nothing"),
    Case(
        "MpsNotReady",
        "MPS on this GPU is not ready",
        lambda: _refused_by_mps(PART),
        "nothing; if it lasts, look at the log of the node's MPS component",
    ),
    Case(
        "MpsOneGpu",
        "the container has parts of <count> GPUs, and MPS serves one",
        lambda: _refused_by_mps(PART, BESIDE),
        "ask for parts of one GPU, or for a node without the label gangshare.io/mps",
    ),
    Case(
        "MigNotMade",
        "the MIG instance cannot be made",
        _refused_by_partitioner,
        "nothing; if it lasts, the numbers name what the driver or the partitioner says",
    ),
    Case(
        "ClassUnknown",
        "only gangshare's scheduler knows which GPUs are of class <class>",
        lambda: _refused(a_pod("p", annotations={names.GPU_CLASS: "large"})),
        "nothing; if another scheduler bound the pod, set `schedulerName` to one that asks Gangshare",
    ),
    Case(
        "NoIsolation",
        "this node cannot limit the container's memory",
        _refused_by_library,
        "mostly the file system of --library-dir is full or not mounted: the Event of the pod says why",
    ),
    Case(
        "NoIsolation",
        "the pod demands isolation of <demanded>, and this node gives memory <level>, compute <level>",
        lambda: _refused(a_pod("p", annotations={names.ISOLATION: "memory"})),
        "its isolation fell after the pod was placed, or another scheduler bound the pod: the node's Events say why",
    ),
    Case(
        "NoIsolation",
        "the pod demands a cap of compute, and MPS serves it none now",
        lambda: _refused(a_pod("p", annotations={names.ISOLATION: "compute"}), isolation=Isolation("driver", "mps")),
        "MPS has left the node since it was chosen, or speaks version 2 only: the log of its component says why",
    ),
]
SECTION = Section(
    "Pods that failed at admission",
    "The kubelet fails a bound pod (`UnexpectedAdmissionError`) with one of these in the pod's status. A request that "
    "cannot be read is refused with [its own sentence](#requests-that-are-asked-wrong).",
    CASES,
    "never: this pod has failed, and its controller creates another",
)
