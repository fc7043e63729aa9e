"""Reads pods and nodes of the world into the ledger."""

from __future__ import annotations

import sys
from collections import Counter

import msgspec

from extender.engine.state.classes import Classes
from extender.engine.state.ledger import Ledger
from extender.engine.state.pod_state import Change, PodState
from extender.engine.types import trust
from extender.engine.types.effects import Effect, PodRef, Report, SetAnnotation
from extender.engine.types.requests import amounts, requests
from extender.engine.types.settings import Settings
from extender.engine.types.shape import Shape, shape
from protos.contract import ask as asks
from protos.contract import bounds, names
from protos.contract.allocation import Allocation
from protos.contract.ask import AskError, PodAsk
from protos.contract.objects import ENDED, Node, Pod
from protos.contract.reason import Reason
from protos.contract.selection import Selection

NATIVE = ("cpu", "memory", "ephemeral-storage", "pods")
"""Resources of every node."""
SENTENCES = {
    "forged": "gangshare alone writes this annotation; what was there is not believed and is put back",
    "malformed": "the allocation cannot be read; the pod is charged wherever it could be until the plugin says where",
    "newer": "the allocation was written by a newer version; the pod is charged wherever it could be",
}


class Seen(msgspec.Struct):
    """What reading a pod led to. `state` is None when the pod needs no memory: it is over."""

    state: PodState | None
    effects: list[Effect] = msgspec.field(default_factory=list)


def ref_of(pod: Pod) -> PodRef:
    """The pod's reference."""
    return PodRef(sys.intern(pod.metadata.namespace), pod.metadata.name, pod.metadata.uid)


