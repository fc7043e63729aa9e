"""A naive world for gangs: what is bound where, a kube-scheduler that comes only when it would, controllers, kubelets.

Nothing in here knows how the engine decides. It keeps the truth, carries out what the engine wants done, and says when
something that was promised of gangs is broken.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from extender.engine.effects import (
    BindDone,
    BindLeft,
    Deny,
    Effect,
    Event,
    Evict,
    Leading,
    NodeGone,
    NodeSeen,
    Open,
    Place,
    PodsListed,
    Wake,
)
from extender.engine.engine import Engine
from extender.engine.planning.plan import Placement, Plan
from gangfilter.gang import BEFORE, STARTED, Patience
from gangfilter.group import GroupKey
from gangfilter.members import Stage
from gangfilter.table import Phase
from protos.contract import allocation, choose, names
from protos.contract.objects import ContainerStatus, Pod, epoch_seconds
from tests.builders import a_node, a_pod
from tests.property.lost_rooms import LostRooms
from tests.unit.engine.gang_story import WALL, GangStory, a_member, bound_pod

NODES = {"a": (16, 16), "b": (16,), "c": (16, 24)}
CPUS = 4
"""Of each node; every pod takes one."""
BACKOFF_S = 10.0
"""After a bind that failed kube-scheduler comes again within this time."""
ASKS: tuple[dict[str, Any], ...] = ({"mem": 8}, {"mem": 16}, {"mem": 5, "slices": 50}, {"whole": 1}, {"whole": 2}, {})
SLOT_S = 40.0
"""For which a lost member's room is kept."""
SLACK_S = 8.0
"""For ticks, and an eviction said once more."""


class Sort(msgspec.Struct):
    """What the world knows of one gang."""

    least: int
    owner: str
    lost: str
    ends: str
    launcher: bool
    passed: bool = False
    """It went through the barrier, and somebody is left of that start."""
    pending: bool = False
    """It is to be finished or undone."""
    half_since: float | None = None
    """Since when it is half meanwhile."""
    released_at: float = 0.0
    gone: int = 0
    """Pods of the present life that have succeeded and were deleted since: what they have done stays done."""


