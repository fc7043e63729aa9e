"""A naive model of replacement holds: which must be kept, which may be, and that no other pod gets their GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from extender.engine.cycle.engine import Engine
from extender.engine.state.pod_state import PodState
from gangfilter.group import GroupKey
from gangfilter.members import PLACED, Stage
from gangfilter.table import Phase
from protos.contract import allocation, names
from protos.contract.allocation import Share
from protos.contract.objects import Pod

KEEPING = (Phase.BINDING, Phase.DEGRADED)


class Lost(msgspec.Struct, frozen=True):
    """A room that a member left."""

    gang: str
    name: str
    node: str
    shares: Mapping[str, tuple[Share, ...]]
    cpu: int
    at: float


class LostRooms:
    """Beside the world: what its members left, and what of that must be kept."""

    def __init__(self, last_s: float) -> None:
        self.last_s = last_s
        self.all: dict[str, Lost] = {}
        """By the UID of the lost member."""
        self.kept: dict[str, Lost] = {}
        """Those that must be kept, as long as nothing ends them."""

    def leave(self, pod: Pod, gang: str, now: float) -> None:
        """A pod that ran is gone."""
        given = allocation.decode(pod.metadata.annotations.get(names.ALLOCATION))
        shares = given.containers if given else {}
        self.all[pod.metadata.uid] = Lost(gang, pod.metadata.name, pod.spec.node_name or "", shares, 1000, now)

    def must_keep(self, uid: str, engine: Engine, least: int) -> None:
        """The engine has heard of it: its room is kept where the gang is short of members."""
        lost = self.all[uid]
        if not _given_on(engine, lost) and self._short(engine, lost.gang, least) > len(self._of(lost.gang)):
            self.kept[uid] = lost

    def node_went(self, node: str) -> None:
        """Nothing is kept on a node that is gone, also if it comes back."""
        self.kept = {uid: lost for uid, lost in self.kept.items() if lost.node != node}

    def shares(self) -> Iterable[Share]:
        """GPUs that no other pod may get."""
        for lost in self.kept.values():
            for given in lost.shares.values():
                yield from given

    def may_go_to(self, gang: str, role: str) -> set[str]:
        """Where a member that comes for one that was lost is sent."""
        return {lost.node for lost in self._of(gang).values() if lost.name.startswith(role)}

    def _of(self, gang: str) -> dict[str, Lost]:
        return {uid: lost for uid, lost in self.kept.items() if lost.gang == gang}

    def _short(self, engine: Engine, gang: str, least: int) -> int:
        known = engine.gangs.roster.known.get(GroupKey("default", gang))
        if known is None or known.gang.phase not in KEEPING or known.gang.terms.on_member_lost != "wait":
            return 0
        return least - known.gang.count(*PLACED, Stage.POSTED)

    def remembered_by(self, engine: Engine) -> None:
        """Another process goes on, which may not have seen everything."""
        self.kept = {uid: lost for uid, lost in self.kept.items() if f"slot-{uid}" in engine.ledger.keepers}

    # -- what must hold

    def check(self, engine: Engine, leasts: Mapping[str, int], now: float) -> None:
        """That what is kept is what was lost, and not too much of it."""
        found = self._found(engine)
        for uid, pod in found.items():
            lost = self.all[uid]
            assert (pod.node, pod.state, dict(pod.requests)["cpu"]) == (lost.node, "held", lost.cpu)
            assert now <= lost.at + self.last_s + 1.5, f"the room of {lost.name} is kept for too long"
            assert engine.nodes[lost.node].seen, f"the room of {lost.name} is on a node that is gone"
            books: Any = engine.nodes[lost.node].books
            charged = set(books.entries[pod.ref.uid].charges) if lost.shares else set()
            assert charged == {share.uuid for given in lost.shares.values() for share in given}
        for gang, least in leasts.items():
            here = [uid for uid in found if self.all[uid].gang == gang]
            short = self._short(engine, gang, least)
            launcher = any(self.all[uid].name.startswith("launcher") for uid in here)
            assert len(here) <= max(0, short) + launcher, f"{gang} is short of {short} and keeps {len(here)} rooms"

    def check_kept(self, engine: Engine, leasts: Mapping[str, int], now: float, *, leads: bool) -> None:
        """Check that the leader keeps what must be kept, and forget what is not needed any more."""
        found = self._found(engine)
        self.kept = {uid: lost for uid, lost in self.kept.items() if not _given_on(engine, lost)}
        for gang, least in leasts.items():
            must = {uid: lost for uid, lost in self._of(gang).items() if now < lost.at + self.last_s}
            short = self._short(engine, gang, least)
            enough = len(found.keys() & must.keys()) >= min(len(must), short)
            assert enough or not leads, f"{gang} is short of {short}, {must} is not kept"
        self.kept = {uid: lost for uid, lost in self.kept.items() if uid in found}

    def _found(self, engine: Engine) -> dict[str, PodState]:
        return {uid.removeprefix("slot-"): pod for uid, pod in engine.ledger.keepers.items()}


def _given_on(engine: Engine, lost: Lost) -> bool:
    """Whether a member that waited already has it by now."""
    return any(
        (assignment.node, assignment.shares) == (lost.node, lost.shares)
        for assignment in engine.gangs.assignments.of_member.values()
    )
