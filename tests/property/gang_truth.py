"""The truth of a naive world for gangs: which pods there are, where they run, and what became of each gang.

Nothing in here knows how the engine decides.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec

from gangfilter.gang import BEFORE
from gangfilter.group import GroupKey
from protos.contract import names
from protos.contract.objects import Pod
from protos.contract.timestamps import epoch_seconds
from tests.builders import a_node
from tests.property.lost_rooms import LostRooms
from tests.unit.engine.gang_story import WALL, GangStory

NODES = {"a": (16, 16), "b": (16,), "c": (16, 24)}
CPUS = 4
"""Of each node; every pod takes one."""
ASKS: tuple[dict[str, Any], ...] = ({"mem": 8}, {"mem": 16}, {"mem": 5, "slices": 50}, {"whole": 1}, {"whole": 2}, {})
SLOT_S = 40.0
"""For which a lost member's room is kept."""
SLACK_S = 8.0
"""For ticks, and an eviction said once more."""


class Sort(msgspec.Struct):
    """What the world knows of one gang."""

    least: int
    owner: str
    lost: str
    ends: str
    launcher: bool
    passed: bool = False
    """It passed the barrier, and members of that start are left."""
    pending: bool = False
    """It is to be finished or undone."""
    half_since: float | None = None
    """Since when it is half meanwhile."""
    released_at: float = 0.0
    gone: int = 0
    """Pods of the present life that have succeeded and were deleted since: what they have done stays done."""


class GangTruth(GangStory):
    """What the engine is held against."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.made = 0
        self.sorts: dict[str, Sort] = {}
        self.closed: set[str] = set()
        """Nodes that kube-scheduler refuses for reasons of its own."""
        self.coming: set[str] = set()
        """Pods that kube-scheduler will take by itself: new, woken, or in its backoff."""
        self.kept_off: dict[str, set[str]] = {}
        """Nodes that kube-scheduler itself kept a pod off: when one of them has room, it tries the pod again."""
        self.landed_at: dict[str, float] = {}
        """By UID."""
        self.offers: dict[str, str] = {}
        """Pods between filter and bind, with their node."""
        self.to_go: dict[str, bool] = {}
        """Evictions not carried out yet; whether the pod is then replaced."""
        self.asked_to_go: set[str] = set()
        """UIDs."""
        self.missing: list[Pod] = []
        """Pods that their controller will replace."""
        self.rooms = LostRooms(SLOT_S)
        super().__init__(
            *(self.a_node(name) for name in NODES),
            replacement_hold_s=SLOT_S,
            backfill_delay_s=draw.choice((0.0, 5.0)),
        )

    def a_node(self, name: str) -> Any:
        return a_node(name, *NODES[name], allocatable={"cpu": str(CPUS), "memory": "64Gi", "pods": "20"})

    # -- places

    def gang_of(self, name: str) -> str:
        return self.pods[name].metadata.annotations.get(names.GROUP, "") if name in self.pods else ""

    def of_gang(self, gang: str) -> list[str]:
        return sorted(name for name in self.pods if self.gang_of(name) == gang)

    def owner(self, pod: Pod) -> str:
        return pod.metadata.owner_references[0].uid if pod.metadata.owner_references else ""

    def alive_at_node(self, name: str) -> bool:
        pod = self.pods[name]
        return bool(pod.spec.node_name) and pod.status.phase == "Pending" and not pod.metadata.deletion_timestamp

    def bound_in(self, gang: str) -> list[str]:
        return [name for name in self.of_gang(gang) if self.alive_at_node(name)]

    def done_in(self, gang: str) -> int:
        there = sum(self.pods[name].status.phase == "Succeeded" for name in self.of_gang(gang))
        return there + self.sorts[gang].gone

    def waiting(self) -> list[str]:
        """Pods that have no node, and no Binding under way."""
        return sorted(n for n, pod in self.pods.items() if not pod.spec.node_name and n not in self.flying)

    def free_cpus(self, node: str) -> int:
        """As kube-scheduler counts: with the pods that are in bind."""
        here = [n for n, pod in self.pods.items() if pod.spec.node_name == node and pod.status.phase == "Pending"]
        assumed = {n for n in {*self.held, *self.flying, *self.offers} if self.assumed_node(n) == node}
        return CPUS - len(here) - len(assumed)

    def assumed_node(self, name: str) -> str:
        if name in self.offers:
            return self.offers[name]
        if name in self.flying:
            return self.flying[name].node
        state = self.engine.pods.get(self.pods[name].metadata.uid) if name in self.pods else None
        return state.node if state else ""

    def born(self, name: str) -> float:
        return epoch_seconds(self.pods[name].metadata.creation_timestamp or "") - WALL

    # -- what became of gangs

    def mark(self) -> None:
        """Note which gangs are whole, and which are over."""
        roomy = {node for node in self.nodes if node not in self.closed and self.free_cpus(node) > 0}
        for name in [name for name, nodes in self.kept_off.items() if nodes & roomy]:
            del self.kept_off[name]
            self.coming |= {name} & set(self.pods)
        for gang, sort in self.sorts.items():
            known = self.engine.gangs.roster.known.get(GroupKey("default", gang))
            if known is None or known.gang.phase in BEFORE:
                sort.gone = 0
            for name in self.bound_in(gang):
                self.landed_at.setdefault(self.pods[name].metadata.uid, self.now)
            alive = len(self.bound_in(gang))
            total = alive + self.done_in(gang)
            flying = any(self.gang_of(name) == gang for name in self.flying)
            if sort.passed and total >= sort.least:
                sort.pending, sort.half_since = False, None
            elif sort.pending and alive and sort.half_since is None:
                sort.half_since = self.now
            sort.half_since = sort.half_since if alive else None
            if not alive and not flying:
                young = self.now <= sort.released_at + self.settings.patience.gang_bind_timeout_s
                sort.pending = sort.pending and young
                sort.passed = sort.passed and (young or total >= sort.least)

    def forgive(self) -> None:
        """A process that comes new, or that was not allowed to write, has the time once more."""
        for gang, sort in self.sorts.items():
            if sort.half_since is not None:
                young = any(
                    not self.pods[n].spec.node_name and self.born(n) <= sort.released_at for n in self.of_gang(gang)
                )
                sort.half_since, sort.pending = (self.now if young else None), young
