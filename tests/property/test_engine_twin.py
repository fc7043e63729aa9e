"""The engine under arbitrary histories: restarts, lost bindings, forgeries, sick GPUs. A naive twin keeps the truth."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from extender.engine.effects import BindDone, Event, NodeSeen, Place, PodGone, PodSeen, Tick
from extender.engine.engine import Engine
from extender.engine.settings import Settings
from protos.contract.objects import Pod
from tests.builders import a_node, a_pod, a_ref

NODES = {"a": (16, 16), "b": (24,), "c": (16, 40)}
ASKS: tuple[dict[str, Any], ...] = (
    {"mem": 5}, {"mem": 12}, {"mem": 16, "slices": 50}, {"slices": 40}, {"whole": 1}, {"whole": 2}, {"mem": 30},
)  # fmt: skip


class EngineAndTwin(RuleBasedStateMachine):
    """The world's pods are the twin: what each bound pod was given, by the Binding it got."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.made = 1000.0, 0
        self.pending: dict[str, Pod] = {}
        self.offers: dict[str, tuple[str, ...]] = {}
        self.bound: dict[str, Pod] = {}
        self.places: dict[str, Place] = {}
        self.flying: dict[str, Place] = {}
        self.start()

    def start(self) -> None:
        self.engine = Engine(Settings(), started=self.now)
        for name, mems in NODES.items():
            self.engine.step(NodeSeen(a_node(name, *mems)), self.now)
        for pod in [*self.bound.values(), *self.pending.values()]:
            self.engine.step(PodSeen(pod), self.now)
        self.offers = {}

    @rule(ask=st.sampled_from(ASKS))
    def create(self, ask: dict[str, Any]) -> None:
        self.made += 1
        pod = a_pod(f"p{self.made}", **ask)
        self.pending[pod.metadata.uid] = pod
        self.engine.step(PodSeen(pod), self.now)

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def ask_the_filter(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.pending)))
        if uid in self.flying:
            return
        found = self.engine.filter(self.pending[uid], sorted(NODES), self.now)
        assert set(found.nodes) <= set(NODES)
        self.offers[uid] = found.nodes

    @precondition(lambda self: any(self.offers.values()))
    @rule(data=st.data())
    def ask_to_bind(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(u for u, nodes in self.offers.items() if nodes)))
        node = data.draw(st.sampled_from(self.offers.pop(uid)))
        answer = self.engine.bind(a_ref(self.pending[uid]), node, self.now)
        if isinstance(answer, Place):
            self.flying[uid] = answer

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), happened=st.booleans(), told_first=st.booleans())
    def the_binding_ends(self, data: st.DataObject, happened: bool, told_first: bool) -> None:
        uid = data.draw(st.sampled_from(sorted(self.flying)))
        place = self.flying.pop(uid)
        if not happened:
            self.engine.step(BindDone(uid, "lost"), self.now)
            return
        pod = self.pending.pop(uid)
        metadata = msgspec.structs.replace(pod.metadata, annotations=dict(place.annotations))
        spec = msgspec.structs.replace(pod.spec, node_name=place.node)
        self.bound[uid] = msgspec.structs.replace(pod, metadata=metadata, spec=spec)
        self.places[uid] = place
        events: list[Event] = [BindDone(uid, "bound"), PodSeen(self.bound[uid])]
        for event in events if told_first else reversed(events):
            self.engine.step(event, self.now)

    @precondition(lambda self: self.bound)
    @rule(data=st.data(), finished=st.booleans())
    def a_pod_ends(self, data: st.DataObject, finished: bool) -> None:
        uid = data.draw(st.sampled_from(sorted(self.bound)))
        pod = self.bound.pop(uid)
        if finished:
            status = msgspec.structs.replace(pod.status, phase="Succeeded")
            self.engine.step(PodSeen(msgspec.structs.replace(pod, status=status)), self.now)
        else:
            self.engine.step(PodGone(uid), self.now)

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def a_waiting_pod_is_deleted(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.pending)))
        if uid not in self.flying:
            del self.pending[uid]
            self.offers.pop(uid, None)
            self.engine.step(PodGone(uid), self.now)

    @rule(seconds=st.sampled_from([0.01, 0.3, 1.5]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.engine.step(Tick(), self.now)

    @precondition(lambda self: not self.flying)
    @rule()
    def the_extender_restarts(self) -> None:
        self.start()

    @invariant()
    def the_books_are_sound(self) -> None:
        assert self.engine.check() == []

    @invariant()
    def nothing_is_given_twice(self) -> None:
        taken: dict[str, list[tuple[int, int, bool]]] = {}
        for uid in [*self.bound, *self.flying]:
            place = self.flying.get(uid) or self.places[uid]
            assert place.allocation is not None
            for given in place.allocation.containers.values():
                for share in given:
                    taken.setdefault(share.uuid, []).append((share.mem, share.slices, share.whole))
        for uuid, shares in taken.items():
            node, index = uuid.split("-")[1:]
            assert sum(mem for mem, _, _ in shares) <= NODES[node][int(index)]
            assert sum(slices for _, slices, _ in shares) <= 100
            assert len(shares) == 1 or not any(whole for _, _, whole in shares)

    @invariant()
    def every_booking_is_of_a_live_pod(self) -> None:
        live = set(self.pending) | set(self.bound)
        for node in self.engine.nodes.values():
            assert node.books is not None
            assert set(node.books.entries) <= live
            assert not node.books.overused()


TestEngineAndTwin = EngineAndTwin.TestCase
TestEngineAndTwin.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
