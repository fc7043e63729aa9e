"""Reads pods and nodes of the cluster into the ledger."""

from __future__ import annotations

import sys

from extender.engine.state.ask_reader import AskReader, Reading, named
from extender.engine.state.classes import Classes
from extender.engine.state.context import EngineContext
from extender.engine.state.isolation_defaults import IsolationDefaults
from extender.engine.state.pod_state import Change, PodState
from extender.engine.types import trust
from extender.engine.types.amounts import interned
from extender.engine.types.effects import PodRef, Report, ReportNode, SetAnnotation
from extender.engine.types.requests import amounts, requests
from extender.engine.types.shape import Shape, shape
from protos.contract import ask as asks
from protos.contract import bounds, mistakes, names, resize
from protos.contract.ask import PodAsk
from protos.contract.isolation import stricter
from protos.contract.objects import ENDED, Node, Pod
from protos.contract.reason import Reason
from protos.contract.resize import Resized
from protos.contract.selection import ANYTHING, Selection

NATIVE = ("cpu", "memory", "ephemeral-storage", "pods")
"""Resources of every node."""
UNUSABLE = "the node takes no new pods with GPUs, since its inventory cannot be used"
PROBLEMS = {
    "forged": Reason(
        "AllocationForged",
        "only Gangshare may write this annotation; the value found is ignored and the right one restored",
    ),
    "malformed": Reason(
        "AllocationMalformed",
        "the allocation cannot be used; every GPU that fits the pod is charged until the plugin corrects it",
    ),
    "newer": Reason(
        "AllocationNewer", "the allocation was written by a newer version; every GPU that fits the pod is charged"
    ),
}
"""What is wrong with an allocation."""


def ref_of(pod: Pod) -> PodRef:
    """The reference of a pod."""
    return PodRef(sys.intern(pod.metadata.namespace), pod.metadata.name, pod.metadata.uid)


