"""Things that come and go, each of its own name, kind and wish, so that nothing of one is like anything of another.

`Passing` has everything that tenants, nodes and operators can write appear, be used, and go.
"""

from __future__ import annotations

from typing import Any

import msgspec

from extender.engine.types.events import (
    BudgetGone,
    BudgetSeen,
    ClassGone,
    ClassSeen,
    Event,
    EvictionRefused,
    GpusUnhealthy,
    GroupGone,
    GroupSeen,
    Leading,
    NamespaceGone,
    NamespaceSeen,
    NodeGone,
    NodeSeen,
    PodGone,
    PodSeen,
    PriorityGone,
    PrioritySeen,
    QueueGone,
    QueueSeen,
    ScalerGone,
    ScalerSeen,
    ScalersServed,
    Tick,
)
from gangfilter.group import GroupKey
from protos.contract import budget, names, reservation
from protos.contract.gpu_class import GpuClass
from protos.contract.namespace import Namespace
from protos.contract.objects import Pod
from protos.contract.priority import PriorityClass
from protos.contract.queue import Queue
from protos.contract.reservation import Reservation, Room
from protos.contract.selection import Selection
from protos.contract.training import Scaler, TrainingJob
from tests.builders import a_container, a_node, a_pod
from tests.unit.engine.gang_story import VOLCANO, a_declaration, a_member, at_wall
from tests.unit.engine.preemption_story import PreemptionStory

SETTLED_S = 2000.0
"""Seconds after which nothing is remembered for its time's sake."""

LIVES = (
    "single", "pinned", "refused", "unseen", "on_nodes", "node", "definitions", "gang", "gang_in_vain", "job",
    "reserves", "preempts", "parks", "replaced",
)  # fmt: skip


