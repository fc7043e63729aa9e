"""Gangs of random size on scarce GPUs while members die, Bindings fail, processes end and nodes are lost: all get done.

What shall hold is looked at all the while. What happens is seeded; when it happens is the machine's.
"""

from __future__ import annotations

import contextlib
import random
import time
import uuid
from collections.abc import Iterator, Sequence

import pytest

from protos.contract import names
from tests.cluster.api import ApiError, Json
from tests.cluster.beside import Beside
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import Gangshare, a_gpu_pod
from tests.cluster.process import wait_for
from tests.cluster.replicas import EXTENDER, SHORT, revive
from tests.cluster.standins.bindings import Bindings
from tests.cluster.witness import Witness

PODS = "/api/v1/namespaces/default/pods"
NODES = ("node-1", "node-2")
GPUS = 12
"""Four T4 of 14 units each and eight V100 of 31."""
HALF_S = 30.0
"""For which no gang may be half, whatever happens meanwhile; left alone it is finished or undone after a third."""
UNLUCKY = 0.1
"""Of Bindings."""


@pytest.fixture(scope="module")
def sharing(cluster: Cluster) -> Iterator[Gangshare]:
    machines, args = {"node-1": "t4x4", "node-2": "dgx1-v100"}, [*EXTENDER, "--gang-bind-timeout=10"]
    running = Gangshare(cluster, machines, election=SHORT, extender_args=args)
    yield running.start()
    running.stop()


