"""Recovers from an internal error over an object: quarantines it with what it holds, reports it, and brings it back.

The books are sound afterwards, whatever was changed halfway: each component forgets a pod by itself, and the books of
nodes that are not sound are rebuilt from what their pods hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from extender.engine.cycle.components import Components
from extender.engine.cycle.lifecycle import Lifecycle
from extender.engine.state import audit
from extender.engine.state.quarantine import MOST, CaughtError
from extender.engine.types.effects import Fault, PostBinding, Report
from extender.engine.types.events import (
    BindDone,
    BudgetGone,
    ClassGone,
    Event,
    NodeGone,
    PodGone,
    PodSeen,
    PriorityGone,
    QueueGone,
    ScalerGone,
)
from extender.engine.types.subject import Subject, of_gang, of_node, of_pod
from gangfilter.group import GroupKey
from protos.contract.objects import Pod

GONE = PodGone | NodeGone | ClassGone | QueueGone | BudgetGone | PriorityGone | ScalerGone
"""Events after which an object no longer exists."""
RECOUNT_S = 5.0
"""Seconds between an error and the recount of all pods, whose cost grows with the number of pods."""
GONE_S, GONE_MOST_S = 2.5, 600.0
"""Seconds until the next attempt to forget a deleted object; doubled each time."""


class Recovery:
    """Quarantines objects and brings them back."""

    def __init__(self, components: Components, pods: Lifecycle) -> None:
        self._components, self._pods, self._quarantine = components, pods, components.quarantine
        self._recount_at: float | None = None
        """When all pods are recounted; None: never."""
        self._again_at, self._again_s = 0.0, GONE_S
        """The next attempt to forget deleted objects, and the time until the one after it."""

    # -- a quarantined object is seen

    def takes(self, event: Event, now: float) -> bool:
        """Whether the listeners get the event: not if its object is quarantined and unchanged."""
        subject = event.about
        if isinstance(event, PodSeen):
            if not self._quarantine.changed(subject, event.pod.metadata.resource_version):
                return subject not in self._quarantine
            if subject in self._quarantine:
                self._quarantine.release(subject)
                with self._quarantine.over(subject, "PodSeen"):
                    self._pods.see_again(event.pod, now)
                return False
        elif subject.kind not in ("pod", "gang", "part"):
            self._quarantine.changed(subject)
            self._quarantine.release(subject)
        return True

    def may_ask(self, pod: Pod, now: float) -> bool:
        """Whether a pod may be placed; a quarantined pod is taken in again after a while."""
        subject = of_pod(pod.metadata.uid)
        aside = self._quarantine.of(subject)
        if aside is None:
            return True
        if now >= aside.again_at:
            self._quarantine.release(subject)
            with self._quarantine.over(subject, "filter"):
                self._pods.see_again(pod, now)
        return subject not in self._quarantine

    # -- an error occurred

    def settle(self, now: float, event: Event | None = None) -> None:
        """Quarantine the objects over which errors were caught; `event` is the current event."""
        done: set[Subject] = set()
        while caught := [each for each in self._quarantine.taken() if each.subject not in done]:
            done.update(each.subject for each in caught)
            self._recount_at = now + RECOUNT_S if self._recount_at is None else self._recount_at
            for each in caught:
                concerned = event is not None and event.about == each.subject
                self._set_aside(each, event if concerned else None, now)
        if isinstance(event, GONE):
            self._quarantine.forget(event.about)

    def _set_aside(self, caught: CaughtError, event: Event | None, now: float) -> None:
        subject = caught.subject
        nodes = self._nodes(subject)
        with self._quarantine.over(subject, "recovery"):
            match subject.kind:
                case "pod":
                    self._pod(subject.key, event, now)
                case "gang":
                    self._components.gangs.controller.set_aside(_group(subject.key), now)
                case "node" if event is not None:
                    self._components.ledger.set_aside(subject.key, str(self._quarantine.why(subject)))
                    if isinstance(event, NodeGone):
                        self._drop(subject.key)
        self._mend([*nodes, *self._nodes(subject)])
        self._report(caught)

    def _nodes(self, subject: Subject) -> list[str]:
        """The nodes on which a subject holds anything."""
        pods, roster = self._components.ledger.pods, self._components.gangs.roster
        if subject.kind == "node":
            return [subject.key]
        known = roster.known.get(_group(subject.key)) if subject.kind == "gang" else None
        uids = list(known.gang.members) if known is not None else [subject.key]
        replacements = [replacement.assignment.node for replacement in known.replacements] if known is not None else []
        return [pod.node for uid in uids if (pod := pods.get(uid)) is not None] + replacements

    def _pod(self, uid: str, event: Event | None, now: float) -> None:
        known, before = self._components.gangs.roster.of(uid), self._components.ledger.pods.get(uid)
        if isinstance(event, PodGone):
            self._pods.forget_anyway(uid, now)
            return
        if isinstance(event, BindDone) and before is not None and before.state == "binding":
            self._pods.settle_binding(before, bound=event.outcome == "bound")
        if isinstance(event, PodSeen):
            self._quarantine.seen(of_pod(uid), event.pod.metadata.resource_version)
        self._pods.set_aside(uid, event.pod if isinstance(event, PodSeen) else None, now)
        if known is not None:
            self._quarantine.along(of_gang(known.gang.key), of_pod(uid))
            self._components.gangs.controller.set_aside(known.gang.key, now)

    def _drop(self, node: str) -> None:
        steps = (self._components.ledger.drop_node, self._components.tenancy.node)
        whole = self._quarantine.each(steps, lambda _: of_node(node), "recovery", lambda step: step(node))
        if not whole and len(self._pods.unforgotten) < MOST:
            self._pods.unforgotten[of_node(node)] = None

    def _mend(self, nodes: Iterable[str]) -> None:
        """Rebuild the books of these nodes where they are not sound."""
        ledger = self._components.ledger
        for name in dict.fromkeys(nodes):
            with self._quarantine.over(of_node(name), "recovery"):
                if name in ledger.nodes and audit.wrong(ledger, [name]):
                    ledger.rebuild(name)

    def _report(self, caught: CaughtError) -> None:
        subject, pods = caught.subject, self._components.ledger.pods
        if not self._quarantine.tells(subject):
            return
        name, why = subject.key, self._quarantine.why(subject)
        if subject.kind == "pod" and subject.key in pods:
            name = str(pods[subject.key].ref)
            self._components.outbox.put(Report(pods[subject.key].ref, why))
        self._components.outbox.put(Fault(subject, name, caught.place, caught.error, why))

    def is_binding(self, uid: str) -> bool:
        """Whether a Binding of the pod is, or may be, on its way."""
        pod = self._components.ledger.pods.get(uid)
        return pod is not None and pod.state == "binding"

    def unbind(self, uid: str) -> PostBinding | None:
        """Undo the booking of a failed bind; returns its Binding if its gang was released before the error."""
        if not self.is_binding(uid):
            return None
        place = self._components.outbox.opened(uid)
        if place is None:
            with self._quarantine.over(of_pod(uid), "bind"):
                self._pods.settle_binding(self._components.ledger.pods[uid], bound=False)
        return place

    # -- bringing back

    def retry(self, now: float) -> None:
        """Try gangs and components again whose time has come; pods are tried when they are filtered or change."""
        if self._recount_at is not None and now >= self._recount_at:
            self._recount_at = None
            with self._quarantine.part("queues"):
                self._components.running_pods.recount()
                self._components.tenancy.recount()
            self._give_back()
        if not self._pods.unforgotten:
            self._again_at, self._again_s = 0.0, GONE_S
        elif now >= self._again_at:
            self._forget_again(now)
            self._again_s = min(GONE_MOST_S, 2 * self._again_s)
            self._again_at = now + self._again_s
        for subject in self._quarantine.due():
            if subject.kind == "gang":
                self._quarantine.release(subject)
                self._components.gangs.controller.bring_back(_group(subject.key), now)
            elif subject.kind == "part":
                self._quarantine.release(subject)

    def _forget_again(self, now: float) -> None:
        """Try again to forget deleted pods and nodes, unless they have come back."""
        ledger, again = self._components.ledger, list(self._pods.unforgotten)
        self._pods.unforgotten.clear()
        for subject in again:
            name, node = subject.key, ledger.nodes.get(subject.key)
            if subject.kind == "pod" and name not in ledger.pods:
                self._quarantine.forget(subject)
                self._pods.forget_anyway(name, now)
            elif subject.kind == "node" and (node is None or not node.seen):
                self._quarantine.forget(subject)
                self._drop(name)

    def _give_back(self) -> None:
        """Give back soft charges without an owner, which an error has left behind."""
        components, gangs, ledger = self._components, self._components.gangs, self._components.ledger
        held = (components.holds, gangs.assignments, gangs.replacements, components.reservations)

        pods = chain(ledger.pods.values(), ledger.keepers.values())
        lost = [pod for pod in pods if pod.state == "held" and not any(each.holds(pod) for each in held)]
        self._quarantine.each(lost, lambda pod: pod.subject, "recovery", ledger.unbind)
        for uid in [uid for uid, pod in ledger.keepers.items() if not pod.node]:
            del ledger.keepers[uid]


def _group(key: str) -> GroupKey:
    namespace, _, name = key.partition("/")
    return GroupKey(namespace, name)
