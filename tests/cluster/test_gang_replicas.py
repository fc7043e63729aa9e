"""Gangs on nodes without kubelets, and two pairs of scheduler and extender: the leading one is lost during a start."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import pytest

from protos.contract import allocation, names
from tests.bench import bodies
from tests.cluster import bare
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import Gangshare, Pair, get
from tests.cluster.process import wait_for
from tests.cluster.replicas import EXTENDER, PAIRS, SHORT, both_well, go_on, kill, leading, processes, stop, terminate
from tests.cluster.standins.bindings import Bindings
from tests.cluster.witness import Witness

Loss = Literal["SIGTERM", "SIGKILL", "SIGSTOP"]
GANG = "torn"
OF_GANG = "default", f"gang={GANG}"
NODES = [f"bare-{i}" for i in range(5)]
MEMBERS = 40
"""Of five times eight GPUs: the gang needs every one of them."""
LISTED_S = 3.0
"""In which a new leader would have read the cluster, and placed the rest of a gang."""
WHOLE_S = 30.0
"""For which a gang may be half: the extenders' default."""


@pytest.fixture(scope="module")
def cluster(able_machine: None) -> Iterator[Cluster]:
    with bare.up(NODES) as running:
        yield running


@pytest.fixture(scope="module")
def sharing(cluster: Cluster) -> Iterator[Gangshare]:
    running = Gangshare(cluster, {}, pairs=PAIRS, election=SHORT, extender_args=EXTENDER)
    yield running.start()
    running.stop()


@pytest.fixture
def leader(sharing: Gangshare) -> Iterator[Pair]:
    """The pair that leads; the other one is well, too."""
    found, _ = both_well(sharing)
    yield found
    for process in processes(found):
        process.resume()
    bare.tidy(sharing.cluster)


@pytest.fixture
def bindings(cluster: Cluster) -> Iterator[Bindings]:
    with Bindings(cluster) as passing:
        yield passing


def start(cluster: Cluster, launcher: Mapping[str, Any] | None = None) -> None:
    """A gang of which all members belong to controllers; `launcher` has fields of the launcher's container."""
    whole = {names.WHOLE_GPU: 1}
    cluster.api.post(bare.SETS, bare.members(GANG, "launcher", 1, MEMBERS, whole, container=launcher or {}))
    cluster.api.post(bare.SETS, bare.members(GANG, "worker", MEMBERS - 1, MEMBERS, whole))


def in_bind(pair: Pair) -> int:
    """How many members the pair keeps in bind."""
    group = json.loads(get(pair.status, f"/explain/groups/default/{GANG}"))
    return [member["stage"] for member in group["members"]].count("In_bind")


def lose(leader: Pair, loss: Loss) -> None:
    """The pair ends, or is stopped."""
    {"SIGTERM": terminate, "SIGKILL": kill, "SIGSTOP": stop}[loss](leader)


def test_a_new_leader_waits_for_the_bindings_of_an_extender_that_only_lost_the_lease(
    sharing: Gangshare, leader: Pair, bindings: Bindings
) -> None:
    """kube-scheduler gives the Lease up at SIGTERM, while Bindings of its extender are still under way."""
    cluster, (other,) = sharing.cluster, (pair for pair in sharing.pairs.values() if pair is not leader)
    assert leader.scheduler is not None
    bindings.stop_after(3)
    with Witness(cluster) as witness:
        start(cluster)
        wait_for(lambda: bindings.kept and len(bare.bound(cluster, GANG)) == 3, 60, "half gang", every=0.01)
        leader.scheduler.process.stop()
        wait_for(lambda: other.metric("gangshare_leader") == 1, 60, "change of leader")
        time.sleep(LISTED_S)
        bindings.release()
        ends_up_whole(sharing, leader)
    witness.check(WHOLE_S)


def goes_on(sharing: Gangshare, leader: Pair, seconds: float) -> None:
    """Once the other pair leads, and the loss was so long ago, the former leader goes on, if it is there."""
    (other,) = (pair for pair in sharing.pairs.values() if pair is not leader)
    since = time.monotonic()
    wait_for(lambda: other.metric("gangshare_leader") == 1, 60, "change of leader")
    time.sleep(max(0.0, seconds - (time.monotonic() - since)))
    go_on(leader)