class Observer:
    """Keeps the ledger in step with the objects of the cluster."""

    def __init__(self, context: EngineContext, classes: Classes, isolation: IsolationDefaults) -> None:
        self._ledger, self._settings, self._classes = context.ledger, context.settings, classes
        self._isolation = isolation
        self._counters, self._outbox, settings = context.counters, context.outbox, context.settings
        self._resources, self._reader = settings.resources, AskReader(settings)
        self._drains = {key: value for key, _, value in (sign.partition("=") for sign in settings.drain_taints)}

    def node(self, node: Node) -> bool:
        """Read a node; returns whether anything relevant changed. Report once what is wrong with it."""
        state, metadata = self._ledger.node(node.metadata.name), node.metadata
        changed = self._ledger.set_node(node, amounts(node.status.allocatable), self._drain_sign(node))
        unusable = Reason("InventoryUnusable", UNUSABLE, state.fault) if state.fault else None
        found = (unusable, state.cordon_fault, mistakes.of_node(metadata.annotations, metadata.labels))
        wrong = tuple(reason for reason in found if reason is not None)
        self._outbox.put(*(ReportNode(state.name, reason) for reason in wrong if reason not in state.told))
        state.told = wrong
        return changed

    def _drain_sign(self, node: Node) -> str:
        """The first taint or label that announces the node's removal, "" if there is none."""
        marks = [*((taint.key, taint.value) for taint in node.spec.taints), *node.metadata.labels.items()]
        signs = (f"{key}={value}" if value else key for key, value in marks if self._drains.get(key) in ("", value))
        return next(signs, "")

    def ask(self, pod: Pod) -> PodAsk | None:
        """The pod's GPU request, None if it has none or an invalid one."""
        asked = self._read(pod).asked
        return asked if isinstance(asked, PodAsk) else None

    def names_ours(self, pod: Pod) -> bool:
        """Whether a container names one of our resources, in any amount: then kube-scheduler asks us about the pod."""
        return not named(pod).isdisjoint(self._resources.managed)

    def shape(self, pod: Pod) -> Shape:
        """The shape of a pod without record."""
        return shape(self.ask(pod), self._requests(pod))

    def asked(self, pod: Pod, now: float) -> PodState:
        """The record of a pod that kube-scheduler asks about, perhaps before our watch shows it."""
        known = self._ledger.pods.get(pod.metadata.uid)
        if known is not None:
            return known
        state = self._learn(pod, now)
        state.learned = True
        return state

    def draft(self, pod: Pod, now: float) -> PodState:
        """A record of a pod that does not exist; the ledger does not know it."""
        state = PodState(ref_of(pod), now)
        state.priority, state.gpu_class = pod.spec.priority or 0, pod.metadata.annotations.get(names.GPU_CLASS, "")
        state.asked, state.mistake = self._read(pod)
        state.requests = tuple(self._requests(pod))
        return state

    def asks_anew(self, pod: Pod, state: PodState) -> bool:
        """Whether the requests of an unbound pod have changed: it may be edited until it is bound."""
        if pod.spec.node_name or state.state not in ("waiting", "held"):
            return False
        if state.version and state.version == self._version(pod):
            return False
        if self._read(pod).asked != state.asked or tuple(self._requests(pod)) != state.requests:
            return True
        state.version = self._version(pod)
        return False

    def learn_anew(self, pod: Pod, state: PodState) -> None:
        """Set the pod's present requests."""
        state.asked, state.mistake = self._read(pod)
        state.refusal = None
        self._resize(pod, state)
        state.version = self._version(pod)

    def with_defaults(self, state: PodState) -> PodAsk | Reason | None:
        """The request of an unbound pod with the present default of its namespace, if it says nothing of isolation."""
        of_class = self._classes.selection(state.info.gpu_class) if state.info.gpu_class else ANYTHING
        if state.info.demands or not isinstance(state.asked, PodAsk) or not isinstance(of_class, Selection):
            return state.asked
        return asks.demanding(state.asked, stricter(self._isolation.of(state.ref.namespace), of_class.isolation))

    def _resize(self, pod: Pod, state: PodState) -> None:
        """Set the pod's in-tree requests, which may be resized in place."""
        resized = tuple(self._requests(pod))
        if resized != state.requests:
            self._ledger.resize(state, interned(resized))

    def _learn(self, pod: Pod, now: float) -> PodState:
        state = self._ledger.pod(ref_of(pod), now)
        state.priority = pod.spec.priority or 0
        self._resize(pod, state)
        state.asked, state.mistake = self._read(pod)
        state.version = self._version(pod)
        return state

    def _version(self, pod: Pod) -> str:
        """What determines the pod's requests: its resourceVersion and a default; "" if also a GpuClass."""
        version, default = pod.metadata.resource_version, self._isolation.of(pod.metadata.namespace)
        if names.GPU_CLASS in pod.metadata.annotations or not version:
            return ""
        return version if default == "any" else f"{version} {default}"

    def _read(self, pod: Pod) -> Reading:
        """What the pod asks, under the GpuClass that it names and the default of its namespace."""
        name = pod.metadata.annotations.get(names.GPU_CLASS)
        of_class = None if name is None else self._classes.selection(name)
        return self._reader.read(pod, of_class, self._isolation.of(pod.metadata.namespace))

    def _requests(self, pod: Pod) -> list[tuple[str, int]]:
        """The pod's in-tree requests. Of too many resources, native ones and ours count before others."""
        taken, most = requests(pod), bounds.RESOURCES_PER_POD.most
        if len(taken) > most:
            first = (*NATIVE, *self._resources.managed)
            taken = sorted(sorted(taken, key=lambda each: (each[0] not in first, each[0]))[:most])
        return taken

    def pod(self, pod: Pod, now: float) -> PodState | None:
        """Read a pod; returns its record, None if it has ended."""
        if pod.status.phase in ENDED or (pod.metadata.deletion_timestamp and not pod.spec.node_name):
            return None
        known = self._ledger.pods.get(pod.metadata.uid)
        state = known if known is not None and known.learned else self._learn(pod, now)
        if pod.spec.node_name:
            self._on_node(pod, pod.spec.node_name, state)
        else:
            self._unbound(pod, state)
        state.learned = True
        return state

    def _on_node(self, pod: Pod, node: str, state: PodState) -> None:
        if state.learned:
            self._resize(pod, state)
        if isinstance(state.asked, Reason):
            state.asked = asks.held(pod, self._resources)
        if state.ask is None:
            self._bound_without_ask(pod, node, state)
        else:
            self._bound(pod, node, state, state.ask)

    def _unbound(self, pod: Pod, state: PodState) -> None:
        """Remove an allocation, which a pod without a node cannot have: at every sight, with one report."""
        forged = names.ALLOCATION in pod.metadata.annotations
        if forged:
            self._restore(pod, None)
            if not state.forged:
                self._problem(state, "forged")
        state.forged = forged

    def _bound(self, pod: Pod, node: str, state: PodState, ask: PodAsk) -> None:
        before = (state.state, state.node, state.text, state.misread)
        written = trust.claim(pod, state.text, settled=state.state == "bound")
        allocation, text, problem = written.allocation, written.text, written.problem
        if problem.startswith("forged") and state.text is not None and state.node == node:
            allocation, text = state.allocation, state.text
        if problem.startswith("forged"):
            self._restore(pod, text)
        if problem and problem != state.misread:
            self._problem(state, problem.partition(":")[0])
        if text is None and not problem and self._settings.gpushare and (books := self._ledger.node(node).books):
            allocation = trust.from_gpushare(pod, ask, books.inventory)
        resized = self._resized(pod, state)
        same = resized == state.resized
        if state.learned and before == ("bound", node, text, problem) and allocation == state.allocation and same:
            return
        if state.learned and before[:3] == ("binding", node, text) and not problem:
            state.move(Change.FOUND)
            return
        was_usable = not state.unusable
        state.allocation, state.text, state.misread, state.resized = allocation, text, problem, resized
        self._ledger.bind(state, node, Change.FOUND)
        if state.unusable and was_usable:
            self._problem(state, "malformed")

    def _resized(self, pod: Pod, state: PodState) -> Resized | None:
        """The answer to the pod's last wish: ours until it is written, and put back if others have changed it."""
        text, ours = pod.metadata.annotations.get(names.RESIZED), state.resized
        if ours is not None and text == state.superseded:
            return ours
        found = resize.of_pod(pod)
        state.superseded = ""
        if found is None and ours is not None:
            self._outbox.put(SetAnnotation(ref_of(pod), names.RESIZED, resize.resized.encode(ours), ""))
            return ours
        return found

    def _bound_without_ask(self, pod: Pod, node: str, state: PodState) -> None:
        written = trust.of_gang(pod, state.text, settled=state.state == "bound")
        if not written.problem:
            state.allocation, state.text = written.allocation, written.text
        elif written.problem.startswith("forged"):
            self._restore(pod, state.text)
            if not state.misread:
                self._problem(state, "forged")
        state.misread = written.problem
        if (state.state, state.node) == ("binding", node):
            state.move(Change.FOUND)
        elif (state.state, state.node) != ("bound", node):
            self._ledger.bind(state, node, Change.FOUND)

    def _restore(self, pod: Pod, text: str | None) -> None:
        self._outbox.put(SetAnnotation(ref_of(pod), names.ALLOCATION, text, pod.metadata.resource_version))

    def _problem(self, state: PodState, kind: str) -> None:
        self._counters["errors", kind] += 1
        self._outbox.put(Report(state.ref, PROBLEMS[kind]))
