"""ET-operator's jobs, and their scalers: ScaleIns and ScaleOuts, ours and others'.

A job has one unfinished scaler at a time. All scalers are read from the cluster, so a restarted extender goes on where
the last one stopped.
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
"""Seconds until the creation of an unseen scaler is repeated."""
LOST_S = 60.0
"""Seconds until an unseen scaler counts as failed: perhaps we have no right to create it."""
FAILED_S = 30.0
"""Seconds from a failed or deleted ScaleIn to the next for its job."""
KEPT_S = 600.0
"""Seconds from creation until a finished scaler of ours is deleted."""
COUNTED: dict[ScalerKind, str] = {"ScaleIn": "scale_ins", "ScaleOut": "scale_outs"}

Place = tuple[ScalerKind, str, str]
"""Kind, namespace and name of a scaler."""


class Asked(msgspec.Struct):
    """A scaler that we create and have not seen."""

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
        """Unfinished scalers, and all of ours; at most bounds.SCALERS for each job."""
        self._named: dict[Place, GroupKey] = {}
        """The job of each scaler."""
        self._asked: dict[GroupKey, Asked] = {}
        self.ended: dict[GroupKey, float] = {}
        """When the job's last scaler ended."""
        self._failed: dict[GroupKey, float] = {}
        """When the job's last ScaleIn failed."""
        self.failures: dict[GroupKey, int] = {}
        """Failed ScaleOuts in a row."""

    # -- events

    def serve(self, kind: ScalerKind, yes: bool) -> None:
        """Whether scalers of this kind can be created."""
        (self._served.add if yes else self._served.discard)(kind)

    def serves(self, key: GroupKey, kind: ScalerKind) -> bool:
        """Whether a scaler of this kind can be created for the gang, as it is a job."""
        return key in self.jobs and kind in self._served

    def put(self, key: GroupKey, job: TrainingJob | None) -> None:
        """Set a job, None if it is gone."""
        if job is not None:
            self.jobs[key] = job
        else:
            for known in (self.jobs, self.ended, self.failures, self._failed, self._asked):
                known.pop(key, None)

    def see(self, scaler: Scaler, now: float) -> None:
        key = GroupKey(scaler.namespace, scaler.job)
        asked = self._asked.get(key)
        if asked is not None and asked.scaler.name == scaler.name:
            del self._asked[key]
        place = (scaler.kind, scaler.namespace, scaler.name)
        if self._named.get(place, key) != key:  # it names another job now
            self.gone(*place, now)
        before = self._of.get(key, {}).get(place)
        if before is not None and not before.outcome and scaler.outcome:
            self._end(key, scaler.kind, now, failed=scaler.outcome == "failed")
            if scaler.ours:
                self._counters[COUNTED[scaler.kind], scaler.outcome] += 1
        if scaler.outcome and not scaler.ours:
            self._forget(place)
        elif before is not None or self._has_space(key):
            self._of.setdefault(key, {})[place] = scaler
            self._named[place] = key
        else:
            self._counters[COUNTED[scaler.kind], "ignored"] += 1

    def gone(self, kind: ScalerKind, namespace: str, name: str, now: float) -> None:
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

    def _has_space(self, key: GroupKey) -> bool:
        """Whether one more scaler of this job can be recorded; an ended one is dropped for it."""
        known = self._of.get(key, {})
        if len(known) < SCALERS.most:
            return True
        ended = next((place for place, scaler in known.items() if scaler.outcome), None)
        if ended is not None:
            self._forget(ended)
        return ended is not None

    def _end(self, key: GroupKey, kind: ScalerKind, now: float, *, failed: bool) -> None:
        if key not in self.jobs:  # a scaler may name anything as its job
            return
        self.ended[key] = now
        if kind == "ScaleIn" and failed:
            self._failed[key] = now
        if kind == "ScaleOut":
            self.failures[key] = self.failures.get(key, 0) + 1 if failed else 0

    # -- queries

    def unfinished(self, key: GroupKey) -> list[Scaler]:
        """The job's unfinished scalers, including one that we have not seen yet."""
        seen = [scaler for scaler in self._of.get(key, {}).values() if not scaler.outcome]
        return seen + ([self._asked[key].scaler] if key in self._asked else [])

    def leaving(self, key: GroupKey) -> tuple[frozenset[str], Mapping[str, int]]:
        """The workers that ScaleIns remove from a job by name, and the number removed without name, by role."""
        under_way = [scaler for scaler in self.unfinished(key) if scaler.kind == "ScaleIn"]
        named = islice((name for scaler in under_way for name in scaler.pods), SCALED.most)
        return frozenset(named), {WORKER: sum(scaler.count for scaler in under_way if not scaler.pods)}

    def asked_at(self, key: GroupKey, pods: Sequence[str], now: float) -> float:
        """Since when an unfinished ScaleIn of ours removes one of these workers; now, if none does."""
        known = [s for s in self.unfinished(key) if s.kind == "ScaleIn" and s.ours and not set(s.pods).isdisjoint(pods)]
        return min((self.made_at(scaler, now) for scaler in known), default=now)

    def made_at(self, scaler: Scaler, now: float) -> float:
        """When the scaler was created, on the monotonic clock."""
        return min(now, self._wall.moment(scaler.created)) if scaler.created else now

    # -- creation

    def shrink(self, key: GroupKey, pods: Sequence[str], now: float) -> Iterator[Scale]:
        """Remove these workers, unless the job has an unfinished scaler."""
        if now >= self._failed.get(key, -FAILED_S) + FAILED_S:
            wanted = Scaler(kind="ScaleIn", namespace=key.namespace, name="", job=key.name, count=len(pods))
            yield from self._create(key, msgspec.structs.replace(wanted, pods=tuple(sorted(pods))), now)

    def overdue(self) -> None:
        """Count a job that did not remove its workers in time."""
        self._counters["scale_ins", "overdue"] += 1

    def grow(self, key: GroupKey, count: int, timeout_s: float, now: float) -> Iterator[Scale]:
        """Add so many workers, unless the job has an unfinished scaler."""
        wanted = Scaler(kind="ScaleOut", namespace=key.namespace, name="", job=key.name, count=count)
        yield from self._create(key, msgspec.structs.replace(wanted, timeout_s=timeout_s), now)

    def _create(self, key: GroupKey, wanted: Scaler, now: float) -> Iterator[Scale]:
        if self.unfinished(key) or not self.serves(key, wanted.kind):
            return
        scaler = msgspec.structs.replace(wanted, name=self._name(key, wanted), ours=True)
        self._asked[key] = Asked(scaler, now, now + AGAIN_S)
        self._counters[COUNTED[scaler.kind], "created"] += 1
        yield Scale(scaler)

    def _name(self, key: GroupKey, scaler: Scaler) -> str:
        """Equal for equal needs, so that two extenders create one object."""
        others = sorted(name for _, _, name in self._of.get(key, {}))
        need = " ".join([self.jobs[key].uid, str(scaler.count), *scaler.pods, *others])
        direction = "in" if scaler.kind == "ScaleIn" else "out"
        return f"{key.name}-{direction}-{hashlib.sha256(need.encode()).hexdigest()[:8]}"

    def give_up(self) -> None:
        """Drop the scalers that were never seen: another process leads now."""
        self._asked.clear()

    def tick(self, now: float) -> Iterator[Scale | Unscale]:
        """Repeat the creation of unseen scalers for a while, and delete finished scalers of ours."""
        for key, asked in list(self._asked.items()):
            if now >= asked.since + LOST_S:
                del self._asked[key]
                self._end(key, asked.scaler.kind, now, failed=True)
            elif now >= asked.again_at:
                asked.again_at = now + AGAIN_S
                yield Scale(asked.scaler)

        def delete(scaler: Scaler) -> Unscale | None:
            finished = scaler.ours and scaler.outcome and now >= self.made_at(scaler, now) + KEPT_S
            return Unscale(scaler) if finished else None

        scalers = [scaler for known in self._of.values() for scaler in known.values()]
        yield from filter(None, self._quarantine.tried(scalers, of_scaler, "scalers", delete))
