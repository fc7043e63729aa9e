"""The expected run times of gangs and pods: as declared, else as of earlier runs of the same owner, else unknown.

The last runs of recent owners are kept. The longest of them is expected, or of ten the second longest: too long an
expectation costs the workload its place, too short a one delays others.
"""

from __future__ import annotations

import math

from extender.engine.state.observe import ref_of
from extender.engine.state.outbox import Outbox
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
"""Runs kept of one owner, and how many are needed for an expectation."""
OWNERS = 4096
"""Owners whose runs are kept."""


def end_of_running(started: float, expected: float, now: float) -> float:
    """The expected end of a running workload; now if its expected run time, in seconds, is over.

    If the run time is unknown (infinity), it runs as long again as it has run. That is the median if the chance to run
    for a time t falls as 1/t.
    """
    return max(started + expected, now) if expected < math.inf else 2.0 * now - started


class History:
    """The run times of earlier runs, by owner, within a bound."""

    def __init__(self) -> None:
        self._runs: dict[Owner, dict[str, float]] = {}

    def note(self, owner: Owner, run: str, seconds: float) -> None:
        """Record the time of a pod of this run; the longest pod of a run counts."""
        runs = self._runs[owner] = self._runs.pop(owner, {})
        runs[run] = max(seconds, runs.get(run, 0.0))
        if len(runs) > RUNS:
            del runs[next(iter(runs))]
        if len(self._runs) > OWNERS:
            del self._runs[next(iter(self._runs))]

    def expected(self, owner: Owner) -> float:
        """The expected run time in seconds, infinity if it is unknown."""
        runs = sorted(self._runs.get(owner, {}).values())
        if len(runs) < LEAST_RUNS:
            return math.inf
        return runs[-2] if len(runs) == RUNS else runs[-1]


class Runtimes:
    """The expected run times of gangs, and of pods that are in no gang."""

    def __init__(self, roster: Roster, outbox: Outbox) -> None:
        self._roster, self._outbox = roster, outbox
        self._history = History()
        self._reported: set[tuple[GroupKey, str]] = set()
        """The invalid values that were reported of each gang."""

    def see(self, pod: Pod, *, first: bool) -> None:
        """Record the run time of a pod that succeeded, and report a declared run time that cannot be read.

        That is reported once for all members of a gang, and for a pod in no gang at its `first` sight.
        """
        known = self._roster.of(pod.metadata.uid)
        if pod.status.phase == "Succeeded" and (seconds := _ran(pod)) is not None:
            owner = owner_of(pod) if known is None else _gang(known.gang)
            run = pod.metadata.uid if known is None else f"{known.gang.key.name} {known.gang.epoch}"
            if owner is not None:
                self._history.note(owner, run, seconds)
        meta, key = pod.metadata, names.EXPECTED_RUNTIME
        if text := meta.annotations.get(key) or meta.labels.get(key):
            self._report(pod, text, known, first=first)

    def _report(self, pod: Pod, text: str, known: GangInfo | None, *, first: bool) -> None:
        ref = ref_of(pod)
        if known is None:
            problems, who = expected_runtime(pod)[1] if first else [], f"pod {ref}"
        else:
            report, who = (known.gang.key, shown(text)), f"gang {known.gang.key}"
            if pod.spec.node_name or report in self._reported:
                return
            if len(self._reported) >= OWNERS:
                self._reported.clear()
            problems = expected_runtime(pod)[1]
            self._reported |= {report} if problems else set()
        self._outbox.put(*(Report(ref, refusals.runtime_unreadable(who, problem)) for problem in problems))

    def of_pod(self, pod: PodState) -> float:
        """The expected run time of a pod, or of its gang, in seconds; infinity if it is unknown."""
        known, info = self._roster.of(pod.ref.uid), pod.info
        if known is not None:
            return self.of_gang(known.gang)
        if info.expected_s < math.inf or info.owner is None:
            return info.expected_s
        return self._history.expected(info.owner)

    def of_gang(self, gang: Gang) -> float:
        """The expected run time of a gang, in seconds from its start; infinity if it is unknown."""
        return gang.terms.expected_runtime_s or self._history.expected(_gang(gang))


def _gang(gang: Gang) -> Owner:
    return gang.key.namespace, stem(gang.key.name)


def _ran(pod: Pod) -> float | None:
    """For how many seconds an ended pod ran, None if its status does not say."""
    ended = (each.state.terminated for each in pod.status.container_statuses)
    times = [each.finished_at for each in ended if each is not None and each.finished_at]
    if not (pod.status.start_time and times):
        return None
    try:
        return max(0.0, max(map(epoch_seconds, times)) - epoch_seconds(pod.status.start_time))
    except ValueError:
        return None
