"""The engine under arbitrary histories: restarts, late watches, forgeries, sick GPUs. A naive twin keeps the truth."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from extender.engine.cycle.engine import Engine
from extender.engine.types.effects import PostBinding, Requeue, SetAnnotation
from extender.engine.types.events import BindDone, GpusUnhealthy, NodeGone, NodeSeen, PodGone, PodSeen, PodsListed, Tick
from extender.engine.types.requests import requests
from extender.engine.types.settings import DRAIN_TAINTS, Settings
from protos.contract import allocation, inventory, mig, names
from protos.contract.allocation import Share
from protos.contract.ask import Demand
from protos.contract.objects import Node, Pod, Taint
from tests.builders import a_container, a_node, a_pod, a_ref, an_allocation, an_inventory, cut
from tests.property.naive_books import counted, found
from tests.property.shown import Shown
from tests.unit.engine.story import changed, owned_by
from tests.unit.engine.test_requests import resized

NODES = {"a": (16, 16), "b": (24,), "c": (16, 40), "d": (16, 79)}
CUT = {"d": {1: ("1g.10gb", "1g.10gb", "2g.20gb")}}
"""GPUs in MIG mode, and the profiles of their instances."""
ROOM = {
    **{f"GPU-{node}-{i}": (mem, 100) for node, mems in NODES.items() for i, mem in enumerate(mems)},
    "GPU-d-1": (0, 0), "MIG-GPU-d-1-0": (9, 14), "MIG-GPU-d-1-1": (9, 14), "MIG-GPU-d-1-2": (19, 28),
}  # fmt: skip
"""Units and slices of each GPU and instance."""
ASKS: tuple[dict[str, Any], ...] = (
    {"mem": 5}, {"mem": 12}, {"mem": 16, "slices": 50}, {"slices": 40}, {"whole": 1}, {"whole": 2}, {"mem": 30},
    {"containers": [a_container("main", limits={"nvidia.com/mig-1g.10gb": "1"})]},
    {"containers": [a_container("main", limits={"nvidia.com/mig-1g.10gb": "2"})]},
    {"mem": 4, "annotations": {names.MIG_PROFILE: "2g.20gb"}}, {"mem": 6, "annotations": {names.ISOLATION: "memory"}},
)  # fmt: skip
STRANGE: tuple[dict[str, Any], ...] = ({"mem": 5}, {"mem": 12}, {"slices": 40}, {"whole": 1})
EDITS = ("{", "", allocation.encode(an_allocation(main=[Share("GPU-a-0", 0, 1)])), '{"v":2}')
OWNED: dict[str, Any] = {"f:metadata": {"f:annotations": {f"f:{names.ALLOCATION}": {}}}}
KUBECTL = [{"manager": "kubectl", "operation": "Update", "fieldsV1": OWNED}]


TOLD: dict[str, tuple[dict[str, str], list[dict[str, Any]] | None]] = {
    "nothing": ({}, None),
    "newer": ({names.ALLOCATION: '{"v":2}'}, None),
    "malformed": ({names.ALLOCATION: "{"}, None),
    "forged": ({names.ALLOCATION: EDITS[2]}, KUBECTL),
}
"""What a pod that was bound without us says of its GPUs, and who wrote that."""


class Stranger(msgspec.Struct):
    """A pod that another scheduler, or its nodeName, put on a node."""

    pod: Pod
    node: str
    uuid: str
    share: Share


class Look(msgspec.Struct, frozen=True):
    """What of a node changes beside its GPUs."""

    backwards: bool = False
    """Its GPUs are counted through from the other end."""
    label: str = ""
    tainted: bool = False
    cordoned: str = ""


class EngineAndTwin(RuleBasedStateMachine):
    """The world's pods are the twin: what each bound pod was given, by the Binding it got."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.made = 1000.0, 0
        self.pending: dict[str, Pod] = {}
        self.offers: dict[str, tuple[str, ...]] = {}
        self.bound: dict[str, Pod] = {}
        self.untold: dict[str, Pod] = {}
        """Bound, but no watch has shown it yet."""
        self.places: dict[str, PostBinding] = {}
        self.flying: dict[str, PostBinding] = {}
        self.strangers: dict[str, Stranger] = {}
        """Bound without us, and really on a GPU that has room for them."""
        self.sick: dict[str, frozenset[int]] = dict.fromkeys(NODES, frozenset())
        self.looks: dict[str, Look] = dict.fromkeys(NODES, Look())
        self.away: set[str] = set()
        self.leaving: set[str] = set()
        """Nodes that are about to go."""
        self.refused: dict[str, tuple[str, ...]] = {}
        """Pods whose last answer was a refusal, and for which nodes."""
        self.woken: set[str] = set()
        self.shown = Shown()
        self.start()

    # -- the world

    def node(self, name: str) -> Node:
        found = an_inventory(*NODES[name], node=name)
        look, replace = self.looks[name], msgspec.structs.replace
        healthy = [replace(g, health="sick:XID 79" if g.index in self.sick[name] else "ok") for g in found.gpus]
        order = healthy[::-1] if look.backwards and name not in CUT else healthy
        gpus = tuple(replace(gpu, index=place) for place, gpu in enumerate(order))
        text = inventory.encode(cut(replace(found, gpus=gpus), CUT.get(name, {})))
        made = a_node(name, annotations={names.GPUS: text, names.CORDONED_GPUS: look.cordoned})
        keys = [*([DRAIN_TAINTS[0]] if name in self.leaving else ()), *(["dedicated"] if look.tainted else ())]
        taints = tuple(Taint(key, "NoSchedule") for key in keys)
        metadata = replace(made.metadata, labels={"pool": look.label})
        return replace(made, metadata=metadata, spec=replace(made.spec, taints=taints))

    def there(self) -> list[str]:
        return sorted(set(NODES) - self.away)

    def start(self) -> None:
        self.engine = Engine(Settings(), started=self.now)
        for name in self.there():
            self.engine.step(NodeSeen(self.node(name)), self.now)
        there = [*self.bound.values(), *(each.pod for each in self.strangers.values()), *self.pending.values()]
        for pod in there:
            self.engine.step(PodSeen(pod), self.now)
        self.engine.step(PodsListed(), self.now)
        self.offers, self.untold, self.refused = {}, {}, {}

    @rule(asks=st.lists(st.sampled_from(ASKS), min_size=1, max_size=6))
    def a_burst_is_scheduled(self, asks: list[dict[str, Any]]) -> None:
        for ask in asks:
            uid = self.create(ask, seen=True)
            self.filter(uid, sorted(NODES))
            if self.offers[uid]:
                self.bind(uid, self.offers.pop(uid)[0])
                self.binding_ends(uid, happened=True, told="last")

    @rule(ask=st.sampled_from(ASKS), seen=st.booleans())
    def a_pod_is_created(self, ask: dict[str, Any], seen: bool) -> None:
        self.create(ask, seen)

    def create(self, ask: dict[str, Any], seen: bool) -> str:
        self.made += 1
        pod = a_pod(f"p{self.made}", **ask)
        self.pending[pod.metadata.uid] = pod
        if seen:
            self.engine.step(PodSeen(pod), self.now)
        return pod.metadata.uid

    # -- the scheduler

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def ask_the_filter(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.pending)))
        if uid in self.flying:
            return
        asked = data.draw(st.lists(st.sampled_from(sorted(NODES)), unique=True)) if data.draw(st.booleans()) else None
        self.filter(uid, sorted(NODES) if asked is None else asked)

    def filter(self, uid: str, nodes: list[str]) -> None:
        pod = self.pending[uid]
        while self.engine.prepare(pod, [], self.now):
            pass
        found = self.engine.filter(pod, nodes, self.now)
        assert set(found.nodes) <= set(nodes) - self.away - self.leaving
        assert found.reason is None or found.reason == self.engine.filter(pod, nodes, self.now).reason
        self.woken.discard(uid)
        self.offers[uid] = found.nodes
        self.refused.pop(uid, None)
        if not found.nodes:
            self.refused[uid] = tuple(nodes)

    @precondition(lambda self: any(self.offers.values()))
    @rule(data=st.data())
    def ask_to_bind(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(u for u, nodes in self.offers.items() if nodes)))
        self.bind(uid, data.draw(st.sampled_from(self.offers.pop(uid))))

    def bind(self, uid: str, node: str) -> None:
        answer = self.engine.bind(a_ref(self.pending[uid]), node, self.now)
        if isinstance(answer, PostBinding):
            assert self.engine.bind(a_ref(self.pending[uid]), node, self.now) == answer
            self.flying[uid] = answer

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), happened=st.booleans(), told=st.sampled_from(["first", "last", "later"]))
    def the_binding_ends(self, data: st.DataObject, happened: bool, told: str) -> None:
        self.binding_ends(data.draw(st.sampled_from(sorted(self.flying))), happened, told)

    def binding_ends(self, uid: str, happened: bool, told: str) -> None:
        place = self.flying.pop(uid)
        if not happened:
            self.engine.step(BindDone(uid, "lost"), self.now)
            return
        before = self.pending.pop(uid)
        self.bound[uid], self.places[uid] = self.with_allocation(before, place), place
        events: list[Any] = [BindDone(uid, "bound"), PodSeen(before)]
        if told == "later":
            self.untold[uid] = self.bound[uid]
        else:
            events.insert(1 if told == "last" else 0, PodSeen(self.bound[uid]))
            events = [event for event in events if event != PodSeen(before)]
        for event in events:
            self.engine.step(event, self.now)

    def with_allocation(self, pod: Pod, place: PostBinding) -> Pod:
        metadata = msgspec.structs.replace(pod.metadata, annotations=dict(place.annotations))
        return msgspec.structs.replace(
            pod, metadata=metadata, spec=msgspec.structs.replace(pod.spec, node_name=place.node)
        )

    # -- the watch, late and in doubt

    @precondition(lambda self: self.bound)
    @rule(data=st.data())
    def a_bound_pod_is_shown_once_more(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.bound)))
        self.untold.pop(uid, None)
        effects = self.engine.step(PodSeen(self.bound[uid]), self.now)
        assert not [effect for effect in effects if isinstance(effect, SetAnnotation) and effect.pod.uid == uid]
        assert self.engine.pods[uid].problem == ""

    @precondition(lambda self: bool(set(self.bound) - set(self.untold)))
    @rule(data=st.data(), text=st.sampled_from(EDITS), wiped=st.booleans())
    def somebody_edits_an_allocation(self, data: st.DataObject, text: str, wiped: bool) -> None:
        uid = data.draw(st.sampled_from(sorted(set(self.bound) - set(self.untold))))
        pod = self.bound[uid]
        managed = msgspec.Raw(b"" if wiped else msgspec.json.encode(KUBECTL))
        annotations = {names.ALLOCATION: text} if text else {}
        metadata = msgspec.structs.replace(pod.metadata, annotations=annotations, managed_fields=managed)
        effects = self.engine.step(PodSeen(msgspec.structs.replace(pod, metadata=metadata)), self.now)
        restored = [effect.value for effect in effects if isinstance(effect, SetAnnotation)]
        assert restored == [pod.metadata.annotations[names.ALLOCATION]]
        self.engine.step(PodSeen(pod), self.now)

    @precondition(lambda self: bool(set(self.bound) - set(self.untold)))
    @rule(data=st.data(), cpu=st.sampled_from(["1", "250m", "60"]))
    def a_pod_is_resized(self, data: st.DataObject, cpu: str) -> None:
        self.resize(data.draw(st.sampled_from(sorted(set(self.bound) - set(self.untold)))), cpu)

    def resize(self, uid: str, cpu: str) -> None:
        self.bound[uid] = pod = resized(self.bound[uid], cpu)
        self.engine.step(PodSeen(pod), self.now)

    @precondition(lambda self: self.bound)
    @rule(data=st.data(), finished=st.booleans())
    def a_pod_ends(self, data: st.DataObject, finished: bool) -> None:
        self.end(data.draw(st.sampled_from(sorted(self.bound))), finished)

    def end(self, uid: str, finished: bool) -> None:
        pod = self.bound.pop(uid)
        self.untold.pop(uid, None)
        if finished:
            status = msgspec.structs.replace(pod.status, phase="Succeeded")
            self.engine.step(PodSeen(msgspec.structs.replace(pod, status=status)), self.now)
        else:
            self.engine.step(PodGone(uid), self.now)

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def a_pod_is_deleted_before_it_runs(self, data: st.DataObject) -> None:
        """Also while its Binding is under way, which then fails."""
        uid = data.draw(st.sampled_from(sorted(self.pending)))
        del self.pending[uid]
        self.offers.pop(uid, None)
        self.refused.pop(uid, None)
        self.engine.step(PodGone(uid), self.now)
        if self.flying.pop(uid, None) is not None:
            self.engine.step(BindDone(uid, "lost"), self.now)

    # -- pods that are bound without us

    @rule(
        node=st.sampled_from(sorted(NODES)), gpu=st.integers(0, 1), told=st.sampled_from(sorted(TOLD)), data=st.data()
    )
    def a_pod_comes_bound(self, node: str, gpu: int, told: str, data: st.DataObject) -> None:
        self.a_stranger_comes(node, gpu, told, data.draw(st.sampled_from(STRANGE)))

    def a_stranger_comes(self, node: str, gpu: int, told: str, ask: dict[str, Any]) -> None:
        uuid = f"GPU-{node}-{gpu}"
        if node in self.away or gpu >= len(NODES[node]):
            return
        here = self.taken().get(uuid, [])
        mem = NODES[node][gpu] if ask.get("whole") else ask.get("mem", 0) or NODES[node][gpu] * ask["slices"] // 100
        share = Share(uuid, gpu, mem, 100 if ask.get("whole") else ask.get("slices", 0), "whole" in ask)
        if gpu in CUT.get(node, {}):
            uuid = f"MIG-{uuid}-2"
            here, share = self.taken().get(uuid, []), Share(uuid, mig.index(gpu, 2), 19, 28, True)
            if ask.get("whole") or ask.get("slices", 0) > 28:
                return
        if not fits(uuid, [*here, share]):
            return
        self.made += 1
        annotations, owners = TOLD[told]
        pod = changed(a_pod(f"s{self.made}", node=node, **ask), annotations, owners)
        self.strangers[pod.metadata.uid] = Stranger(pod, node, uuid, share)
        self.engine.step(PodSeen(pod), self.now)

    @precondition(lambda self: self.strangers)
    @rule(data=st.data())
    def the_plugin_says_where(self, data: st.DataObject) -> None:
        self.told_where(data.draw(st.sampled_from(sorted(self.strangers))))

    def told_where(self, uid: str) -> None:
        found = self.strangers[uid]
        text = allocation.encode(an_allocation(main=[found.share]))
        found.pod = changed(found.pod, {names.ALLOCATION: text}, owned_by(names.PLUGIN, "status"))
        self.engine.step(PodSeen(found.pod), self.now)
        books = self.engine.nodes[found.node].books
        assert books is None or set(books.entries[uid].charges) == {found.uuid}

    @precondition(lambda self: self.strangers)
    @rule(data=st.data())
    def a_stranger_goes(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.strangers)))
        del self.strangers[uid]
        self.engine.step(PodGone(uid), self.now)

    # -- the nodes

    @rule(
        name=st.sampled_from(sorted(NODES)),
        backwards=st.booleans(),
        label=st.sampled_from(["", "blue"]),
        tainted=st.booleans(),
        cordoned=st.sampled_from(["", "0", "GPU-a-1", "0,1"]),
    )
    def a_node_changes(self, name: str, backwards: bool, label: str, tainted: bool, cordoned: str) -> None:
        self.looks[name] = Look(backwards, label, tainted, cordoned)
        if name not in self.away:
            self.engine.step(NodeSeen(self.node(name)), self.now)

    @rule(name=st.sampled_from(sorted(NODES)), minors=st.frozensets(st.integers(0, 1)))
    def an_operator_reports_gpus(self, name: str, minors: frozenset[int]) -> None:
        self.engine.step(GpusUnhealthy(name, minors), self.now)

    @rule(name=st.sampled_from(sorted(NODES)), sick=st.frozensets(st.integers(0, 1)))
    def gpus_fall_ill_or_recover(self, name: str, sick: frozenset[int]) -> None:
        self.sick[name] = sick
        if name not in self.away:
            self.engine.step(NodeSeen(self.node(name)), self.now)

    @rule(name=st.sampled_from(sorted(NODES)))
    def a_node_goes_or_comes(self, name: str) -> None:
        self.away ^= {name}
        self.engine.step(NodeGone(name) if name in self.away else NodeSeen(self.node(name)), self.now)

    @rule(name=st.sampled_from(sorted(NODES)))
    def a_node_is_marked_to_go_or_stays(self, name: str) -> None:
        self.leaving ^= {name}
        if name not in self.away:
            self.engine.step(NodeSeen(self.node(name)), self.now)

    @rule(name=st.sampled_from(sorted(NODES)), text=st.sampled_from(["{", None]))
    def an_inventory_is_broken_and_mended(self, name: str, text: str | None) -> None:
        if name not in self.away:
            broken = a_node(name, annotations={names.GPUS: text} if text else {})
            self.engine.step(NodeSeen(broken), self.now)
            assert name not in self.engine.filter(a_pod("probe", mem=1), [name], self.now).nodes
            self.engine.step(PodGone("uid-probe"), self.now)
            self.engine.step(NodeSeen(self.node(name)), self.now)

    # -- time

    @rule(seconds=st.sampled_from([0.01, 0.3, 1.5, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        for effect in self.engine.step(Tick(), self.now):
            if isinstance(effect, Requeue):
                assert self.engine.pods[effect.pod.uid].state == "held"
                self.woken.add(effect.pod.uid)

    @rule()
    def nobody_who_fits_is_left_asleep(self) -> None:
        """Once all soft charges are over, a refused pod that now fits is woken, in turn."""
        self.now += 400.0
        for _ in range(3 + 2 * len(self.refused)):
            self.now += 0.2
            for effect in self.engine.step(Tick(), self.now):
                if isinstance(effect, Requeue):
                    self.woken.add(effect.pod.uid)
        known = [uid for uid in self.refused if uid in self.engine.pods and uid not in self.woken]
        for uid in known:
            nodes = self.refused[uid]
            pod = self.engine.pods[uid]
            indexes = self.engine._components.indexes
            fitting = list(indexes.among(pod.shape, [n for n in nodes if n in self.engine.nodes]))
            assert not fitting, f"{uid} sleeps although it fits on {fitting}"

    @rule(while_binding=st.booleans())
    def the_extender_restarts(self, while_binding: bool) -> None:
        """In doubt the API server carries the Binding out: the new process sees a bound pod."""
        for uid, place in list(self.flying.items()):
            if while_binding:
                self.bound[uid], self.places[uid] = self.with_allocation(self.pending.pop(uid), place), place
        self.flying = {}
        self.start()

    # -- what must hold

    @invariant()
    def the_books_are_sound(self) -> None:
        assert self.engine.check() == []

    @invariant()
    def what_is_shown_of_nodes_changes_with_their_stamps(self) -> None:
        self.shown.look(self.engine)

    def taken(self) -> dict[str, list[Share]]:
        """What is really taken of each GPU."""
        taken: dict[str, list[Share]] = {}
        for uid in [*self.bound, *self.flying]:
            place = self.flying.get(uid) or self.places[uid]
            assert place.allocation is not None
            for given in place.allocation.containers.values():
                for share in given:
                    taken.setdefault(share.uuid, []).append(share)
        for stranger in self.strangers.values():
            taken.setdefault(stranger.uuid, []).append(stranger.share)
        return taken

    @invariant()
    def nothing_is_given_twice(self) -> None:
        for uuid, shares in self.taken().items():
            assert fits(uuid, shares)

    @invariant()
    def every_booking_is_of_a_live_pod_and_every_live_pod_is_booked(self) -> None:
        live = set(self.pending) | set(self.bound) | set(self.strangers)
        for name, node in self.engine.nodes.items():
            if node.books is not None:
                assert set(node.books.entries) <= live
                assert self.strangers or not node.books.overused()  # one may be where room is softly kept
                here = {uid for uid in self.bound if self.places[uid].node == name}
                here |= {uid for uid, stranger in self.strangers.items() if stranger.node == name}
                assert here <= set(node.books.entries)

    @invariant()
    def the_books_are_what_counting_anew_gives(self) -> None:
        for node in self.engine.nodes.values():
            if node.books is None:
                continue
            sure, soft, unknown = [], [], []
            for uid, entry in node.books.entries.items():
                if not entry.placed:
                    assert uid in self.strangers
                    unknown.append(entry.ask)
                elif self.engine.pods[uid].state == "held":
                    soft.append(entry.charges)
                else:
                    assert entry.charges == self.given(uid)
                    sure.append(entry.charges)
            gpus = node.books.inventory.gpus
            assert found(node.books) == {gpu.uuid: counted(gpu, sure, soft, unknown) for gpu in gpus}

    def given(self, uid: str) -> dict[str, Demand]:
        """What a pod was given; each has one container."""
        if uid in self.strangers:
            shares = [self.strangers[uid].share]
        else:
            place = self.flying.get(uid) or self.places[uid]
            assert place.allocation is not None
            shares = list(place.allocation.containers["main"])
        return {share.uuid: Demand(share.mem, share.slices, share.whole) for share in shares}

    @invariant()
    def what_pods_take_in_tree_is_what_they_say(self) -> None:
        for uid in set(self.bound) - set(self.untold):
            assert self.engine.pods[uid].requests == tuple(requests(self.bound[uid]))

    @invariant()
    def nothing_is_remembered_of_nodes_that_left_without_pods(self) -> None:
        held = {pod.node for pod in self.engine.pods.values() if pod.node}
        assert set(self.engine.nodes) <= set(self.there()) | held


def fits(uuid: str, shares: Sequence[Share]) -> bool:
    """Whether a GPU has as much as these take of it."""
    mem, slices = sum(share.mem for share in shares), sum(share.slices for share in shares)
    alone = len(shares) == 1 or not any(share.whole for share in shares)
    return alone and mem <= ROOM[uuid][0] and slices <= ROOM[uuid][1]


TestEngineAndTwin = EngineAndTwin.TestCase
TestEngineAndTwin.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("seed", range(40))
def test_a_busy_cluster(seed: int) -> None:
    """The same rules, drawn so that the cluster is mostly full: there pods wait, and room comes and goes."""
    draw, world = random.Random(seed), EngineAndTwin()

    def a_pod_ends() -> None:
        if world.bound:
            world.end(draw.choice(sorted(world.bound)), finished=draw.random() < 0.5)

    def the_plugin_tells_of_one() -> None:
        if world.strangers:
            world.told_where(draw.choice(sorted(world.strangers)))

    steps: dict[Callable[[], None], int] = {
        lambda: world.a_burst_is_scheduled(draw.choices(ASKS, k=4)): 6,
        a_pod_ends: 5,
        lambda: world.gpus_fall_ill_or_recover(draw.choice("abcd"), frozenset({draw.choice([0, 1, 9])})): 2,
        lambda: world.a_node_goes_or_comes(draw.choice("abcd")): 1,
        lambda: world.a_node_is_marked_to_go_or_stays(draw.choice("abcd")): 1,
        lambda: world.an_inventory_is_broken_and_mended(draw.choice("abcd"), draw.choice(["{", None])): 1,
        lambda: world.a_stranger_comes(
            draw.choice("abcd"), draw.choice([0, 1]), draw.choice(sorted(TOLD)), draw.choice(STRANGE)
        ): 3,
        the_plugin_tells_of_one: 2,
        lambda: world.a_node_changes(
            draw.choice("abcd"), draw.random() < 0.5, "", draw.random() < 0.5, draw.choice(["", "0"])
        ): 2,
        lambda: world.an_operator_reports_gpus(draw.choice("abcd"), frozenset({draw.choice([0, 9])})): 1,
        lambda: world.time_passes(draw.choice([0.01, 0.3, 1.5, 20.0])): 3,
        world.nobody_who_fits_is_left_asleep: 1,
        lambda: world.the_extender_restarts(while_binding=True): 1,
    }  # fmt: skip
    for step in draw.choices(list(steps), list(steps.values()), k=50):
        step()
        world.the_books_are_sound()
        world.nothing_is_given_twice()
        world.every_booking_is_of_a_live_pod_and_every_live_pod_is_booked()
        world.nothing_is_remembered_of_nodes_that_left_without_pods()
