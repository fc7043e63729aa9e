"""The naive world for gangs, where many pods are born behind our scheduling gate and removals of it get lost."""

from __future__ import annotations

import random

import msgspec

from extender.engine.types.effects import Effect, Requeue
from protos.contract import names
from protos.contract.objects import Pod, SchedulingGate
from tests.property.gang_world import GangWorld

GATE = SchedulingGate(names.PLAN_GATE)
GATED, LOST = 0.7, 0.2
"""Shares of pods of gangs that are gated, and of removals that come to nothing."""


class GatedWorld(GangWorld):
    """kube-scheduler knows no gated pod; gates are removed only where they should be."""

    def __init__(self, draw: random.Random) -> None:
        self.let_through: set[str] = set()
        """UIDs of pods whose gate is being removed."""
        self.calm = False
        """No removal gets lost any more."""
        super().__init__(draw)

    def gated(self) -> set[str]:
        return {name for name, pod in self.pods.items() if GATE in pod.spec.scheduling_gates}

    def appear(self, pod: Pod) -> None:
        grouped = names.GROUP in pod.metadata.annotations
        gates = (GATE,) if self.draw.random() < (GATED if grouped else 0.1) else ()
        super().appear(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, scheduling_gates=gates)))
        self.coming -= self.gated()

    def carry(self, effects: list[Effect]) -> list[Effect]:
        found = super().carry(effects)
        gated = self.gated()
        self.coming -= gated
        for effect in effects:
            if isinstance(effect, Requeue) and effect.pod.name in gated:
                assert effect.gated, f"{effect.pod} is woken, of which kube-scheduler does not know"
                if self.leads and (self.calm or self.draw.random() > LOST):
                    self.let_through.add(effect.pod.uid)
        return found

    def gates_go(self) -> None:
        """What was to be removed is; kube-scheduler takes those pods then."""
        for name in sorted(self.gated()):
            pod = self.pods[name]
            if pod.metadata.uid in self.let_through:
                spec = msgspec.structs.replace(pod.spec, scheduling_gates=())
                self.pods[name] = msgspec.structs.replace(pod, spec=spec)
                self.coming.add(name)
                self.show(name)
        self.let_through.clear()
        self.run_slice()

    def take(self, name: str, *, bind: bool = True) -> None:
        assert name not in self.gated()
        super().take(name, bind=bind)

    def everybody_is_asked_again(self) -> None:
        super().everybody_is_asked_again()
        self.coming -= self.gated()

    def mark(self) -> None:
        super().mark()
        self.coming -= self.gated()

    def passes_time(self, seconds: float) -> None:
        self.gates_go()
        super().passes_time(seconds)

    def stands_still(self) -> None:
        self.calm = True
        super().stands_still()

    def is_at_rest(self) -> bool:
        return super().is_at_rest() and not self.let_through and not self.engine._components.gates._openings