@pytest.fixture(autouse=True)
def tidy(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.delete_pods(timeout=120)


class Jobs(Beside):
    """The controllers of all gangs, as a context manager: members that fail or go are made anew until all succeeded."""

    every_s = 0.3

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._wanted: dict[str, Json] = {}
        self._done: set[str] = set()
        self.broken: Exception | None = None

    @property
    def left(self) -> set[str]:
        """Members that have not succeeded yet."""
        return self._wanted.keys() - self._done

    def submit(self, members: Sequence[Json]) -> None:
        self._wanted = {**self._wanted, **{pod["metadata"]["name"]: pod for pod in members}}

    def _turn(self) -> None:
        wanted = self._wanted
        try:
            there = {pod["metadata"]["name"]: pod for pod in self._cluster.pods("default")}
            self._done = {name for name, pod in there.items() if _has(pod, "Succeeded")}
            for name, manifest in wanted.items():
                if name not in there:
                    self._cluster.create_pod(manifest)
                elif _has(there[name], "Failed"):
                    self._cluster.api.delete(f"{PODS}/{name}", gracePeriodSeconds="0")
        except OSError as error:
            self.broken = error  # tried again


def _has(pod: Json | None, phase: str) -> bool:
    return pod is not None and pod["status"]["phase"] == phase


class Booked:
    """Looks at the books again and again: what may be seen for a moment may not be seen twice."""

    def __init__(self, sharing: Gangshare) -> None:
        self._sharing = sharing
        self._before: set[str] = set()
        self.wrong: list[str] = []

    def look(self) -> None:
        """Compare the books with the pods, as they were before and after."""
        cluster = self._sharing.cluster
        try:
            before, books, after = cluster.pods("default"), self._sharing.pair.inspect(), cluster.pods("default")
        except OSError:
            return  # the extender is away
        live = {pod["metadata"]["uid"] for pod in [*before, *after]}
        doubts = {f"{p['name']} is booked, and gone" for p in books["pods"] if p["uid"] not in live}
        waiting = {f"{g['namespace']}/{g['name']}" for g in books["groups"] if g["phase"] in ("Assembling", "Waiting")}
        gang_of = {p["metadata"]["uid"]: f"default/{p['metadata']['annotations'][names.GROUP]}" for p in after}
        doubts |= {
            f"{p['name']} holds a place of a gang that waits"
            for p in books["pods"]
            if p["state"] == "held" and gang_of.get(p["uid"]) in waiting
        }
        if books["problems"]["overused"]:
            doubts.add("GPUs are overused")
        self.wrong += sorted(doubts & self._before)
        self._before = doubts


def a_job(name: str, chance: random.Random, most: int) -> list[Json]:
    """Members with up to four GPUs, and perhaps one without any; they work for a second or two."""
    size = chance.randint(2, most)
    each = chance.choice([whole for whole in (1, 1, 2, 4) if whole == 1 or whole * size <= GPUS / 2])
    asked = {"whole": each} if chance.random() < 0.6 else {"mem": 7}
    amounts = [asked] * size + [{}] * (chance.random() < 0.3)
    annotations = {
        names.GROUP: name,
        names.MIN_MEMBER: str(len(amounts)),
        names.ON_MEMBER_LOST: chance.choice(["wait", "restart"]),
        names.MIXED_MODELS: "allow",
    }
    owner = {"apiVersion": "example.com/v1", "kind": "Training", "name": name, "uid": str(uuid.uuid4())}
    script = f"sleep {chance.choice([1, 2])}"
    made = [a_gpu_pod(f"{name}-{i}", annotations=annotations, script=script, **a) for i, a in enumerate(amounts)]
    for pod in made:
        pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    return made


def disturb(sharing: Gangshare, chance: random.Random, kind: str) -> None:
    """One misfortune."""
    node = chance.choice(NODES)
    match kind:
        case "member":
            kill_one(sharing.cluster, chance)
        case "extender":
            sharing.pair.extender.kill()
            sharing.pair.extender.start()
        case "scheduler":
            scheduler = sharing.pair.scheduler
            assert scheduler is not None
            (scheduler.process.kill if chance.random() < 0.5 else scheduler.process.stop)()
            scheduler.process.start()
        case "plugin":
            sharing.plugins[node].kill()
            sharing.plugins[node].start()
        case "kubelet":
            sharing.cluster.nodes[node].kubelet.kill()
            sharing.cluster.nodes[node].kubelet.start()
        case "node":
            sharing.reboot(node)


def kill_one(cluster: Cluster, chance: random.Random) -> None:
    found = [pod["metadata"] for pod in cluster.pods("default") if not _has(pod, "Succeeded")]
    if not found:
        return
    victim = chance.choice(sorted(found, key=lambda metadata: str(metadata["name"])))
    with contextlib.suppress(ApiError):
        cluster.api.delete(f"{PODS}/{victim['name']}", gracePeriodSeconds="1")


FEW = ["member", "member", "extender", "scheduler", "member", "kubelet", "member"]
MANY = ["member"] * 8 + ["extender", "scheduler", "plugin", "kubelet"] * 2 + ["node", "node"]
LONG_RUN = [pytest.mark.long, pytest.mark.timeout(1200)]


@pytest.mark.parametrize(
    ("seed", "gangs", "most", "misfortunes"),
    [(7, 8, 4, FEW), *(pytest.param(seed, 20, 8, MANY, marks=LONG_RUN) for seed in range(3))],
)
def test_whatever_happens_every_gang_gets_done_and_none_is_half_for_long(
    sharing: Gangshare, seed: int, gangs: int, most: int, misfortunes: list[str]
) -> None:
    chance = random.Random(seed)
    coming = chance.sample(misfortunes, len(misfortunes))
    booked = Booked(sharing)
    with Bindings(sharing.cluster) as bindings, Witness(sharing.cluster) as witness, Jobs(sharing.cluster) as jobs:
        bindings.fails = lambda _pod: chance.random() < UNLUCKY
        for i in range(gangs):
            jobs.submit(a_job(f"g{seed}-{i}", chance, most))
            time.sleep(chance.uniform(0, 0.5))
            booked.look()
            if i % 2 and coming:
                disturb(sharing, chance, coming.pop())
        for kind in coming:
            time.sleep(chance.uniform(0.5, 2))
            booked.look()
            disturb(sharing, chance, kind)

        def over() -> bool:
            revive(sharing.pair)  # kube-scheduler ends when it is too slow to renew its Lease
            booked.look()
            assert not jobs.left, f"{sorted(jobs.left)} are not done; {jobs.broken}"
            return True

        wait_for(over, 60 + 20 * gangs, "end of all gangs", every=1)
    witness.check(HALF_S)
    assert booked.wrong == []
    assert "invariant_violated" not in sharing.pair.extender.text()
    wait_for(lambda: sharing.pair.inspect()["pods"] == [], 30, "books without pods")
