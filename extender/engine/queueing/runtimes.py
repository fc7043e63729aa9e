"""How long gangs and pods run: as they say, else as earlier ones of the same name did, else nobody knows.

What those ran is kept for the last runs of the owners seen last. An expectation is the longest of them, but for one of
ten: one too long costs it a place, one too short costs others theirs.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import NamedTuple

from extender.engine.state.roster import Roster
from extender.engine.types import refusals
from extender.engine.types.effects import PodRef, Report
from gangfilter.gang import Gang
from gangfilter.group import GroupKey
from gangfilter.values import Reader, annotation, run_time, shown
from protos.contract import names
from protos.contract.objects import Pod
from protos.contract.timestamps import epoch_seconds

RUNS, LEAST_RUNS = 10, 2
"""Runs of one owner that are kept, and without which nothing is expected."""
OWNERS = 4096
"""Owners whose runs are kept."""
_ORDINAL = re.compile(r"(-[bcdfghjklmnpqrstvwxz2456789]{5}|[-.]?[0-9]+)$")
"""What tells runs of one thing apart by name: a number, or what the API server appends to a generateName."""
Owner = tuple[str, str]
"""Namespace, and name without what tells runs apart."""


def end_of_running(started: float, expected: float, now: float) -> float:
    """When one ends that runs: after its expected run time, in seconds; if it should have by now, at any moment.

    If nothing is known of it (infinity), after as long again as it has run, which is the median wherever the chance to
    run so long falls as one over the time.
    """
    return max(started + expected, now) if expected < math.inf else 2.0 * now - started


class History:
    """What earlier ones ran."""

    def __init__(self) -> None:
        self._runs: dict[Owner, dict[str, float]] = {}

    def note(self, owner: Owner, run: str, seconds: float) -> None:
        """A run of this owner took so long; of several pods of one run the longest counts."""
        runs = self._runs[owner] = self._runs.pop(owner, {})
        runs[run] = max(seconds, runs.get(run, 0.0))
        if len(runs) > RUNS:
            del runs[next(iter(runs))]
        if len(self._runs) > OWNERS:
            del self._runs[next(iter(self._runs))]

    def expected(self, owner: Owner) -> float:
        """How long the next takes, in seconds; infinity if nobody knows."""
        runs = sorted(self._runs.get(owner, {}).values())
        if len(runs) < LEAST_RUNS:
            return math.inf
        return runs[-2] if len(runs) == RUNS else runs[-1]


class _Said(NamedTuple):
    """What is known of a pod."""

    owner: Owner | None
    seconds: float
    endless: bool


@lru_cache(maxsize=OWNERS)
def _said(owner: Owner | None, seconds: float, *, endless: bool) -> _Said:
    """The same object for pods of which the same is known."""
    return _Said(owner, seconds, endless)


class Runtimes:
    """Of gangs, and of pods that go singly."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._history = History()
        self._pods: dict[str, _Said] = {}
        """Pods that are not over, by UID."""
        self._told: set[tuple[GroupKey, str]] = set()
        """What could not be read, of which gangs, as it is shown."""

    def see(self, pod: Pod) -> list[Report]:
        """Take in a pod: one that has done its work says how long its gang ran, one that was stopped says nothing.

        Returns what is to be told of a run time that cannot be read: once, however many members say it.
        """
        known = self._roster.of(pod.metadata.uid)
        seconds = _ran(pod) if pod.status.phase == "Succeeded" else None
        if known is None:
            return self._single(pod, seconds)
        self._pods[pod.metadata.uid] = _said(None, math.inf, endless=_endless(pod))
        if seconds is not None:
            self._history.note(_gang(known.gang), f"{known.gang.key.name} {known.gang.epoch}", seconds)
        text = pod.metadata.annotations.get(names.EXPECTED_RUNTIME)
        told = known.gang.key, shown(text or "")
        if text is None or pod.spec.node_name or told in self._told:
            return []
        reader = Reader(pod.metadata.annotations, {})
        reader.read(run_time, annotation(names.EXPECTED_RUNTIME))
        if len(self._told) >= OWNERS:
            self._told.clear()
        self._told |= {told} if reader.problems else set()
        problems = [refusals.runtime_unreadable(f"gang {known.gang.key}", problem) for problem in reader.problems]
        return [Report(_ref(pod), problem) for problem in problems]

    def _single(self, pod: Pod, seconds: float | None) -> list[Report]:
        """Take in a pod that is in no gang."""
        uid, owner = pod.metadata.uid, _owner(pod)
        if seconds is not None and owner is not None:
            self._history.note(owner, uid, seconds)
        before = self._pods.get(uid)
        if before is not None:
            return []
        reader = Reader(pod.metadata.annotations, {})
        said = reader.read(run_time, annotation(names.EXPECTED_RUNTIME))
        self._pods[uid] = _said(owner, said or math.inf, endless=_endless(pod))
        return [
            Report(_ref(pod), refusals.runtime_unreadable(f"pod {_ref(pod)}", problem)) for problem in reader.problems
        ]

    def forget(self, uid: str) -> None:
        """The pod is over."""
        self._pods.pop(uid, None)

    def of_pod(self, uid: str) -> float:
        """How long a pod runs, as its gang if it is in one; infinity if nobody knows."""
        known, said = self._roster.of(uid), self._pods.get(uid)
        if known is not None:
            return self.of_gang(known.gang)
        if said is None:
            return math.inf
        if said.seconds < math.inf or said.owner is None:
            return said.seconds
        return self._history.expected(said.owner)

    def endless(self, uid: str) -> bool:
        """Whether a pod of which no run time is known does not end by itself: its kubelet starts it anew."""
        said = self._pods.get(uid)
        return said is not None and said.endless

    def of_gang(self, gang: Gang) -> float:
        """How long a gang runs, in seconds from its start; infinity if nobody knows."""
        return gang.terms.expected_runtime_s or self._history.expected(_gang(gang))


def _endless(pod: Pod) -> bool:
    return pod.spec.restart_policy == "Always"


def _ref(pod: Pod) -> PodRef:
    return PodRef(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)


def _owner(pod: Pod) -> Owner | None:
    """Whose run it is: its controller, without what tells runs of that apart."""
    name = next((owner.name for owner in pod.metadata.owner_references if owner.controller), None)
    return (pod.metadata.namespace, f"pods of {stem(name)}") if name else None


def _gang(gang: Gang) -> Owner:
    return gang.key.namespace, stem(gang.key.name)


def stem(name: str) -> str:
    """A name without what tells runs of one thing apart."""
    return _ORDINAL.sub("", name)


def _ran(pod: Pod) -> float | None:
    """For how many seconds a pod ran that has ended, None if nobody says."""
    ended = (each.state.terminated for each in pod.status.container_statuses)
    times = [each.finished_at for each in ended if each is not None and each.finished_at]
    try:
        begun = epoch_seconds(pod.status.start_time) if pod.status.start_time and times else None
        return max(0.0, max(map(epoch_seconds, times)) - begun) if begun is not None else None
    except ValueError:
        return None
