"""A world for stories of gangs: API server, kube-scheduler and the extender's shell, as the engine meets them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any

import msgspec

from extender.engine.cycle.engine import Engine
from extender.engine.state.roster import GangInfo
from extender.engine.types.effects import (
    Deny,
    Effect,
    Evict,
    GroupStatus,
    Held,
    Open,
    PhaseLeft,
    PostBinding,
    Refuse,
    Report,
    Requeue,
    SetAnnotation,
    Verdict,
)
from extender.engine.types.events import BindAbandoned, BindDone, Event, NodeSeen, PodGone, PodSeen, PodsListed, Tick
from extender.engine.types.settings import Settings
from gangfilter.gang import Gang
from gangfilter.group import Declaration, GroupKey
from gangfilter.members import Stage
from gangfilter.table import Phase
from protos.contract import names
from protos.contract.objects import Condition, Node, Pod
from tests.builders import a_node, a_pod, a_ref, newer

WALL = 1_700_000_000.0
"""What the wall clock showed when the monotonic clock showed zero."""
KEY = GroupKey("default", "g")
"""The gang of these stories, where they do not say another."""
VOLCANO = "scheduling.volcano.sh/v1beta1"


def a_member(name: str, *, gang: str = "g", least: int | None = 3, owner: str = "job", **fields: Any) -> Pod:
    """A pod of a gang; `owner` is its controller, `role`, `lost` and `ends` are its annotations of that meaning."""
    said = {names.GROUP: gang}
    said |= {names.MIN_MEMBER: str(least)} if least is not None else {}
    spoken = {"role": names.ROLE, "lost": names.ON_MEMBER_LOST, "ends": names.ON_COMPLETION}
    said |= {key: fields.pop(word) for word, key in spoken.items() if word in fields}
    said |= fields.pop("annotations", {})
    if owner:
        fields["ownerReferences"] = [{"kind": "Job", "name": owner, "uid": f"uid-{owner}", "controller": True}]
    return a_pod(name, annotations=said, **fields)


def members(count: int, **fields: Any) -> list[Pod]:
    """So many that are alike; all of them are the minimum unless `least` says otherwise."""
    prefix = fields.pop("prefix", "m")
    fields = {"least": count, "mem": 8} | fields
    return [a_member(f"{prefix}{i}", **fields) for i in range(count)]


def a_declaration(**fields: Any) -> Declaration:
    """What a PodGroup says."""
    return Declaration(source="PodGroup", **fields)


def at_wall(seconds: float) -> str:
    """A moment of the monotonic clock as the API writes it."""
    return dt.datetime.fromtimestamp(int(WALL + seconds), dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class GangStory:
    """An engine that leads, what the API server holds, and what the engine wants done."""

    def __init__(self, *nodes: Node, **settings: Any) -> None:
        self.settings = Settings(**settings)
        self.now = 100.0
        self.nodes = {node.metadata.name: node for node in nodes}
        self.pods: dict[str, Pod] = {}
        """By name."""
        self.groups: list[Any] = []
        """PodGroups, as the events that tell them."""
        self.done: list[Effect] = []
        """All effects so far."""
        self.flying: dict[str, PostBinding] = {}
        """Bindings under way, by the pod's name."""
        self.held: set[str] = set()
        self.restart()

    def restart(self, *, wait: bool = False) -> None:
        """A new process reads the cluster; it does not know Bindings in progress. `wait`: not all of it yet."""
        self.engine = Engine(self.settings, started=self.now, wall=WALL)
        self.flying, self.held = {}, set()
        for event in self.listed():
            self.tell(event)
        if not wait:
            self.tell(PodsListed())
            self.run_slice()

    def listed(self) -> Iterable[Event]:
        """The events that a process gets at its start."""
        yield from (NodeSeen(node) for node in self.nodes.values())
        yield from self.groups
        yield from (PodSeen(pod) for pod in self.pods.values())

    # -- the engine

    def tell(self, *events: Event) -> list[Effect]:
        found: list[Effect] = []
        for event in events:
            found += self.carry(self.engine.step(event, self.now))
        return found

    def carry(self, effects: list[Effect]) -> list[Effect]:
        """Note what is to be done, and open and deny held binds."""
        assert self.engine.check() == []
        self.done += [effect for effect in effects if not isinstance(effect, PhaseLeft)]
        for effect in effects:
            if isinstance(effect, Open | Deny):
                assert effect.pod.name in self.held, effect
                self.held.discard(effect.pod.name)
            if isinstance(effect, Open):
                self.flying[effect.pod.name] = effect.place
        return effects

    def run_slice(self) -> None:
        for _ in range(10_000):
            more = self.engine.run_slice(self.now)
            self.carry(self.engine.effects())
            if not more:
                return
        raise AssertionError("planning never ends")

    def later(self, seconds: float = 0.3) -> list[Effect]:
        """Time passes, as the extender's clock ticks."""
        before = len(self.done)
        until = self.now + seconds
        while self.now < until - 1e-9:
            self.now = min(until, self.now + 1.0)
            self.tell(Tick())
            self.run_slice()
        return self.done[before:]

    # -- the API server

    def create(self, *pods: Pod) -> None:
        for pod in pods:
            made = msgspec.structs.replace(pod.metadata, creation_timestamp=at_wall(self.now))
            self.pods[pod.metadata.name] = msgspec.structs.replace(pod, metadata=made)
            self.show(pod.metadata.name)
        self.run_slice()

    def show(self, *shown: str) -> None:
        self.tell(*(PodSeen(self.pods[name]) for name in shown))

    def change(
        self, name: str, *, annotations: dict[str, str] | None = None, managed: list[Any] | None = None, **status: Any
    ) -> None:
        """The pod changes; `managed`: its managedFields from now on."""
        pod = self.pods[name]
        metadata = pod.metadata
        if annotations is not None:
            metadata = newer(metadata, annotations=annotations)
        if managed is not None:
            metadata = msgspec.structs.replace(metadata, managed_fields=msgspec.Raw(msgspec.json.encode(managed)))
        changed = msgspec.structs.replace(pod.status, **status)
        self.pods[name] = msgspec.structs.replace(pod, metadata=metadata, status=changed)
        self.show(name)

    def terminate(self, *gone: str) -> None:
        """Deletion begins: bound pods stay until their containers are gone."""
        for name in gone:
            pod = self.pods[name]
            metadata = msgspec.structs.replace(pod.metadata, deletion_timestamp=at_wall(self.now))
            self.pods[name] = msgspec.structs.replace(pod, metadata=metadata)
            self.show(name)

    def delete(self, *gone: str) -> None:
        for name in gone:
            self.tell(PodGone(self.pods.pop(name).metadata.uid))
        self.run_slice()

    def again(self, name: str, serial: int = 2) -> None:
        """A controller replaces the pod of this name."""
        former = self.pods.pop(name)
        self.tell(PodGone(former.metadata.uid))
        kept = {k: v for k, v in former.metadata.annotations.items() if k != names.ALLOCATION}
        metadata = msgspec.structs.replace(
            former.metadata, uid=f"uid-{name}-{serial}", annotations=kept, deletion_timestamp=None
        )
        spec = msgspec.structs.replace(former.spec, node_name=None)
        self.create(Pod(metadata, spec))

    def land(self, *landed: str, told: bool = True) -> None:
        """Bindings take; the watch shows it (or not yet), and the shell hears of it."""
        for name in landed or sorted(self.flying):
            place = self.flying.pop(name)
            self.pods[name] = bound_pod(self.pods[name], place, self.now)
            if told:
                self.show(name)
            self.tell(BindDone(place.pod.uid, "bound"))

    def fail(self, *lost: str) -> None:
        """Bindings do not happen."""
        for name in lost or sorted(self.flying):
            self.tell(BindDone(self.flying.pop(name).pod.uid, "lost"))

    def refuse(self, name: str) -> None:
        """The kubelet does not take the pod."""
        self.change(name, phase="Failed")

    # -- kube-scheduler

    def ask(self, name: str, nodes: list[str] | None = None, nominated: str = "") -> Verdict:
        self.now += 0.001
        pod = self.pods[name]
        if nominated:
            status = msgspec.structs.replace(pod.status, nominated_node_name=nominated)
            pod = msgspec.structs.replace(pod, status=status)
        nodes = sorted(self.nodes) if nodes is None else nodes
        while self.engine.prepare(pod, nodes, self.now):
            pass
        verdict = self.engine.filter(pod, nodes, self.now)
        self.carry(self.engine.effects())
        return verdict

    def bind(self, name: str, node: str) -> str:
        """What comes of a bind: `held`, `flying`, `bound` or why it is refused."""
        answer = self.engine.bind(a_ref(self.pods[name]), node, self.now)
        if isinstance(answer, Held):
            self.held.add(name)
        if isinstance(answer, PostBinding):
            self.flying[name] = answer
        self.carry(self.engine.effects())
        if isinstance(answer, Refuse):
            return answer.reason.code
        return "flying" if name in self.flying else "held" if name in self.held else "bound"

    def come(self, *coming: str) -> list[str]:
        """kube-scheduler takes these pods: filter and, where that names a node, bind; what came of each."""
        found = []
        for name in coming:
            verdict = self.ask(name)
            found.append(self.bind(name, verdict.nodes[0]) if verdict.nodes else verdict.reason.code)  # type: ignore[union-attr]
        return found

    def leave(self, name: str) -> None:
        """kube-scheduler does not wait for the answer to a held bind any more."""
        self.held.discard(name)
        self.tell(BindAbandoned(self.pods[name].metadata.uid))

    def start(self, *pods: Pod) -> None:
        """A gang from its creation until it runs."""
        self.create(*pods)
        self.come(*(pod.metadata.name for pod in pods))
        self.land()

    # -- what is seen

    def known(self, gang: str = "g") -> GangInfo:
        return self.engine.gangs.roster.known[GroupKey("default", gang)]

    def gang(self, gang: str = "g") -> Gang:
        return self.known(gang).gang

    def phase(self, gang: str = "g") -> Phase:
        return self.gang(gang).phase

    def why(self, gang: str = "g") -> str:
        """The code of the reason for which it waits."""
        reason = self.known(gang).reason
        return reason.code if reason else ""

    def stage(self, name: str, gang: str = "g") -> Stage:
        return self.gang(gang).members[self.pods[name].metadata.uid].stage

    def booked(self) -> list[str]:
        """The pods that hold anything anywhere, by name."""
        return sorted(pod.ref.name for pod in self.engine.pods.values() if pod.node)

    def woken(self, since: int = 0) -> list[tuple[str, str]]:
        return [(e.pod.name, e.node) for e in self.done[since:] if isinstance(e, Requeue)]

    def denied(self, since: int = 0) -> dict[str, str]:
        return {e.pod.name: e.reason.code for e in self.done[since:] if isinstance(e, Deny)}

    def evicted(self, since: int = 0) -> list[str]:
        return [e.pod.name for e in self.done[since:] if isinstance(e, Evict)]

    def told(self) -> list[tuple[str, str]]:
        """Events: of which pod, and the reason's code."""
        return [(e.pod.name, e.reason.code) for e in self.done if isinstance(e, Report)]

    def taken_away(self) -> list[tuple[str, str | None]]:
        return [(e.pod.name, e.value) for e in self.done if isinstance(e, SetAnnotation)]

    def status(self) -> GroupStatus:
        """What was last written on the PodGroup."""
        return [e for e in self.done if isinstance(e, GroupStatus)][-1]


def two_nodes(**settings: Any) -> GangStory:
    """Two GPUs of 16 units on each of two nodes."""
    return GangStory(a_node("n1", 16, 16), a_node("n2", 16, 16), **settings)


def bound_pod(pod: Pod, place: PostBinding, now: float) -> Pod:
    """The pod as the API server shows it after this Binding."""
    annotations = {**pod.metadata.annotations, **place.annotations}
    scheduled = Condition("PodScheduled", "True", last_transition_time=at_wall(now))
    return Pod(
        msgspec.structs.replace(pod.metadata, annotations=annotations),
        msgspec.structs.replace(pod.spec, node_name=place.node),
        msgspec.structs.replace(pod.status, conditions=(scheduled,)),
    )
