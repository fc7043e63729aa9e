"""When the plugin removes the startup taint of its node."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from deviceplugin import startup_taint
from deviceplugin.settings import Settings
from deviceplugin.startup_taint import StartupTaint, offers
from protos.contract import inventory, names
from protos.contract.objects import Node, NodeSpec, Taint
from protos.contract.shared_settings import SettingsError
from protos.kube import errors
from tests.builders import a_node
from tests.unit.deviceplugin.builders import an_inventory

OURS = Taint(names.STARTUP_TAINT, "NoSchedule")
OTHER = Taint("nvidia.com/gpu", "NoSchedule", "present")


class Cluster:
    """The node, and the taints that were removed from it."""

    def __init__(self, node: Node | None) -> None:
        self.node = node
        self.removed: list[Taint] = []
        self.fails = 0

    async def remove_taint(self, node: Node, taint: Taint) -> None:
        if self.fails:
            self.fails -= 1
            raise errors.Conflict("PATCH node", message="it was changed")
        self.removed.append(taint)
        rest = tuple(each for each in node.spec.taints if each != taint)
        self.node = msgspec.structs.replace(node, spec=NodeSpec(taints=rest))


def a_new_node(*taints: Taint, mem: int | str = 64, state: str = "ready", published: bool = True) -> Node:
    shown = inventory.encode(msgspec.structs.replace(an_inventory(), state=state))
    node = a_node("n", annotations={names.GPUS: shown} if published else {})
    status = msgspec.structs.replace(node.status, allocatable={names.GPU_MEM: mem})
    return msgspec.structs.replace(node, spec=NodeSpec(taints=taints), status=status)


async def run(cluster: Any, *, settled: bool = True, until: int = 1) -> None:
    """Run until so many looks have begun, and that which has begun has ended."""
    looks, done = 0, asyncio.Event()

    def look() -> bool:
        nonlocal looks
        looks += 1
        if looks >= until:
            done.set()
        return settled

    work = asyncio.create_task(StartupTaint(cluster, names.STARTUP_TAINT, names.GPU_MEM, look).run())
    await done.wait()
    work.cancel()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup_taint, "LOOK_S", 0)
    monkeypatch.setattr(startup_taint, "RETRY_S", 0)


async def test_it_goes_once_the_node_offers_its_gpus_and_the_other_taints_stay() -> None:
    cluster = Cluster(a_new_node(OTHER, OURS))
    await run(cluster)
    assert cluster.removed == [OURS]
    assert cluster.node is not None
    assert cluster.node.spec.taints == (OTHER,)


async def test_a_refused_write_is_tried_again() -> None:
    cluster = Cluster(a_new_node(OURS))
    cluster.fails = 2
    await run(cluster, until=3)
    assert cluster.removed == [OURS]


@pytest.mark.parametrize("settled", [True, False])
async def test_it_stays_while_the_kubelet_does_not_follow_our_devices(settled: bool) -> None:
    cluster = Cluster(a_new_node(OURS))
    await run(cluster, settled=settled)
    assert bool(cluster.removed) is settled


@pytest.mark.parametrize(
    ("node", "ready"),
    [
        (a_new_node(OURS), True),
        (a_new_node(OURS, published=False), False),
        (a_new_node(OURS, state="leaving"), False),
        (a_new_node(OURS, mem=0), False),
        (a_new_node(OURS, mem="many"), False),
        (a_node("n", annotations={names.GPUS: "{"}), False),
    ],
)
def test_a_node_offers_gpus_if_all_know_of_them(node: Node, ready: bool) -> None:
    assert offers(node, names.GPU_MEM) is ready


@pytest.mark.parametrize("key", ["a b", "/x", "-", "x" * 64])
def test_the_key_must_be_one_of_a_taint(key: str) -> None:
    with pytest.raises(SettingsError, match=r"--startup-taint is .*: expected the key of a taint, like startup-taint"):
        Settings(node_name="n", startup_taint=key)
