"""The extender twice in a naive world for gangs: one leads and is obeyed, the other reads along and does nothing."""

from __future__ import annotations

import random
from collections import Counter

from extender.engine.cycle.engine import Engine
from extender.engine.types.effects import Deny, Effect, Evict, Open, Requeue
from extender.engine.types.events import BindAbandoned, BindDone, Event, Leading, PodsListed
from tests.property.gang_truth import GangTruth
from tests.unit.engine.gang_story import WALL


class GangExtenders(GangTruth):
    """Both processes, and what the world does of what the leading one wants."""

    def __init__(self, draw: random.Random) -> None:
        self.leads = True
        self.standby: Engine | None = None
        """Another process, which reads everything and does nothing."""
        super().__init__(draw)
        self.standby = self.another_process()

    @property
    def engines(self) -> list[Engine]:
        return [engine for engine in (self.standby, self.engine) if engine is not None]

    def another_process(self) -> Engine:
        engine = Engine(self.settings, started=self.now, wall=WALL)
        for event in (Leading(False), *self.listed(), PodsListed()):
            engine.step(event, self.now)
        return engine

    def tell(self, *events: Event) -> list[Effect]:
        for event in events if self.standby is not None else ():
            if not isinstance(event, BindDone | BindAbandoned | Leading):
                self.hear(event)
        return super().tell(*events)

    def hear(self, event: Event) -> None:
        """The process that does not lead gets the same watch events."""
        assert self.standby is not None
        for effect in self.standby.step(event, self.now):
            assert not isinstance(effect, Open | Deny | Evict), f"{effect} by a process that does not lead"
        self.standby.run_slice(self.now)
        assert not self.standby.gangs.planner.turns, "a plan by a process that does not lead"
        assert self.standby.check() == []
        held = [pod for pod in self.standby.pods.values() if pod.state == "held"]
        assert not [pod for pod in held if pod.ref.uid in self.standby.gangs.assignments.of_member]

    def lead(self, yes: bool) -> None:
        self.leads = yes
        self.tell(Leading(yes))
        self.forgive()

    # -- what the engine wants

    def run_slice(self) -> None:
        """Planning is often only begun when the next thing happens."""
        if self.draw.random() < 0.7:
            super().run_slice()
        else:
            self.engine.run_slice(self.now)
            self.carry(self.engine.effects())

    def carry(self, effects: list[Effect]) -> list[Effect]:
        opened: Counter[str] = Counter()
        for effect in effects:
            match effect:
                case Requeue(pod) if pod.name in self.pods and pod.uid == self.pods[pod.name].metadata.uid:
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
