"""The plugin's side: who holds which GPU, and how long an Allocate waits."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

import pytest

from deviceplugin.checkpoint import Entry
from deviceplugin.devices import Sharing
from deviceplugin.identify import RefusedError
from deviceplugin.mps import exchange, holding, partner
from deviceplugin.mps.exchange import Holder, Phase, Process, Served, State
from deviceplugin.mps.holding import Held
from deviceplugin.mps.partner import Partner
from deviceplugin.record import Record
from protos.contract import names
from protos.contract.allocation import Share
from tests.unit.deviceplugin.builders import a_container, a_pod, an_inventory

GPUS = an_inventory(16, 16, 16)
PART, WHOLE = Share("GPU-0", 0, 4, 25), Share("GPU-0", 0, 16, 100, True)


class Node:
    """The pods that hold GPUs, and what the component says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pods: list[Held] | None = [Held("p", 0.0, {"main": (PART,)})]
        self.labelled = False
        self.partner = Partner(folder, lambda: self.pods, lambda: GPUS, lambda: self.labelled)

    def says(
        self, phase: Phase, *, admitted: str = "", running: bool = True, age: float = 0.0, protocol: Literal[2, 3] = 2
    ) -> None:
        folders = {"p/main": admitted} if admitted else {}
        processes = (Process(7, 1),) if running else ()
        served = Served(phase=phase, why="so it is", admitted=folders, processes=processes)
        exchange.write(self.folder, State(v=1, beat=exchange.now() - age, protocol=protocol, gpus={"GPU-0": served}))

    @property
    def holders(self) -> tuple[Holder, ...]:
        found = exchange.read_holders(self.folder)
        assert found is not None
        return found.holders

    def refused(self, *shares: Share) -> str:
        """The refusal of an Allocate."""
        with pytest.raises(RefusedError) as refused:
            self.partner.admit("p", "main", shares or (PART,))
        return f"{refused.value.reason.code}: {refused.value.reason}"

    async def started(self) -> None:
        """Wait as before a start of the container."""
        await self.partner.before_start(a_pod("p", a_container(mem=4), uid="p"), "main")

    async def not_started(self) -> str:
        with pytest.raises(RefusedError) as refused:
            await self.started()
        return f"{refused.value.reason.code}: {refused.value.reason}"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(partner, "READY_S", 0.2)
    monkeypatch.setattr(partner, "WRITE_S", 0.01)
    return Node(tmp_path)


@pytest.fixture
def pipe(node: Node) -> str:
    return str(exchange.folder_of(node.folder, "GPU-0") / "pipe")


async def test_a_part_is_answered_at_once_and_starts_when_it_is_admitted(node: Node, pipe: str) -> None:
    node.says("serving")
    pipes = node.partner.admit("p", "main", (PART,))
    assert pipes is not None
    assert (pipes.folder, pipes.shm, pipes.own_limits) == (pipe, str(node.folder / "shm"), True)
    assert node.holders == (Holder(pod="p", container="main", gpu="GPU-0", mps=True, mem_mib=4096, percent=25),)
    starts = asyncio.ensure_future(node.started())
    await asyncio.sleep(0.05)
    assert not starts.done()
    node.says("serving", admitted=pipe)
    await starts


async def test_with_namespaces_the_answer_names_the_containers_own(node: Node, pipe: str) -> None:
    node.says("serving", protocol=3)
    pipes = node.partner.admit("p", "main", (PART,))
    assert pipes is not None
    assert pipes.folder == f"{pipe}/gpu/{exchange.namespace('p/main')}"
    assert not pipes.own_limits


@pytest.mark.parametrize("phase", ["wedged", "blocked"])
async def test_a_gpu_that_takes_no_parts_refuses_one_at_once(node: Node, phase: Phase) -> None:
    node.says(phase)
    assert node.refused() == "MpsNotReady: MPS on this GPU is not ready: so it is"
    assert exchange.read_holders(node.folder) is None


async def test_a_part_that_is_not_admitted_in_time_does_not_start(node: Node) -> None:
    node.says("starting")
    assert node.partner.admit("p", "main", (PART,)) is not None
    assert "so it is" in await node.not_started()
    assert [holder.mps for holder in node.holders] == [True], "the kubelet asks again"


async def test_pipes_elsewhere_than_answered_are_no_admission(node: Node) -> None:
    node.says("serving", admitted="/etc")
    node.partner.admit("p", "main", (PART,))
    assert "MpsNotReady" in await node.not_started()


