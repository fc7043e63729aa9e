"""How long gangs and pods run: as they say, else as earlier ones of the same name did, else nobody knows.

What those ran is kept for the last runs of the owners seen last. An expectation is the longest of them, but for one of
ten: one too long costs it a place, one too short costs others theirs.
"""

from __future__ import annotations

import math

from extender.engine.state.observe import ref_of
from extender.engine.state.pod_info import Owner, expected_runtime, owner_of, stem
from extender.engine.state.pod_state import PodState
from extender.engine.state.roster import GangInfo, Roster
from extender.engine.types import refusals
from extender.engine.types.effects import Report
from gangfilter.gang import Gang
from gangfilter.group import GroupKey
from gangfilter.values import shown
from protos.contract import names
from protos.contract.objects import Pod
from protos.contract.timestamps import epoch_seconds

RUNS, LEAST_RUNS = 10, 2
"""Runs of one owner that are kept, and without which nothing is expected."""
OWNERS = 4096
"""Owners whose runs are kept."""


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


class Runtimes:
    """Of gangs, and of pods that go singly."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._history = History()
        self._told: set[tuple[GroupKey, str]] = set()
        """What could not be read, of which gangs, as it is shown."""

    def see(self, pod: Pod, *, first: bool) -> list[Report]:
        """Take in a pod: one that has done its work says how long its gang ran, one that was stopped says nothing.

        Returns what is to be told of a run time that cannot be read: once, however many members say it, and of a pod
        that is in no gang at its `first` sight.
        """
        known = self._roster.of(pod.metadata.uid)
        self._note(pod, known)
        text = pod.metadata.annotations.get(names.EXPECTED_RUNTIME)
        if text is None:
            return []
        ref = ref_of(pod)
        if known is None:
            problems, who = expected_runtime(pod)[1] if first else [], f"pod {ref}"
        else:
            told, who = (known.gang.key, shown(text)), f"gang {known.gang.key}"
            if pod.spec.node_name or told in self._told:
                return []
            if len(self._told) >= OWNERS:
                self._told.clear()
            problems = expected_runtime(pod)[1]
            self._told |= {told} if problems else set()
        return [Report(ref, refusals.runtime_unreadable(who, problem)) for problem in problems]

    def _note(self, pod: Pod, known: GangInfo | None) -> None:
        """Keep for how long it ran, if it has done its work."""
        seconds = _ran(pod) if pod.status.phase == "Succeeded" else None
        if seconds is None:
            return
        owner = owner_of(pod) if known is None else _gang(known.gang)
        run = pod.metadata.uid if known is None else f"{known.gang.key.name} {known.gang.epoch}"
        if owner is not None:
            self._history.note(owner, run, seconds)

    def of_pod(self, pod: PodState) -> float:
        """How long a pod runs, as its gang if it is in one; infinity if nobody knows."""
        known, said = self._roster.of(pod.ref.uid), pod.info
        if known is not None:
            return self.of_gang(known.gang)
        if said.expected_s < math.inf or said.owner is None:
            return said.expected_s
        return self._history.expected(said.owner)

    def of_gang(self, gang: Gang) -> float:
        """How long a gang runs, in seconds from its start; infinity if nobody knows."""
        return gang.terms.expected_runtime_s or self._history.expected(_gang(gang))


def _gang(gang: Gang) -> Owner:
    return gang.key.namespace, stem(gang.key.name)


def _ran(pod: Pod) -> float | None:
    """For how many seconds a pod ran that has ended, None if nobody says."""
    ended = (each.state.terminated for each in pod.status.container_statuses)
    times = [each.finished_at for each in ended if each is not None and each.finished_at]
    try:
        begun = epoch_seconds(pod.status.start_time) if pod.status.start_time and times else None
        return max(0.0, max(map(epoch_seconds, times)) - begun) if begun is not None else None
    except ValueError:
        return None