def ends_up_whole(sharing: Gangshare, leader: Pair) -> None:
    """All members are bound, by one start, as the books of whoever leads say."""
    cluster = sharing.cluster
    wait_for(lambda: len(bare.bound(cluster, GANG)) == MEMBERS, 90, "gang bound as a whole", every=0.5)
    told = [allocation.decode(pod["metadata"]["annotations"][names.ALLOCATION]) for pod in cluster.pods(*OF_GANG)]
    starts = {(found.group.key, found.group.epoch) for found in told if found and found.group}
    assert len(starts) == 1, starts

    def agreed() -> bool:
        now = leading(sharing)
        assert now is not leader
        books = now.inspect()
        assert [pod["state"] for pod in books["pods"]] == ["bound"] * MEMBERS
        assert [group["phase"] for group in books["groups"]] == ["Running"]
        assert books["problems"]["overused"] == 0
        return True

    wait_for(agreed, 30, "the same in the books")


ALL = [("SIGTERM", 0.0), ("SIGKILL", 0.0), ("SIGSTOP", 0.0)]
LONG = [pytest.param("SIGSTOP", 30.0, marks=pytest.mark.long)]


@pytest.mark.parametrize(("loss", "seconds"), [*ALL, *LONG])
def test_a_gang_whose_leader_is_lost_between_its_bindings_ends_up_whole(
    sharing: Gangshare, leader: Pair, bindings: Bindings, loss: Loss, seconds: float
) -> None:
    """Where the leader was stopped, Bindings that it sent before are carried out meanwhile."""
    bindings.stop_after(3)
    with Witness(sharing.cluster) as witness:
        start(sharing.cluster)
        wait_for(lambda: bindings.kept and len(bare.bound(sharing.cluster, GANG)) == 3, 60, "half gang", every=0.01)
        lose(leader, loss)
        bindings.release()
        goes_on(sharing, leader, seconds)
        ends_up_whole(sharing, leader)
    witness.check(WHOLE_S)


@pytest.mark.parametrize(("loss", "seconds"), [*ALL, *LONG])
def test_a_gang_whose_leader_is_lost_while_members_are_held_starts_as_a_whole(
    sharing: Gangshare, leader: Pair, loss: Loss, seconds: float
) -> None:
    """The last member is kept off every node by kube-scheduler itself, until the leader is lost."""
    cluster = sharing.cluster
    for node in NODES:
        cluster.create_pod(bare.taken_port(node))
    with Witness(cluster) as witness:
        start(cluster, bare.wanting_port())
        wait_for(lambda: in_bind(leader) == MEMBERS - 1, 60, "members in bind", every=0.01)
        lose(leader, loss)
        assert bare.bound(cluster, GANG) == []
        for node in NODES:
            cluster.api.delete(f"{bare.PODS}/port-{node}", **bare.NOW)
        goes_on(sharing, leader, seconds)
        ends_up_whole(sharing, leader)
    witness.check(WHOLE_S)


@pytest.fixture
def growing(cluster: Cluster) -> Iterator[str]:
    """99 GPUs in all; the node that shall get one more."""
    nodes = {f"more-{i}": bodies.GPUS for i in range(7)} | {"growing": 3}
    for name, gpus in nodes.items():
        cluster.api.post(bare.NODES, bare.a_node(name, gpus))
    yield "growing"
    for name in nodes:
        cluster.api.delete(f"{bare.NODES}/{name}")


def test_a_hundred_members_on_99_gpus_hold_nothing_and_start_with_one_more(
    sharing: Gangshare, leader: Pair, growing: str
) -> None:
    cluster = sharing.cluster
    with Witness(cluster) as witness:
        cluster.api.post(bare.SETS, bare.members(GANG, "worker", 100, 100, {names.WHOLE_GPU: 1}))
        explained = f"/explain/groups/default/{GANG}"
        wait_for(lambda: "99 can be placed" in get(leader.status, explained), 60, "why it waits")
        assert bare.bound(cluster, GANG) == []
        assert leader.inspect()["pods"] == []
        bare.change(cluster, bare.a_node(growing, 4))
        wait_for(lambda: len(bare.bound(cluster, GANG)) == 100, 60, "all hundred bound")
    witness.check(WHOLE_S)