class GangWorld(GangStory):
    """The truth, and what the engine makes of it."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.made = 0
        self.sorts: dict[str, Sort] = {}
        self.closed: set[str] = set()
        """Nodes that kube-scheduler refuses for reasons of its own."""
        self.coming: set[str] = set()
        """Pods that kube-scheduler will take by itself: new, woken, or in its backoff."""
        self.kept_off: dict[str, set[str]] = {}
        """Nodes that kube-scheduler itself kept a pod off: when one of them has room, it tries the pod again."""
        self.landed_at: dict[str, float] = {}
        """By UID."""
        self.offers: dict[str, str] = {}
        """Pods between filter and bind, with their node."""
        self.to_go: dict[str, bool] = {}
        """Evictions not carried out yet; whether the pod is made anew then."""
        self.asked_to_go: set[str] = set()
        """UIDs."""
        self.missing: list[Pod] = []
        """Pods that their controller will make anew."""
        self.rooms = LostRooms(SLOT_S)
        self.leads = True
        self.standby: Engine | None = None
        """Another process, which reads everything and does nothing."""
        super().__init__(*(self.a_node(name) for name in NODES), patience=Patience(slot_s=SLOT_S))
        self.standby = self.another_process()

    def a_node(self, name: str) -> Any:
        return a_node(name, *NODES[name], allocatable={"cpu": str(CPUS), "memory": "64Gi", "pods": "20"})

    # -- the extender, twice

    def another_process(self) -> Engine:
        engine = Engine(self.settings, started=self.now, wall=WALL)
        for event in (Leading(False), *self.listed(), PodsListed()):
            engine.step(event, self.now)
        return engine

    def tell(self, *events: Event) -> list[Effect]:
        for event in events if self.standby is not None else ():
            if not isinstance(event, BindDone | BindLeft | Leading):
                self.hear(event)
        return super().tell(*events)

    def hear(self, event: Event) -> None:
        """The process that does not lead is told what everybody sees."""
        assert self.standby is not None
        for effect in self.standby.step(event, self.now):
            assert not isinstance(effect, Open | Deny | Evict), f"{effect} by a process that does not lead"
        self.standby.think(self.now)
        assert self.standby.gangs.starts.idle, "a plan by a process that does not lead"
        assert self.standby.check() == []
        held = [pod for pod in self.standby.pods.values() if pod.state == "held"]
        assert not [pod for pod in held if pod.ref.uid in self.standby.gangs.starts.spots]

    def the_other_takes_over(self, *, landed: bool) -> None:
        """What was being written happened or not before the other one reads everything once more and begins."""
        assert self.standby is not None
        before, led = self.engine, self.leads
        self.tell(Leading(False))
        for name in sorted(self.flying):
            self.binding_ends(name, happened=landed)
        self.engine, self.standby = self.standby, before
        self.leads = True
        self.rooms.remembered_by(self.engine)
        super().tell(*self.listed(), PodsListed(), Leading(True))
        if not led:
            self.forgive()
        self.coming |= set(self.offers)
        self.offers.clear()
        self.think()

    # -- what the engine wants

    def think(self) -> None:
        """Planning is often only begun when the next thing happens."""
        if self.draw.random() < 0.7:
            super().think()
        else:
            self.engine.think(self.now)
            self.carry(self.engine.effects())

    def carry(self, effects: list[Effect]) -> list[Effect]:
        opened: Counter[str] = Counter()
        for effect in effects:
            match effect:
                case Wake(pod) if pod.name in self.pods and pod.uid == self.pods[pod.name].metadata.uid:
                    self.coming.add(pod.name)
                case Deny(pod):
                    self.coming.add(pod.name)
                case Open(place):
                    opened[self.gang_of(place.pod.name)] += 1
                case Evict(pod, reason):
                    assert self.leads, f"{pod} is evicted by a process that does not lead"
                    self.evict(pod.name, pod.uid, reason.code)
        for gang, count in opened.items():
            self.passes(gang, count, [e.pod.name for e in effects if isinstance(e, Open)])
        return super().carry(effects)

    def evict(self, name: str, uid: str, code: str) -> None:
        pod = self.pods.get(name)
        assert pod is not None, f"{name} is evicted, which is no pod"
        if pod.metadata.uid == uid:
            assert pod.spec.node_name, f"{name} is evicted, which is not bound"
            assert self.owner(pod) or code == "GangCompleted", f"{name} is evicted, which nobody would make anew"
            self.to_go[name] = code != "GangCompleted"
            self.asked_to_go.add(uid)

    def passes(self, gang: str, opened: int, who: list[str]) -> None:
        """Binds that were held are opened: all of the minimum at once, unless the gang has started before."""
        sort = self.sorts[gang]
        if not (sort.passed and self.bound_in(gang)):
            there = opened + self.done_in(gang)
            assert there >= sort.least, f"{gang}: {opened} binds were opened, {sort.least} are the minimum"
            waiting = [n for n in self.of_gang(gang) if n.startswith("launcher") and not self.pods[n].spec.node_name]
            assert set(waiting) <= set(who) or any(self.alive_at_node(n) for n in self.of_gang(gang))
            sort.passed, sort.pending, sort.half_since, sort.released_at = True, True, None, self.now

    def bind(self, name: str, node: str) -> str:
        found = super().bind(name, node)
        gang = self.gang_of(name)
        if found == "flying" and gang and name not in self.opened_now:
            assert self.sorts[gang].passed, f"{name} is bound before its gang"
        return found

    @property
    def opened_now(self) -> set[str]:
        return {e.pod.name for e in self.done[-50:] if isinstance(e, Open)}

    # -- the truth

    def gang_of(self, name: str) -> str:
        return self.pods[name].metadata.annotations.get(names.GROUP, "") if name in self.pods else ""

    def of_gang(self, gang: str) -> list[str]:
        return sorted(name for name in self.pods if self.gang_of(name) == gang)

    def owner(self, pod: Pod) -> str:
        return pod.metadata.owner_references[0].uid if pod.metadata.owner_references else ""

    def alive_at_node(self, name: str) -> bool:
        pod = self.pods[name]
        return bool(pod.spec.node_name) and pod.status.phase == "Pending" and not pod.metadata.deletion_timestamp

    def bound_in(self, gang: str) -> list[str]:
        return [name for name in self.of_gang(gang) if self.alive_at_node(name)]

    def done_in(self, gang: str) -> int:
        there = sum(self.pods[name].status.phase == "Succeeded" for name in self.of_gang(gang))
        return there + self.sorts[gang].gone

    def waiting(self) -> list[str]:
        """Pods that have no node, and no Binding under way."""
        return sorted(n for n, pod in self.pods.items() if not pod.spec.node_name and n not in self.flying)

    def free_cpus(self, node: str) -> int:
        """As kube-scheduler counts: with the pods that are in bind."""
        here = [n for n, pod in self.pods.items() if pod.spec.node_name == node and pod.status.phase == "Pending"]
        assumed = {n for n in {*self.held, *self.flying, *self.offers} if self.assumed_node(n) == node}
        return CPUS - len(here) - len(assumed)

    def assumed_node(self, name: str) -> str:
        if name in self.offers:
            return self.offers[name]
        if name in self.flying:
            return self.flying[name].node
        state = self.engine.pods.get(self.pods[name].metadata.uid) if name in self.pods else None
        return state.node if state else ""

    # -- what happens

    def make_gang(self, size: int, least: int, *, owned: bool, lost: str, ends: bool, launcher: bool, now: int) -> None:
        """A gang of this size, of which `now` members exist and the others will."""
        self.made += 1
        gang = f"g{self.made}"
        sort = self.sorts[gang] = Sort(least, gang if owned else "", lost, "launcher" if ends else "", launcher)
        new: list[Pod] = []
        for i in range(size):
            role = "launcher" if launcher and not i else "worker"
            ask = {} if role == "launcher" else self.draw.choice(ASKS)
            new.append(self.a_pod_of(sort, gang, f"{role}-{gang}-{i}", role, ask))
        for pod in new[:now]:
            self.appear(pod)
        self.missing += new[now:]

    def a_pod_of(self, sort: Sort, gang: str, name: str, role: str, ask: dict[str, Any]) -> Pod:
        said = {"lost": sort.lost, "role": role} | ({"ends": sort.ends} if sort.ends else {})
        main = self.box(ask)
        return a_member(name, gang=gang, least=sort.least, owner=sort.owner, containers=[main], **said)

    def box(self, ask: dict[str, Any]) -> dict[str, Any]:
        keys = {"mem": names.GPU_MEM, "slices": names.GPU_SLICE, "whole": names.WHOLE_GPU}
        limits = {"cpu": "1"} | {keys[key]: str(amount) for key, amount in ask.items()}
        return {"name": "main", "resources": {"limits": limits, "requests": limits}}

    def make_single(self) -> None:
        self.made += 1
        self.appear(a_pod(f"s{self.made}", containers=[self.box(self.draw.choice(ASKS[:-1]))]))

    def appear(self, pod: Pod) -> None:
        self.made += 1
        pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=f"u{self.made}"))
        self.coming.add(pod.metadata.name)
        self.create(pod)

    def controller_acts(self) -> None:
        """A pod that is missing is made."""
        if self.missing:
            pod = self.missing.pop(0)
            if pod.metadata.name not in self.pods:
                self.appear(pod)
            else:
                self.missing.append(pod)

    def vanish(self, name: str, *, anew: bool = True) -> None:
        """The pod is gone, and made anew if it has a controller."""
        pod, sort = self.pods[name], self.sorts.get(self.gang_of(name))
        if sort is not None:
            sort.gone += pod.status.phase == "Succeeded"
        self.offers.pop(name, None)
        self.coming.discard(name)
        self.to_go.pop(name, None)
        place = self.flying.pop(name, None)
        with self.losing(name):
            self.delete(name)
        if place is not None:
            self.tell_lost(place)
        self.held.discard(name)
        if anew and self.owner(pod):
            kept = {k: v for k, v in pod.metadata.annotations.items() if k != names.ALLOCATION}
            metadata = msgspec.structs.replace(pod.metadata, annotations=kept, deletion_timestamp=None)
            self.missing.append(Pod(metadata, msgspec.structs.replace(pod.spec, node_name=None)))
        self.mark()

    @contextmanager
    def losing(self, name: str) -> Iterator[None]:
        """The pod ends in this; where it ran, it leaves its room."""
        pod, gang = self.pods[name], self.gang_of(name)
        ran = pod.spec.node_name in self.nodes and pod.status.phase == "Pending" and gang
        if ran:
            self.rooms.leave(pod, gang, self.now)
        yield
        if ran:
            self.rooms.must_keep(pod.metadata.uid, self.engine, self.sorts[gang].least)

    def tell_lost(self, place: Place) -> None:
        self.tell(BindDone(place.pod.uid, "lost"))

    def take(self, name: str, *, bind: bool = True) -> None:
        """kube-scheduler takes the pod: in-tree filters, ours, and bind."""
        if name not in self.pods or self.pods[name].spec.node_name or name in self.flying or name in self.held:
            self.coming.discard(name)
            return
        self.coming.discard(name)
        self.offers.pop(name, None)
        nodes = [node for node in sorted(self.nodes) if node not in self.closed and self.free_cpus(node) > 0]
        self.kept_off[name] = set(NODES) - set(nodes)
        if not nodes:
            return
        rooms = self.rooms_for(name, nodes)
        verdict = self.ask(name, nodes)
        assert set(verdict.nodes) <= set(nodes)
        assert not rooms or set(verdict.nodes) <= rooms, f"{name} is sent past the rooms kept for it on {rooms}"
        if verdict.nodes:
            self.offers[name] = self.draw.choice(verdict.nodes)
            if bind:
                self.goes_to_bind(name)
        self.mark()

    def rooms_for(self, name: str, nodes: list[str]) -> set[str]:
        """Where a member goes that comes for one that was lost, and asks as little."""
        gang, uid = self.gang_of(name), self.pods[name].metadata.uid
        known = self.engine.gangs.of(uid)
        if not self.leads or known is None or known.gang.members[uid].stage is not Stage.IDLE:
            return set()
        asks = self.engine.pods[uid].ask
        same = {slot.node for slot in self.engine.ledger.slots.values() if slot.ask == asks}
        return self.rooms.may_go_to(gang, name.split("-")[0]) & same & set(nodes)

    def goes_to_bind(self, name: str) -> None:
        node = self.offers.pop(name)
        if name in self.pods and not self.pods[name].spec.node_name and name not in self.held | set(self.flying):
            if self.bind(name, node) not in ("held", "flying", "bound"):
                self.coming.add(name)
            self.mark()

    def everybody_is_asked_again(self) -> None:
        """Some event of the cluster: kube-scheduler tries all refused pods once more."""
        self.coming |= set(self.waiting())

    def binding_ends(self, name: str, *, happened: bool, told: bool = True) -> None:
        if happened and self.flying[name].node in self.nodes:
            self.land(name, told=told)
        else:
            self.fail(name)
            self.coming.add(name)
        self.mark()

    def kubelet_refuses(self, name: str) -> None:
        sort = self.sorts.get(self.gang_of(name))
        if sort is not None and self.now < sort.released_at + 29:
            gang = self.gang_of(name)
            sort.pending = sort.pending or len(self.bound_in(gang)) + self.done_in(gang) >= sort.least
        self.refuse(name)
        self.vanish(name)

    def ends(self, name: str, *, well: bool) -> None:
        if well:
            self.change(name, phase="Succeeded")
            self.to_go.pop(name, None)
            self.mark()
        else:
            with self.losing(name):
                self.change(name, phase="Failed", container_statuses=(ContainerStatus("main"),))
            self.vanish(name)

    def eviction_happens(self, name: str) -> None:
        anew = self.to_go.pop(name)
        if name in self.pods:
            self.terminate(name)
            self.mark()
            self.vanish(name, anew=anew)

    def node_goes(self, name: str) -> None:
        del self.nodes[name]
        self.rooms.node_went(name)
        self.tell(NodeGone(name))
        for pod in [n for n, p in self.pods.items() if p.spec.node_name == name]:
            self.vanish(pod, anew=self.pods[pod].status.phase == "Pending")
        self.think()

    def node_comes(self, name: str) -> None:
        self.nodes[name] = self.a_node(name)
        self.tell(NodeSeen(self.nodes[name]))
        self.everybody_is_asked_again()
        self.think()

    def lead(self, yes: bool) -> None:
        self.leads = yes
        self.tell(Leading(yes))
        self.forgive()

    def extender_restarts(self, *, landed: bool) -> None:
        """What was being written happened or not; held binds fail."""
        for name, place in list(self.flying.items()):
            if landed and place.node in self.nodes:
                self.pods[name] = bound_pod(self.pods[name], place, self.now)
            self.coming.add(name)
        self.coming |= self.held
        self.leads = True
        self.flying, self.held = {}, set()
        self.mark()
        self.restart()
        self.rooms.remembered_by(self.engine)
        self.forgive()

    def forgive(self) -> None:
        """A process that comes new, or that was not allowed to write, has the time once more."""
        for gang, sort in self.sorts.items():
            if sort.half_since is not None:
                young = any(
                    not self.pods[n].spec.node_name and self.born(n) <= sort.released_at for n in self.of_gang(gang)
                )
                sort.half_since, sort.pending = (self.now if young else None), young

    def born(self, name: str) -> float:
        return epoch_seconds(self.pods[name].metadata.creation_timestamp or "") - WALL

    def mark(self) -> None:
        """Note which gangs are whole, and which are over."""
        roomy = {node for node in self.nodes if node not in self.closed and self.free_cpus(node) > 0}
        for name in [name for name, nodes in self.kept_off.items() if nodes & roomy]:
            del self.kept_off[name]
            self.coming |= {name} & set(self.pods)
        for gang, sort in self.sorts.items():
            known = self.engine.gangs.known.get(GroupKey("default", gang))
            if known is None or known.gang.phase in BEFORE:
                sort.gone = 0
            for name in self.bound_in(gang):
                self.landed_at.setdefault(self.pods[name].metadata.uid, self.now)
            alive = len(self.bound_in(gang))
            total = alive + self.done_in(gang)
            flying = any(self.gang_of(name) == gang for name in self.flying)
            if sort.passed and total >= sort.least:
                sort.pending, sort.half_since = False, None
            elif sort.pending and alive and sort.half_since is None:
                sort.half_since = self.now
            sort.half_since = sort.half_since if alive else None
            if not alive and not flying:
                young = self.now <= sort.released_at + self.settings.patience.whole_s
                sort.pending = sort.pending and young
                sort.passed = sort.passed and (young or total >= sort.least)

    def passes_time(self, seconds: float) -> None:
        self.later(seconds)
        self.mark()

    # -- what must hold

    def check(self) -> None:
        for engine in (self.standby, self.engine):
            self.rooms_are_right(engine)
        self.nothing_is_given_twice()
        self.only_the_living_hold_anything()
        self.nobody_holds_while_waiting()
        self.no_half_gang_is_old()
        for engine in (self.engine, self.standby):
            self.tallies_are_right(engine)
            self.totals_are_right(engine)
        waiting = {m.name for k in self.engine.gangs.known.values() for m in k.gang.at(Stage.IN_BIND)}
        assert self.held == waiting, "a held bind was forgotten"

    def nothing_is_given_twice(self) -> None:
        taken: dict[str, list[allocation.Share]] = {}
        for given in self.given():
            for parts in given.containers.values():
                for share in parts:
                    taken.setdefault(share.uuid, []).append(share)
        for share in self.rooms.shares():
            taken.setdefault(share.uuid, []).append(share)
        for uuid, shares in taken.items():
            node, index = uuid.split("-")[1:]
            assert sum(s.mem for s in shares) <= NODES[node][int(index)], f"{uuid} holds {shares}"
            assert sum(s.slices for s in shares) <= 100
            assert len(shares) == 1 or not any(s.whole for s in shares)

    def given(self) -> Iterable[allocation.Allocation]:
        for name, pod in self.pods.items():
            text = pod.metadata.annotations.get(names.ALLOCATION)
            if pod.spec.node_name and pod.status.phase == "Pending":
                found = allocation.decode(text)
                if found is not None:
                    yield found
            elif name in self.flying and (placed := self.flying[name].allocation) is not None:
                yield placed

    def totals_are_right(self, engine: Engine | None) -> None:
        assert engine is not None
        for node in engine.nodes.values():
            here = [pod for pod in (*engine.pods.values(), *engine.ledger.slots.values()) if pod.node == node.name]
            counted: Counter[str] = Counter()
            for pod in here:
                counted.update(dict(pod.requests))
            assert {k: v for k, v in node.used.items() if v} == {k: v for k, v in counted.items() if v}
            placed = [p for p in self.pods.values() if p.spec.node_name == node.name and p.status.phase == "Pending"]
            assert len(placed) <= CPUS

    def rooms_are_right(self, engine: Engine | None) -> None:
        assert engine is not None
        leasts = {gang: sort.least for gang, sort in self.sorts.items()}
        self.rooms.check(engine, leasts, self.now)
        if engine is self.engine:
            self.rooms.check_kept(engine, leasts, self.now, leads=self.leads)

    def only_the_living_hold_anything(self) -> None:
        live = {pod.metadata.uid for pod in self.pods.values()}
        assert {uid for uid, pod in self.engine.pods.items() if pod.node} <= live
        assert set(self.engine.gangs.starts.spots) <= live
        for name in self.pods:
            if self.alive_at_node(name):
                assert self.engine.pods[self.pods[name].metadata.uid].state == "bound"

    def nobody_holds_while_waiting(self) -> None:
        patience = self.settings.patience
        for known in self.engine.gangs.known.values():
            gang = known.gang
            held = [m for m in gang.members.values() if self.is_held(m.uid)]
            if gang.phase in BEFORE or gang.phase in (Phase.UNDOING, Phase.COMPLETED):
                assert not held, f"{gang.key} is {gang.phase} and holds {held}"
            if gang.phase is Phase.STARTING:
                assert {m.uid for m in held} == {m.uid for m in gang.holding()}
                assert self.now <= gang.since + patience.stuck_s + patience.hold_s + 2
            if gang.phase is Phase.RUNNING:
                assert not [m for m in held if m.uid in self.engine.gangs.starts.spots]
            if gang.phase is Phase.DEGRADED:
                spots = [spot for m in held if (spot := self.engine.gangs.starts.spots.get(m.uid))]
                assert all(self.now - 1.5 <= spot.until <= self.now + SLOT_S for spot in spots)
            for member in gang.holding():
                spot = self.engine.gangs.starts.spots[member.uid]
                assert member in held
                assert (member.node, self.engine.pods[member.uid].node) == (spot.node, spot.node)
                assert spot.node in self.nodes, f"{member.name} has a place on {spot.node}, which is gone"
                books = self.engine.nodes[spot.node].books
                assert books is not None
                assert dict(books.entries[member.uid].charges if spot.charges else {}) == dict(spot.charges)
            if gang.phase is Phase.BINDING:
                assert self.now <= gang.since + patience.whole_s + 2
            if not self.leads:
                assert not [m for m in held if m.uid in self.engine.gangs.starts.spots]

    def is_held(self, uid: str) -> bool:
        pod = self.engine.pods.get(uid)
        return pod is not None and pod.state == "held"

    def no_half_gang_is_old(self) -> None:
        for gang, sort in self.sorts.items():
            if sort.half_since is None or not sort.owner or not self.leads:
                continue
            if self.now - sort.half_since > self.settings.patience.whole_s + SLACK_S:
                bound = {self.pods[n].metadata.uid for n in self.bound_in(gang)} - self.asked_to_go
                left = [uid for uid in bound if self.now - self.landed_at[uid] > SLACK_S]
                assert not left, f"{gang} is half since {self.now - sort.half_since} s and {left} were left alone"

    def tallies_are_right(self, engine: Engine | None) -> None:
        assert engine is not None
        for known in engine.gangs.known.values():
            gang = known.gang
            recount = Counter((m.stage, m.role, m.required) for m in gang.members.values())
            assert +gang._tally == recount

    def replay_says_the_same(self) -> None:
        """Of what is bound a new process has the same books."""
        if self.flying:
            return
        running, self.engine = self.engine, Engine(self.settings, started=self.now, wall=WALL)
        for event in self.listed():
            self.engine.step(event, self.now)
        fresh, self.engine = self.engine, running
        for name, pod in self.pods.items():
            if pod.spec.node_name and pod.status.phase == "Pending":
                assert _booking(fresh, pod) == _booking(running, pod), name

    # -- liveness

    def stands_still(self) -> None:
        """Nothing happens any more but what must: then whoever fits is placed."""
        self.closed.clear()
        for node in sorted(set(NODES) - set(self.nodes)):
            self.node_comes(node)
        if not self.leads:
            self.lead(True)
        self.everybody_is_asked_again()
        quiet = 0
        for _ in range(600):
            quiet = quiet + 1 if self.is_quiet() else 0
            for name in sorted(self.offers):
                self.goes_to_bind(name)
            for name in sorted(self.coming):
                self.take(name)
            for name in sorted(self.flying):
                self.binding_ends(name, happened=True)
            for name in sorted(self.to_go):
                self.eviction_happens(name)
            for _ in range(len(self.missing)):
                self.controller_acts()
            if quiet > 2:
                break
            self.passes_time(2.0)
            self.check()
        assert quiet, "there is always something going on"
        for name in self.waiting():
            assert not self.could_start(name), f"{name} waits although it could start"

    def is_quiet(self) -> bool:
        phases = {known.gang.phase for known in self.engine.gangs.known.values()}
        restless = phases & {Phase.STARTING, Phase.BINDING, Phase.UNDOING}
        again = any(
            known.gang.phase is Phase.WAITING and (known.reason is None or known.reason.code == "GangAgain")
            for known in self.engine.gangs.known.values()
        )
        soft = any(pod.state == "held" for pod in self.engine.pods.values())
        busy = self.coming or self.offers or self.flying or self.to_go or self.missing or self.held
        paused = any(
            not k.gang.may_plan(self.now) for k in self.engine.gangs.known.values() if k.gang.phase is Phase.WAITING
        )
        plans = not self.engine.gangs.starts.idle
        return not (self.engine.ledger.slots or restless or again or soft or busy or paused or plans)

    def could_start(self, name: str) -> bool:
        """Whether the pod could be placed: with the minimum of its gang, or alone where that has started."""
        gang = self.gang_of(name)
        if not gang:
            return self.fits(name)
        sort, found = self.sorts[gang], self.gang(gang)
        if found.phase in (Phase.COMPLETED, Phase.FAILED):
            return False
        if found.phase in STARTED:
            return self.fits(name)
        idle = [n for n in self.of_gang(gang) if not self.pods[n].spec.node_name]
        done = self.done_in(gang) if sort.owner else 0
        if done >= sort.least:
            return self.fits(name)
        return len(idle) + done >= sort.least and self.has_a_plan(gang)

    def fits(self, name: str) -> bool:
        ask = self.engine.pods[self.pods[name].metadata.uid].ask
        return any(
            self.free_cpus(node) > 0
            and (ask is None or ((books := self.engine.nodes[node].books) is not None and choose.choose(ask, books)))
            for node in self.nodes
        )

    def has_a_plan(self, gang: str) -> bool:
        """Whether the planner, asked anew and with every node open to everybody, places the gang."""
        starts = self.engine.gangs.starts
        left_out, starts.excluded = starts.excluded, {}
        plan = Plan(starts.fleet, *starts.asked(self.gang(gang)))
        while not plan.advance():
            pass
        starts.excluded = left_out
        return isinstance(plan.outcome, Placement)


def _booking(engine: Engine, pod: Pod) -> tuple[Any, ...]:
    state = engine.pods[pod.metadata.uid]
    books = engine.nodes[state.node].books
    entry = books.entries.get(pod.metadata.uid) if books is not None else None
    return state.state, state.node, dict(entry.charges) if entry else None
