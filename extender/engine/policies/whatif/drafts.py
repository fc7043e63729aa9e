"""Reads pods that do not exist into workloads, as the engine reads pods; nothing of it is recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from extender.engine.gangs.planner import smallest_start
from extender.engine.policies.context import PolicyContext
from extender.engine.policies.whatif.question import Question, Workload
from extender.engine.state.observe import Observer
from extender.engine.state.pod_state import PodState
from extender.engine.state.roster import GangInfo, Roster
from extender.engine.state.seats import Seat
from extender.engine.types import refusals
from gangfilter import dialects
from gangfilter.gang import Gang
from gangfilter.group import GroupKey
from gangfilter.members import PRESENT, Member, Stage
from gangfilter.minimum import lacking, suffices
from protos.contract import names
from protos.contract.objects import Pod
from protos.contract.reason import Reason, listed

WARNINGS = 8
"""Warnings about one workload."""
NAMED_GATES = 3
"""Scheduling gates that a sentence names."""


class Drafts:
    """The workloads of one question, and a roster of their gangs alone."""

    def __init__(self, context: PolicyContext, observer: Observer, question: Question, now: float) -> None:
        self._context, self._observer, self._now = context, observer, now
        self._roster = Roster(context.settings.patience, context.wall)
        self._pods: dict[str, PodState] = {}
        self._mistakes: dict[str, str] = {}
        """By UID: a key that is not read."""
        self._declared = {key: (kind, said) for kind, key, said in question.groups}
        self._question = question

    def workloads(self) -> Iterator[Workload | None]:
        """The workloads, in the order of their first pods; None for a pod that is read."""
        first: dict[str, GroupKey | None] = {}
        known: set[GroupKey] = set()
        for pod in self._question.pods:
            key = self._read(pod)
            if key is None or key not in known:
                first[pod.metadata.uid] = key
                known |= {key} if key is not None else set()
            yield None
        for uid, key in first.items():
            yield self._single(self._pods[uid]) if key is None else self._of_gang(self._roster.known[key])

    def _read(self, pod: Pod) -> GroupKey | None:
        """Read one pod; return its gang, None for a single pod."""
        pod = self._with_priority(pod)
        state = self._pods[pod.metadata.uid] = self._observer.draft(pod, self._now)
        state.forged = names.ALLOCATION in pod.metadata.annotations
        state.info = self._context.running_pods.read(pod, state, self._now)
        if state.mistake is not None:
            self._mistakes[pod.metadata.uid] = str(state.mistake)
        said = dialects.membership(pod)
        if said is None:
            return None
        known = self._roster.join(pod, said, self._now)
        if not known.declared:
            self._declare(known)
        self._roster.say(pod.metadata.uid, said.said)
        known.gang.put(known.gang.members[pod.metadata.uid], Stage.IDLE)
        return said.key

    def _with_priority(self, pod: Pod) -> Pod:
        """The pod with the fields that the API server takes from its PriorityClass."""
        spec, found = pod.spec, self._context.priorities.named(pod.spec.priority_class_name)
        if found is None or spec.priority is not None:
            return pod
        policy = spec.preemption_policy or found.preemption_policy
        spec = msgspec.structs.replace(spec, priority=found.value, preemption_policy=policy)
        return msgspec.structs.replace(pod, spec=spec)

    def _declare(self, known: GangInfo) -> None:
        """What PodGroups declare of the gang: that of the question, else those of the cluster."""
        key = known.gang.key
        existing = self._context.gangs.roster.known.get(key)
        said = dict([self._declared[key]]) if key in self._declared else existing.declared if existing else {}
        for kind, declaration in said.items():
            self._roster.declare(known, kind, declaration)

    # -- workloads

    def _single(self, pod: PodState) -> Workload:
        return Workload(
            who=str(pod.ref),
            pods={pod.ref.uid: pod},
            seats=(Seat.of(pod),),
            minimum=(Seat.of(pod),),
            queue=pod.info.queue,
            priority=pod.priority,
            never=pod.info.never,
            turn=self._context.order.of_pod(pod),
            expected_s=self._context.runtimes.of_pod(pod),
            warnings=self._warnings((pod.ref.uid,)),
            refusal=_refusal((pod,)),
        )

    def _of_gang(self, known: GangInfo) -> Workload:
        gang, pods = known.gang, {uid: self._pods[uid] for uid in known.gang.members}
        seats = list(self._seats(gang, pods))
        minimum, free = smallest_start(gang, seats)
        priorities = self._context.priorities
        return Workload(
            who=f"gang {gang.key}",
            pods=pods,
            gang=gang,
            seats=seats,
            minimum=minimum,
            free=free,
            queue=gang.terms.queue,
            priority=priorities.of(gang, min(pod.priority for pod in pods.values())),
            never=priorities.never(gang) or any(pod.info.never for pod in pods.values()),
            turn=self._context.order.of_gang(gang),
            expected_s=self._context.runtimes.of_gang(gang),
            warnings=(*gang.terms.conflicts, *self._warnings(pods))[:WARNINGS],
            refusal=self._waits(gang) or _refusal(pods.values()),
        )

    def _warnings(self, uids: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._mistakes[uid] for uid in uids if uid in self._mistakes))[:WARNINGS]

    def _seats(self, gang: Gang, pods: Mapping[str, PodState]) -> Iterator[Seat]:
        def turn(member: Member) -> tuple[int, float, str, str]:
            return -member.priority, member.since, member.name, member.uid

        for member in sorted(gang.members.values(), key=turn):
            pod = pods[member.uid]
            seat = Seat.of(pod)
            yield msgspec.structs.replace(seat, role=member.role, required=member.required)

    def _waits(self, gang: Gang) -> Reason | None:
        """Why the gang waits before it is planned, None if it is planned at once."""
        least, most = gang.terms.min_member or 0, self._context.settings.max_gang_size
        if least > most:
            return refusals.gang_too_large(gang.key, least, most)
        if not gang.key.name:
            return refusals.UNNAMED
        return None if suffices(gang, *PRESENT) else refusals.assembling(gang.key, lacking(gang))


def _refusal(pods: Iterable[PodState]) -> Reason | None:
    """Why one of the pods is not placed at all, None if all are."""
    for pod in pods:
        if isinstance(pod.asked, Reason):
            return pod.asked
        if pod.forged:
            return refusals.FORGED
        if pod.info.scheduler:
            return refusals.other_scheduler(pod.info.scheduler)
        if pod.info.gates:
            return refusals.gated(listed(pod.info.gates, NAMED_GATES))
    return None