class Observer:
    """Keeps the ledger in step with the objects of the cluster."""

    def __init__(
        self, ledger: Ledger, settings: Settings, counters: Counter[tuple[str, str]], classes: Classes
    ) -> None:
        self._ledger, self._settings, self._counters, self._classes = ledger, settings, counters, classes
        self._resources = settings.resources
        self._leaving = {key: value for key, _, value in (sign.partition("=") for sign in settings.drain_taints)}

    def node(self, node: Node) -> bool:
        """Take in a node; returns whether anything that matters changed."""
        return self._ledger.set_node(node, amounts(node.status.allocatable), self._leaves(node))

    def _leaves(self, node: Node) -> str:
        """The first taint or label by which the node is about to go, "" if there is none."""
        given = [*((taint.key, taint.value) for taint in node.spec.taints), *node.metadata.labels.items()]
        signs = (f"{key}={value}" if value else key for key, value in given if self._leaving.get(key) in ("", value))
        return next(signs, "")

    def ask(self, pod: Pod) -> PodAsk | None:
        """The pod's GPU ask; None also where it makes no sense."""
        read = self._read(pod)
        return read if isinstance(read, PodAsk) else None

    def names_ours(self, pod: Pod) -> bool:
        """Whether a container names one of our resources: such pods are shown to us by name, whatever they ask."""
        ours = self._resources.all
        given = (c.resources for c in (*pod.spec.containers, *pod.spec.init_containers) if c.resources is not None)
        return any(name in each.limits or name in each.requests for each in given for name in ours)

    def shape(self, pod: Pod) -> Shape:
        """The shape of a pod that is not known yet."""
        return shape(self.ask(pod), self._requests(pod))

    def asked(self, pod: Pod, now: float) -> PodState:
        """The state of a pod that the scheduler asks about, which our watch may not have shown yet."""
        known = self._ledger.pods.get(pod.metadata.uid)
        if known is not None:
            return known
        state = self._learn(pod, now)
        state.learned = True
        return state

    def asks_anew(self, pod: Pod, state: PodState) -> bool:
        """Whether a pod that is not bound wants something else than before: it may be edited until then."""
        if pod.spec.node_name or state.state not in ("waiting", "held"):
            return False
        if state.version and state.version == pod.metadata.resource_version:
            return False
        if self._read(pod) != state.asked or tuple(self._requests(pod)) != state.requests:
            return True
        state.version = _version(pod)
        return False

    def learn_anew(self, pod: Pod, state: PodState) -> None:
        """Take over what the pod wants now."""
        state.asked = self._read(pod)
        state.refusal = None
        self._resize(pod, state)
        state.version = _version(pod)

    def _resize(self, pod: Pod, state: PodState) -> None:
        """Take over what the pod takes in-tree now: its containers' resources may be changed in place."""
        taken = tuple(self._requests(pod))
        if taken != state.requests:
            self._ledger.resize(state, self._ledger.intern(taken))

    def _learn(self, pod: Pod, now: float) -> PodState:
        state = self._ledger.pod(ref_of(pod), now)
        state.priority = pod.spec.priority or 0
        self._resize(pod, state)
        state.asked = self._read(pod)
        state.version = _version(pod)
        return state

    def _read(self, pod: Pod) -> PodAsk | Reason | None:
        """What the pod wants of GPUs, or why it cannot be said."""
        resources, name = self._resources, pod.metadata.annotations.get(names.GPU_CLASS)
        try:
            read: PodAsk | Reason | None = asks.parse(pod, resources)
            wide = self._classes.selection(name) if read is not None and name is not None else None
            read = asks.parse(pod, resources, wide) if isinstance(wide, Selection) else wide or read
        except AskError as error:
            return error.reason
        if isinstance(read, PodAsk) and len(named := _named(pod)) > bounds.RESOURCES_PER_POD.most:
            return Reason("AskTooMany", bounds.RESOURCES_PER_POD.exceeded(len(named)))
        return read

    def _requests(self, pod: Pod) -> list[tuple[str, int]]:
        """What the pod takes of its node in-tree. Of too many resources those count that every node has, and ours."""
        found = requests(pod)
        most = bounds.RESOURCES_PER_POD.most
        if len(found) > most:
            first = (*NATIVE, *self._resources.all)
            found = sorted(sorted(found, key=lambda each: (each[0] not in first, each[0]))[:most])
        return found

    def pod(self, pod: Pod, now: float) -> Seen:
        """Take in a pod."""
        if pod.status.phase in ENDED or (pod.metadata.deletion_timestamp and not pod.spec.node_name):
            return Seen(None)
        known = self._ledger.pods.get(pod.metadata.uid)
        state = known if known is not None and known.learned else self._learn(pod, now)
        seen = self._placed(pod, pod.spec.node_name, state) if pod.spec.node_name else self._unbound(pod, state)
        state.learned = True
        return seen

    def _placed(self, pod: Pod, node: str, state: PodState) -> Seen:
        if state.learned:
            self._resize(pod, state)
        if isinstance(state.asked, Reason):
            state.asked = asks.held(pod, self._resources)
        if state.ask is None:
            return self._bound_without_ask(pod, node, state)
        return self._bound(pod, node, state, state.ask)

    def _unbound(self, pod: Pod, state: PodState) -> Seen:
        seen = Seen(state)
        self._take_away(pod, state, seen)
        return seen

    def _bound(self, pod: Pod, node: str, state: PodState, ask: PodAsk) -> Seen:
        before = (state.state, state.node, state.text, state.misread)
        told = trust.claim(pod, state.text, settled=state.state == "bound")
        seen = Seen(state)
        if not told.problem:
            allocation, text, problem = told.allocation, told.text, ""
        elif told.problem.startswith("forged") and state.text is not None and state.node == node:
            allocation, text, problem = state.allocation, state.text, told.problem
        else:
            allocation, text, problem = None, None, told.problem
        if problem.startswith("forged"):
            seen.effects.append(self._put_back(pod, text))
        if problem and problem != state.misread:
            seen.effects.append(self._problem(state, problem.partition(":")[0]))
        if text is None and not problem:
            allocation = self._from_gpushare(pod, node, ask)
        if state.learned and before == ("bound", node, text, problem) and allocation == state.allocation:
            return seen
        if state.learned and before[:3] == ("binding", node, text) and not problem:
            state.move(Change.FOUND)
            return seen
        was_usable = not state.unusable
        state.allocation, state.text, state.misread = allocation, text, problem
        self._ledger.bind(state, node, Change.FOUND)
        if state.unusable and was_usable:
            seen.effects.append(self._problem(state, "malformed"))
        return seen

    def _bound_without_ask(self, pod: Pod, node: str, state: PodState) -> Seen:
        seen = Seen(state)
        told = trust.of_gang(pod, state.text, settled=state.state == "bound")
        if not told.problem:
            state.allocation, state.text = told.allocation, told.text
        elif told.problem.startswith("forged"):
            seen.effects.append(self._put_back(pod, state.text))
            if not state.misread:
                seen.effects.append(self._problem(state, "forged"))
        state.misread = told.problem
        if (state.state, state.node) == ("binding", node):
            state.move(Change.FOUND)
        elif (state.state, state.node) != ("bound", node):
            self._ledger.bind(state, node, Change.FOUND)
        return seen

    def _from_gpushare(self, pod: Pod, node: str, ask: PodAsk) -> Allocation | None:
        books = self._ledger.node(node).books
        return trust.from_gpushare(pod, ask, books.inventory) if self._settings.gpushare and books else None

    def _take_away(self, pod: Pod, state: PodState, seen: Seen) -> None:
        """An allocation on a pod that can have none is removed: tried at every sight of it, told once."""
        carries = names.ALLOCATION in pod.metadata.annotations
        if carries:
            seen.effects.append(self._put_back(pod, None))
            if not state.forged:
                seen.effects.append(self._problem(state, "forged"))
        state.forged = carries

    def _put_back(self, pod: Pod, text: str | None) -> SetAnnotation:
        return SetAnnotation(ref_of(pod), names.ALLOCATION, text, pod.metadata.resource_version)

    def _problem(self, state: PodState, kind: str) -> Report:
        self._counters["errors", kind] += 1
        return Report(state.ref, Reason(f"Allocation{kind.capitalize()}", SENTENCES[kind]))


def _named(pod: Pod) -> set[str]:
    """The resources that its containers name."""
    given = [c.resources for c in (*pod.spec.containers, *pod.spec.init_containers) if c.resources is not None]
    return {name for each in given for name in (*each.limits, *each.requests)}


def _version(pod: Pod) -> str:
    """As which version the pod's ask was read; "" where that depends on more than the pod."""
    return "" if names.GPU_CLASS in pod.metadata.annotations else pod.metadata.resource_version