async def test_a_whole_gpu_starts_when_mps_has_left_it(node: Node) -> None:
    node.pods = [Held("p", 0.0, {"main": (WHOLE,)})]
    node.says("serving")
    assert node.partner.admit("p", "main", (WHOLE,)) is None
    starts = asyncio.ensure_future(node.started())
    await asyncio.sleep(0.05)
    assert [(holder.mps, holder.percent) for holder in node.holders] == [(False, 0)]
    node.says("yielded")
    await asyncio.sleep(0.05)
    assert not starts.done(), "its daemon still runs"
    node.says("yielded", running=False)
    await starts


async def test_a_whole_gpu_that_mps_keeps_does_not_start(node: Node) -> None:
    node.pods = [Held("p", 0.0, {"main": (WHOLE,)})]
    node.says("wedged")
    assert node.partner.admit("p", "main", (WHOLE,)) is None
    assert "MpsNotReady" in await node.not_started()


async def test_a_container_that_was_answered_before_mps_starts_without_it(node: Node) -> None:
    assert node.partner.admit("p", "main", (PART,)) is None
    await node.started()


async def test_one_container_cannot_have_parts_of_two_gpus(node: Node) -> None:
    node.says("serving")
    sentence = node.refused(PART, Share("GPU-1", 1, 4))
    assert sentence == "MpsOneGpu: the container has parts of 2 GPUs, and MPS serves one"


async def test_gpus_that_mps_does_not_serve_are_answered_at_once(node: Node) -> None:
    other = Share("GPU-2", 2, 4)
    node.pods = [Held("p", 0.0, {"main": (other,)})]
    node.says("serving")
    assert node.partner.admit("p", "main", (other,)) is None
    assert [holder.mps for holder in node.holders] == [False]


async def test_without_a_component_parts_are_refused_only_where_there_should_be_one(node: Node) -> None:
    assert node.partner.admit("p", "main", (PART,)) is None
    assert [holder.mps for holder in node.holders] == [False], "a component that comes later leaves the GPU alone"
    node.labelled = True
    assert "component does not answer" in node.refused()
    assert node.partner.admit("p", "main", (WHOLE,)) is None


async def test_a_component_that_no_longer_writes_admits_nothing(node: Node) -> None:
    node.says("serving", admitted=str(exchange.folder_of(node.folder, "GPU-0") / "pipe"), age=60)
    assert "component does not answer" in node.refused()
    assert "component does not answer" in node.refused(WHOLE)


async def test_nothing_is_said_before_the_pods_are_known(node: Node) -> None:
    node.pods = None
    running = asyncio.ensure_future(node.partner.run())
    await asyncio.sleep(0.05)
    assert exchange.read_holders(node.folder) is None
    node.pods = []
    while exchange.read_holders(node.folder) is None:  # noqa: ASYNC110 - a file has no event
        await asyncio.sleep(0.01)
    running.cancel()


async def test_holders_come_back_from_the_kubelets_checkpoint_and_go_with_their_pods(node: Node) -> None:
    entry = Entry("p", "main", names.GPU_MEM, ("GPU-0::m0",), {"CUDA_MPS_PIPE_DIRECTORY": "/x"})
    node.pods = [Held("p", 9.0, {"main": (PART,), "other": (PART,)}), Held("q", 0.0, {"main": (PART,)})]
    node.partner.load([entry, entry._replace(resource=names.GPU_SLICE, envs={}), entry._replace(uid="q", envs={})])
    running = asyncio.ensure_future(node.partner.run())
    await asyncio.sleep(0.05)
    assert [(holder.key, holder.mps, holder.ends) for holder in node.holders] == [
        ("p/main", True, 9.0),
        ("q/main", False, 0.0),
    ]
    node.partner.forget("p")
    await asyncio.sleep(0.05)
    assert [holder.key for holder in node.holders] == ["q/main"]
    running.cancel()


def test_pods_hold_what_they_were_given_until_the_kubelet_kills_them() -> None:
    record = Record()
    record.fix("uid-a", {"main": ("GPU-1",)})
    record.fix("uid-b", {"main": ("GPU-2",)})
    pods = [
        a_pod("a", a_container(mem=4, slices=10)),
        a_pod("b", a_container(whole=1), deletionTimestamp="2026-11-25T12:00:30Z"),
        a_pod("unknown", a_container(mem=4)),
    ]
    inventory = an_inventory(16, 16, 16, sharing=Sharing())
    first, second = holding.holding(pods, names.DEFAULT_RESOURCES, record, inventory)
    assert (first.uid, first.ends) == ("uid-a", 0.0)
    assert first.shares == {"main": (Share("GPU-1", 1, 4, 10),)}
    assert (second.uid, second.ends) == ("uid-b", 1795608030.0)
    assert second.shares["main"][0].whole