class Passing:
    """A small cluster that stays, and what passes by."""

    def __init__(self, **settings: Any) -> None:
        self.story = PreemptionStory(a_node("stays-1", 16, 16), a_node("stays-2", 16, 16), **settings)
        self.story.tell(ScalersServed("ScaleIn", True), ScalersServed("ScaleOut", True))
        self.story.tell(QueueSeen(Queue(name="stays", deserved={"nvidia.com/gpu": 2})))
        self.story.start(a_member("runs-0", gang="runs", least=1, whole=1), a_member("runs-1", gang="runs", least=1))
        """A gang that stays; its second member is replaced again and again."""

    def once(self, number: int, *lives: str) -> None:
        """These lives once, under names that never come again."""
        for life in lives:
            getattr(self, life)(f"x{number}", number)
        self._clear()

    def settle(self) -> None:
        """Time passes, until nothing is remembered for its sake alone."""
        until = self.story.now + SETTLED_S
        while self.story.now < until:
            self.story.now += 50.0
            self.tell(Tick())
            self.story.run_slice()
        parts = self.story.engine._components
        for node in parts.ledger.nodes.values():
            parts.indexes.scorer.node(node)  # which is reckoned when it is asked for
        self._clear()

    def _clear(self) -> None:
        self.story.done.clear()
        self.story.written = 0

    def tell(self, *events: Event) -> None:
        self.story.tell(*events)

    def _pod(self, name: str, number: int, **fields: Any) -> Pod:
        """A pod that says everything in a way of its own."""
        said = {
            names.MIN_CLOCK_MHZ: "0",
            names.GPU_MODEL: f"T4,{name}*",
            names.MIN_GPU_MEMORY: f"{10**9 + number}",
            names.QUEUE: f"queue-{name}",
            names.EXPECTED_RUNTIME: f"{number + 60}",
            f"example.com/{name}": name,
        } | fields.pop("annotations", {})
        said = {key: value for key, value in said.items() if value}
        amounts = {"cpu": f"{number % 1000 + 1}m", f"example.com/{name}": "0", f"hugepages-{number + 1}Ki": "0"}
        container = a_container(f"c-{name}", fields.pop("mem", 1), limits=amounts)
        spec: dict[str, Any] = {
            "affinity": _affinity(name),
            "tolerations": [{"key": name, "operator": "Exists"}],
            "nodeSelector": {},
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": name}},
                }
            ],
            "priority": number,
        }  # fmt: skip
        spec |= fields.pop("spec", {})
        owner = {"kind": "Job", "name": f"job-{name}", "uid": f"uid-job-{name}", "controller": True}
        fields = {"namespace": f"ns-{name}", "labels": {"app": name}, "ownerReferences": [owner]} | fields
        return a_pod(name, containers=[container], annotations=said, spec=spec, **fields)

    def _run(self, pod: Pod) -> None:
        """It is bound, ends, and is deleted."""
        name = pod.metadata.name
        self.story.create(pod)
        if self.story.come(name) == ["flying"]:
            self.story.land()
        self.story.now += 1.0
        self.story.change(name, phase="Succeeded")
        self.story.delete(name)

    # -- what passes

    def single(self, name: str, number: int) -> None:
        """A pod that runs and ends, in an account, with a history, of its own."""
        self._run(self._pod(f"{name}-single", number))

    def pinned(self, name: str, number: int) -> None:
        """A pod that wants a GPU by its UUID."""
        pins = f"GPU-stays-1-0,GPU-{name}"
        self._run(self._pod(f"{name}-pin", number, annotations={names.GPU_UUID: pins}))

    def refused(self, name: str, number: int) -> None:
        """Pods that fit nowhere, wait, are explained and edited, and go: by size, by class, by what cannot be read."""
        unread = {names.EXPECTED_RUNTIME: f"never {name}", names.RESERVATION: f"nonsense {name}"}
        for why, pod in {
            "big": self._pod(f"{name}-big", number, mem=1000 + number),
            "class": self._pod(f"{name}-class", number, annotations={names.GPU_CLASS: f"class-{name}"}),
            "unread": self._pod(f"{name}-unread", number, annotations=unread),
            "gated": self._pod(f"{name}-gated", number, spec={"schedulingGates": [{"name": names.PLAN_GATE}]}),
        }.items():
            known = pod.metadata.name
            self.story.create(pod)
            if why != "gated":
                self.story.ask(known)
            self.story.engine.explain(self.story.engine.pods[pod.metadata.uid])
            self.story.engine.prioritize(pod, ["stays-1", "stays-2"])
            self.tell(Tick())
            said = self.story.pods[known].metadata.annotations
            self.story.change(known, annotations={**said, names.GPU_MODEL: f"other-{name}", names.QUEUE: f"to-{name}"})
            self.story.delete(known)

    def unseen(self, name: str, number: int) -> None:
        """A pod for which kube-scheduler asks, and which no watch ever shows."""
        self.story.engine.filter(self._pod(f"{name}-unseen", number), ["stays-1"], self.story.now)

    def on_nodes(self, name: str, number: int) -> None:
        """Pods that others bind: to a node that is there, to one that never comes, and by an allocation of theirs."""
        for node in ("stays-1", f"nowhere-{name}"):
            pod = self._pod(f"{name}-{node}", number, node=node, annotations={names.ALLOCATION: f"forged {name}"})
            self.tell(PodSeen(pod), EvictionRefused(pod.metadata.uid, f"budget {name}"))
            self.tell(PodSeen(msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase="Failed"))))
            self.tell(PodGone(pod.metadata.uid))

    def node(self, name: str, number: int) -> None:
        """A node of a kind of its own comes, changes, serves, and goes."""
        own = {"allocatable": {"cpu": f"{number + 1}", f"example.com/{name}": "1"}}
        node = a_node(name, 16 + number, 8, **own)
        self.story.nodes[name] = node
        self.tell(NodeSeen(node), GpusUnhealthy(name, frozenset((1,))), GpusUnhealthy(name, frozenset()))
        self._run(self._pod(f"{name}-here", number, annotations={names.GPU_UUID: f"GPU-{name}-0"}))
        del self.story.nodes[name]
        self.tell(NodeGone(name), GpusUnhealthy(f"never-{name}", frozenset((1,))))
        self.tell(GpusUnhealthy(f"never-{name}", frozenset()))

    def definitions(self, name: str, number: int) -> None:
        """Classes, queues, priorities and budgets."""
        guard = budget.decode(
            msgspec.json.encode(
                {
                    "metadata": {"name": name, "namespace": f"ns-{name}"},
                    "spec": {"selector": {"matchLabels": {"a": name}}},
                }
            )
        )
        queue = Queue(
            name=f"named-{name}",
            namespaces=(f"ns-{name}",),
            deserved={f"gangshare.io/class/{name}": number + 1, f"r/{name}": 1},
        )
        self.tell(
            ClassSeen(GpuClass(name=name, selection=Selection(models=(f"*{name}",)))),
            PrioritySeen(PriorityClass(metadata=guard.metadata, value=number)),
            QueueSeen(queue),
            QueueSeen(msgspec.structs.replace(queue, weight=2)),
            BudgetSeen(guard),
            NamespaceSeen(Namespace(name=f"ns-{name}", labels={name: name})),
            Tick(),
        )
        self._run(self._pod(f"{name}-in", number, annotations={names.QUEUE: queue.name, names.GPU_CLASS: name}))
        self.tell(
            NamespaceGone(f"ns-{name}"),
            ClassGone(name),
            PriorityGone(name),
            QueueGone(queue.source, queue.name),
            BudgetGone(f"ns-{name}", name),
        )

    def gang(self, name: str, number: int) -> None:
        """A gang that starts, works and ends, with a PodGroup."""
        gang, key = f"gang-{name}", GroupKey("default", f"gang-{name}")
        self.tell(GroupSeen(VOLCANO, key, a_declaration(min_member=2, priority_class=name, queue=f"q-{name}")))
        pods = [
            a_member(
                f"{name}-m{i}", gang=gang, least=2, role=f"role-{name}", mem=1, owner=f"job-{name}",
                annotations={names.EXPECTED_RUNTIME: f"{number}"}, spec={"affinity": _affinity(name)},
            )
            for i in range(2)
        ]  # fmt: skip
        self.story.start(*pods)
        self.story.later(1.0)
        for pod in pods:
            self.story.change(pod.metadata.name, phase="Succeeded")
        self.story.delete(*(pod.metadata.name for pod in pods))
        self.tell(GroupGone(VOLCANO, key))

    def gang_in_vain(self, name: str, number: int) -> None:
        """Gangs that never start: too few, too large, told different things."""
        few = a_member(f"{name}-few", gang=f"few-{name}", least=number + 3, mem=1)
        large = [a_member(f"{name}-l{i}", gang=f"large-{name}", least=2, mem=1000 + number) for i in range(2)]
        odd = [a_member(f"{name}-o{i}", gang=f"odd-{name}", least=5 + i, mem=1, lost=f"{name}{i}") for i in range(2)]
        self.story.create(few, *large, *odd)
        self.story.later(1.0)
        self.tell(Leading(False), Leading(True))
        self.story.delete(*(pod.metadata.name for pod in (few, *large, *odd)))
        self.tell(GroupGone(VOLCANO, GroupKey(f"ns-{name}", f"never-{name}")))

    def job(self, name: str, number: int) -> None:
        """An elastic job whose scalers come, end and go; others name a job that never was."""
        job = TrainingJob(namespace="default", name=name, uid=f"uid-{name}", least=1, most=3, running=True)
        key = GroupKey("default", name)
        self.tell(GroupSeen("kai.alibabacloud.com/v1alpha1", key, a_declaration(min_member=1), job))
        self.story.start(a_member(f"{name}-w0", gang=name, least=1, role="worker", mem=1))
        for of in (name, f"nobody-{name}"):
            for kind, outcome in (("ScaleIn", "failed"), ("ScaleOut", "failed"), ("ScaleOut", "done")):
                made = Scaler(
                    kind=kind, namespace="default", name=f"{of}-{outcome}", job=of, ours=True,  # type: ignore[arg-type]
                    created=at_wall(self.story.now),
                )  # fmt: skip
                self.tell(ScalerSeen(made), ScalerSeen(msgspec.structs.replace(made, outcome=outcome)))
                self.tell(ScalerGone(made.kind, made.namespace, made.name))
        self.story.later(2.0)
        self.story.delete(f"{name}-w0")
        self.tell(GroupGone("kai.alibabacloud.com/v1alpha1", key))

    def reserves(self, name: str, number: int) -> None:
        """A pod that waits, and a room that its annotation asks for, for itself and for one that never comes."""
        uids = f"uid-{name}-kept", f"uid-never-{name}"
        rooms = {uid: Room("stays-1", {f"c-{name}-kept": (f"GPU-{name}",)}) for uid in uids}
        text = reservation.encode(Reservation(1, rooms, at_wall(self.story.now + 60)))
        self._run(self._pod(f"{name}-kept", number, annotations={names.RESERVATION: text}))

    def preempts(self, name: str, number: int) -> None:
        """One of high priority takes the room of others."""
        node = a_node(f"small-{name}", 4)
        self.story.nodes[f"small-{name}"] = node
        self.tell(NodeSeen(node))
        pin = {names.GPU_UUID: f"GPU-small-{name}-0", names.QUEUE: ""}
        low = self._pod(f"{name}-low", number, mem=4, spec={"priority": 0}, annotations=pin, namespace="default")
        assert self.story.runs(low) == f"small-{name}"
        self.story.now += 100.0
        high = self._pod(
            f"{name}-high", number, mem=4, spec={"priority": 10_000 + number}, annotations=pin, namespace="default"
        )
        self.story.waits(high)
        gone = self.story.preempt(8.0)
        self.story.delete(low.metadata.name, high.metadata.name)
        del self.story.nodes[f"small-{name}"]
        self.tell(NodeGone(f"small-{name}"))
        assert gone == [low.metadata.name]

    def parks(self, name: str, number: int) -> None:
        """A gang that waits for a queue that has no room, and goes before there is any."""
        pods = [
            a_member(f"{name}-q{i}", gang=f"parked-{name}", least=2, mem=1, annotations={names.QUEUE: f"none-{name}"})
            for i in range(2)
        ]
        self.story.create(*pods)
        self.story.later(3.0)
        self.story.delete(*(pod.metadata.name for pod in pods))

    def replaced(self, name: str, number: int) -> None:
        """A member of the gang that runs succeeds and is replaced, and another one is lost."""
        for end in ("Succeeded", "Failed"):
            member = a_member(f"{name}-{end}", gang="runs", least=1, mem=1, owner=f"job-{name}")
            self.story.create(member)
            self.story.come(member.metadata.name)
            self.story.land()
            self.story.change(member.metadata.name, phase=end)
            self.story.delete(member.metadata.name)


def _affinity(name: str) -> dict[str, Any]:
    """Nodes that are not called so, and no other pods that are like it."""
    other = {"key": f"example.com/{name}", "operator": "DoesNotExist"}
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": name}}}
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [other]}]}
        },
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]},
    }
