"""What follows where something went wrong over an object: it is set aside with what it holds, told, and brought back.

After that the books are sound whatever had been changed by half: the parts forget a pod, each by itself, and the books
of nodes that are not in order are made anew from what their pods are said to hold.
"""

from __future__ import annotations

from collections.abc import Iterable

from extender.engine.cycle.components import Components
from extender.engine.cycle.lifecycle import Lifecycle
from extender.engine.state import audit
from extender.engine.state.pod_state import PodState
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
"""Of what these tell nothing is left."""
RECOUNT_S = 5.0
"""Seconds after an error until all pods are looked at for what it left: it costs as much as there are pods."""
GONE_S, GONE_MOST_S = 2.5, 600.0
"""Seconds until what is gone and could not be forgotten is forgotten again; doubled each time."""


class Recovery:
    """Sets aside and brings back."""

    def __init__(self, components: Components, pods: Lifecycle) -> None:
        self._components, self._pods, self._quarantine = components, pods, components.quarantine
        self._recount_at: float | None = None
        """When that is; None: not at all."""
        self._undropped: dict[str, None] = {}
        """Nodes that are gone, and that the books could not drop."""
        self._again_at, self._again_s = 0.0, GONE_S
        """When what is gone is forgotten again, and how long after that once more."""

    # -- what was set aside is told anew

    def takes(self, event: Event, now: float) -> bool:
        """Whether the event is to be told to the listeners: not that of an object that failed and has not changed."""
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
        """Whether a pod is placed: one that was set aside is taken in once more, after a while."""
        subject = of_pod(pod.metadata.uid)
        aside = self._quarantine.of(subject)
        if aside is None:
            return True
        if now >= aside.again_at:
            self._quarantine.release(subject)
            with self._quarantine.over(subject, "filter"):
                self._pods.see_again(pod, now)
        return subject not in self._quarantine

    # -- something went wrong

    def settle(self, now: float, event: Event | None = None) -> None:
        """Set aside what something went wrong with; `event` is what was told just now."""
        done: set[Subject] = set()
        while caught := [each for each in self._quarantine.taken() if each.subject not in done]:
            done.update(each.subject for each in caught)
            self._recount_at = now + RECOUNT_S if self._recount_at is None else self._recount_at
            for each in caught:
                told = event is not None and event.about == each.subject
                self._set_aside(each, event if told else None, now)
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
                    self._components.gangs.recovery.set_aside(_group(subject.key), now)
                case "node" if event is not None:
                    self._node(subject.key, event)
        self._mend([*nodes, *self._nodes(subject)])
        self._tell(caught)

    def _nodes(self, subject: Subject) -> list[str]:
        """Where a subject holds anything."""
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
            self._components.gangs.recovery.set_aside(known.gang.key, now)

    def _node(self, name: str, event: Event) -> None:
        """What was told of it was taken in by half, or not at all."""
        self._components.ledger.set_aside(name, str(self._quarantine.why(of_node(name))))
        if isinstance(event, NodeGone):
            self._drop(name)

    def _drop(self, node: str) -> None:
        steps = (self._components.ledger.drop_node, self._components.tenancy.node)
        whole = self._quarantine.each(steps, lambda _: of_node(node), "recovery", lambda step: step(node))
        if not whole and len(self._undropped) < MOST:
            self._undropped[node] = None

    def _mend(self, nodes: Iterable[str]) -> None:
        """Make the books of these nodes anew where they are not in order."""
        ledger = self._components.ledger
        for name in dict.fromkeys(nodes):
            with self._quarantine.over(of_node(name), "recovery"):
                if name in ledger.nodes and audit.wrong(ledger, [name]):
                    ledger.rebuild(name)

    def _tell(self, caught: CaughtError) -> None:
        subject, pods = caught.subject, self._components.ledger.pods
        if not self._quarantine.tells(subject):
            return
        name, why = subject.key, self._quarantine.why(subject)
        if subject.kind == "pod" and subject.key in pods:
            name = str(pods[subject.key].ref)
            self._components.effects.append(Report(pods[subject.key].ref, why))
        self._components.effects.append(Fault(subject, name, caught.place, caught.error, why))

    def is_binding(self, uid: str) -> bool:
        """Whether a Binding of the pod is, or may be, on its way."""
        pod = self._components.ledger.pods.get(uid)
        return pod is not None and pod.state == "binding"

    def unbind(self, uid: str) -> PostBinding | None:
        """Take back what was booked for a bind that failed; its Binding, if that is about to be written all the same.

        So it is where its gang went through before the error.
        """
        if not self.is_binding(uid):
            return None
        place = self._components.gangs.reporter.opened(uid)
        if place is None:
            with self._quarantine.over(of_pod(uid), "bind"):
                self._pods.settle_binding(self._components.ledger.pods[uid], bound=False)
        return place

    # -- bringing back

    def retry(self, now: float) -> None:
        """Try those again whose time has come; a pod is tried when it is asked for, or changes."""
        if self._recount_at is not None and now >= self._recount_at:
            self._recount_at = None
            with self._quarantine.part("queues"):
                self._components.running_pods.recount()
                self._components.tenancy.recount()
            self._give_back()
        if now >= self._again_at and (self._pods.unforgotten or self._undropped):
            self._pods.forget_again(now)
            self._drop_again()
            self._again_s = min(GONE_MOST_S, 2 * self._again_s)
            self._again_at = now + self._again_s
        elif not (self._pods.unforgotten or self._undropped):
            self._again_at, self._again_s = 0.0, GONE_S
        for subject in self._quarantine.due():
            if subject.kind == "gang":
                self._quarantine.release(subject)
                self._components.gangs.recovery.bring_back(_group(subject.key), now)
            elif subject.kind == "part":
                self._quarantine.release(subject)

    def _drop_again(self) -> None:
        """Drop the nodes that are gone where that failed."""
        again, self._undropped = list(self._undropped), {}
        for name in again:
            node = self._components.ledger.nodes.get(name)
            if node is None or not node.seen:  # it has not come back
                self._quarantine.forget(of_node(name))
                self._drop(name)

    def _give_back(self) -> None:
        """Soft charges end of which no part knows any more: the error came before it gave them back."""
        components, gangs, ledger = self._components, self._components.gangs, self._components.ledger
        held = (components.holds, gangs.assignments, gangs.replacements, components.reservations)

        def unowned(pods: Iterable[PodState]) -> list[PodState]:
            return [pod for pod in pods if pod.state == "held" and not any(each.holds(pod) for each in held)]

        lost = [*unowned(ledger.pods.values()), *unowned(ledger.keepers.values())]
        self._quarantine.each(lost, lambda pod: pod.subject, "recovery", ledger.unbind)
        for uid in [uid for uid, pod in ledger.keepers.items() if not pod.node]:
            del ledger.keepers[uid]


def _group(key: str) -> GroupKey:
    namespace, _, name = key.partition("/")
    return GroupKey(namespace, name)
