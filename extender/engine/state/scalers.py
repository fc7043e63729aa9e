"""ET-operator's jobs, and the ScaleIns and ScaleOuts that there are for them, whoever made them.

A job has one scaler at a time: while one is unfinished none is made. All of them are read from the cluster, so whoever
starts anew goes on where another stopped.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import msgspec

from extender.engine.state.quarantine import Quarantine
from extender.engine.types.effects import Scale, Unscale
from extender.engine.types.subject import of_scaler
from extender.engine.types.wall import Wall
from gangfilter.group import GroupKey
from protos.contract.bounds import SCALED, SCALERS
from protos.contract.training import WORKER, Scaler, ScalerKind, TrainingJob

AGAIN_S = 5.0
"""Seconds after which one that was asked for and is not seen is asked for once more."""
LOST_S = 60.0
"""Seconds after which it is not waited for any more: we may not make it, as it seems."""
FAILED_S = 30.0
"""Seconds after a ScaleIn that failed, or that somebody deleted, until the next for its job."""
KEPT_S = 600.0
"""Seconds after it was made from which one of ours is deleted, once it is finished."""
COUNTED: dict[ScalerKind, str] = {"ScaleIn": "scale_ins", "ScaleOut": "scale_outs"}


Place = tuple[ScalerKind, str, str]
"""Kind, namespace and name of a scaler."""


class Asked(msgspec.Struct):
    """One that was asked for and is not seen."""

    scaler: Scaler
    since: float
    again_at: float


class Scalers:
    """All jobs and scalers."""

    def __init__(self, counters: Counter[tuple[str, str]], quarantine: Quarantine, wall: Wall) -> None:
        self._counters, self._quarantine, self._wall = counters, quarantine, wall
        self.jobs: dict[GroupKey, TrainingJob] = {}
        self._served: set[ScalerKind] = set()
        self._of: dict[GroupKey, dict[Place, Scaler]] = {}
        """Those that have not ended, and ours; at most bounds.SCALERS of one job."""
        self._named: dict[Place, GroupKey] = {}
        """The job of each of them."""
        self._asked: dict[GroupKey, Asked] = {}
        self.ended: dict[GroupKey, float] = {}
        """When a scaler of the job was last seen to end."""
        self._failed: dict[GroupKey, float] = {}
        """When a ScaleIn of the job came to nothing."""
        self.failures: dict[GroupKey, int] = {}
        """ScaleOuts in a row of which nothing came."""

    # -- the world

    def serve(self, kind: ScalerKind, yes: bool) -> None:
        """Whether such objects can be made."""
        (self._served.add if yes else self._served.discard)(kind)

    def serves(self, key: GroupKey, kind: ScalerKind) -> bool:
        """Whether the gang is a job for which such an object can be made."""
        return key in self.jobs and kind in self._served

    def put(self, key: GroupKey, job: TrainingJob | None) -> None:
        """The job of this name, None if it is gone."""
        if job is not None:
            self.jobs[key] = job
        else:
            for known in (self.jobs, self.ended, self.failures, self._failed, self._asked):
                known.pop(key, None)

    def see(self, scaler: Scaler, now: float) -> None:
        """Take in a scaler."""
        key = GroupKey(scaler.namespace, scaler.job)
        asked = self._asked.get(key)
        if asked is not None and asked.scaler.name == scaler.name:
            del self._asked[key]
        place = (scaler.kind, scaler.namespace, scaler.name)
        if self._named.get(place, key) != key:  # it is for another job now
            self.gone(*place, now)
        before = self._of.get(key, {}).get(place)
        if before is not None and not before.outcome and scaler.outcome:
            self._end(key, scaler.kind, now, failed=scaler.outcome == "failed")
            if scaler.ours:
                self._counters[COUNTED[scaler.kind], scaler.outcome] += 1
        if scaler.outcome and not scaler.ours:
            self._forget(place)
        elif before is not None or self._room(key):
            self._of.setdefault(key, {})[place] = scaler
            self._named[place] = key
        else:
            self._counters[COUNTED[scaler.kind], "ignored"] += 1

    def gone(self, kind: ScalerKind, namespace: str, name: str, now: float) -> None:
        """A scaler is no longer there."""
        place = (kind, namespace, name)
        key = self._named.get(place)
        if key is not None and not self._of[key][place].outcome:
            self._end(key, kind, now, failed=True)
        self._forget(place)

    def _forget(self, place: Place) -> None:
        key = self._named.pop(place, None)
        if key is not None:
            del self._of[key][place]
            if not self._of[key]:
                del self._of[key]

    def _room(self, key: GroupKey) -> bool:
        """Whether one more of this job is kept; one that has ended makes room."""
        known = self._of.get(key, {})
        if len(known) < SCALERS.most:
            return True
        ended = next((place for place, scaler in known.items() if scaler.outcome), None)
        if ended is not None:
            self._forget(ended)
        return ended is not None

    def _end(self, key: GroupKey, kind: ScalerKind, now: float, *, failed: bool) -> None:
        if key not in self.jobs:  # whoever makes a scaler may name any job
            return
        self.ended[key] = now
        if kind == "ScaleIn" and failed:
            self._failed[key] = now
        if kind == "ScaleOut":
            self.failures[key] = self.failures.get(key, 0) + 1 if failed else 0

    # -- what is under way

    def unfinished(self, key: GroupKey) -> list[Scaler]:
        """The scalers of a job that have not ended, one that was only asked for among them."""
        found = [scaler for scaler in self._of.get(key, {}).values() if not scaler.outcome]
        return found + ([self._asked[key].scaler] if key in self._asked else [])

    def leaving(self, key: GroupKey) -> tuple[frozenset[str], Mapping[str, int]]:
        """The workers that ScaleIns take from a job, and how many more whose names are not known yet, by role."""
        under_way = [scaler for scaler in self.unfinished(key) if scaler.kind == "ScaleIn"]
        named = islice((name for scaler in under_way for name in scaler.pods), SCALED.most)
        return frozenset(named), {WORKER: sum(scaler.count for scaler in under_way if not scaler.pods)}

    def asked_at(self, key: GroupKey, pods: Sequence[str], now: float) -> float:
        """Since when an unfinished ScaleIn of ours asks for one of these workers; now, if none does."""
        known = [s for s in self.unfinished(key) if s.kind == "ScaleIn" and s.ours and not set(s.pods).isdisjoint(pods)]
        return min((self.made_at(scaler, now) for scaler in known), default=now)

    def made_at(self, scaler: Scaler, now: float) -> float:
        """When it was made, on the monotonic clock."""
        return min(now, self._wall.moment(scaler.created)) if scaler.created else now

    # -- what is asked for

    def shrink(self, key: GroupKey, pods: Sequence[str], now: float) -> Iterator[Scale]:
        """Ask that these workers go, unless something is under way for their job."""
        if now < self._failed.get(key, -FAILED_S) + FAILED_S:
            return
        wanted = Scaler(kind="ScaleIn", namespace=key.namespace, name="", job=key.name, ours=True, count=len(pods))
        yield from self._ask(key, msgspec.structs.replace(wanted, pods=tuple(sorted(pods))), now)

    def overdue(self) -> None:
        """A job has not let its workers go in time."""
        self._counters["scale_ins", "overdue"] += 1

    def grow(self, key: GroupKey, count: int, timeout_s: float, now: float) -> Iterator[Scale]:
        """Ask that so many workers come, unless something is under way for their job."""
        wanted = Scaler(kind="ScaleOut", namespace=key.namespace, name="", job=key.name, ours=True, count=count)
        yield from self._ask(key, msgspec.structs.replace(wanted, timeout_s=timeout_s), now)

    def _ask(self, key: GroupKey, wanted: Scaler, now: float) -> Iterator[Scale]:
        if self.unfinished(key) or not self.serves(key, wanted.kind):
            return
        scaler = msgspec.structs.replace(wanted, name=self._name(key, wanted))
        self._asked[key] = Asked(scaler, now, now + AGAIN_S)
        self._counters[COUNTED[scaler.kind], "created"] += 1
        yield Scale(scaler)

    def _name(self, key: GroupKey, scaler: Scaler) -> str:
        """The same for the same need, so that two who ask for it make one object."""
        made_of = [
            self.jobs[key].uid,
            str(scaler.count),
            *scaler.pods,
            *sorted(name for _, _, name in self._of.get(key, {})),
        ]
        way = "in" if scaler.kind == "ScaleIn" else "out"
        return f"{key.name}-{way}-{hashlib.sha256(' '.join(made_of).encode()).hexdigest()[:8]}"

    def give_up(self) -> None:
        """What was asked for and never seen is not waited for any more: another process decides now."""
        self._asked.clear()

    def tick(self, now: float) -> Iterator[Scale | Unscale]:
        """Ask again for what is not seen, for a while; those of ours that have long been finished may go."""
        for key, asked in list(self._asked.items()):
            if now >= asked.since + LOST_S:
                del self._asked[key]
                self._end(key, asked.scaler.kind, now, failed=True)
            elif now >= asked.again_at:
                asked.again_at = now + AGAIN_S
                yield Scale(asked.scaler)

        def over(scaler: Scaler) -> Unscale | None:
            goes = scaler.ours and scaler.outcome and now >= self.made_at(scaler, now) + KEPT_S
            return Unscale(scaler) if goes else None

        scalers = [scaler for known in self._of.values() for scaler in known.values()]
        yield from filter(None, self._quarantine.tried(scalers, of_scaler, "scalers", over))
