"""Who hears of what the world tells: one table, from the type of an event to all that listen to it, in this order.

One listener that fails keeps no other from hearing; what the event is about is set aside (`quarantine`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from extender.engine.effects import (
    BindDone,
    BindLeft,
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
    PodsListed,
    PriorityGone,
    PrioritySeen,
    QueueGone,
    QueueSeen,
    ScalerGone,
    ScalerSeen,
    ScalersServed,
    Tick,
    WallMoved,
)
from extender.engine.lifecycle import Lifecycle
from extender.engine.parts import Parts
from extender.engine.quarantine import Quarantine, about, of_node
from extender.engine.upkeep import Upkeep

E = TypeVar("E", bound=Event)


class Listeners:
    """The table. Each listener is given the event and now."""

    def __init__(self, quarantine: Quarantine) -> None:
        self._quarantine = quarantine
        self.of: dict[type[Any], tuple[Callable[[Any, float], object], ...]] = {}
        """By type of event."""

    def on(self, kind: type[E], *listeners: Callable[[E, float], object]) -> None:
        """These hear of this kind of event."""
        self.of[kind] = listeners

    def tell(self, event: Event, now: float) -> None:
        """Tell all that listen to it."""
        kind = type(event)

        def hear(listener: Callable[[Any, float], object]) -> None:
            listener(event, now)

        self._quarantine.each(self.of[kind], lambda _: about(event), kind.__name__, hear)


def listeners(parts: Parts, pods: Lifecycle, upkeep: Upkeep) -> Listeners:
    """The engine's parts and what each of them hears."""
    table = Listeners(parts.quarantine)
    _of_pods(table, parts, pods)
    _of_nodes(table, parts)
    _of_definitions(table, parts, pods)
    _of_jobs(table, parts)
    _of_time(table, parts, upkeep)
    return table


def _of_pods(table: Listeners, parts: Parts, pods: Lifecycle) -> None:
    table.on(PodSeen, lambda it, now: pods.see(it.pod, now))
    table.on(PodGone, lambda it, now: pods.forget(it.uid, now))
    table.on(BindDone, lambda it, now: pods.bind_done(it.uid, now, bound=it.outcome == "bound"))
    table.on(BindLeft, lambda it, _: parts.gangs.left(it.uid))
    table.on(
        EvictionRefused,
        lambda it, now: parts.effects.extend(parts.preemption.refused(it.uid, it.why, now)),
        lambda it, now: parts.elastic.refused(it.uid, now),
    )
    table.on(
        PodsListed,
        lambda _, now: parts.presence.listed(now),
        lambda _, __: parts.indexes.scorer.look(),
        lambda _, now: parts.gangs.replayed(now),
    )


def _of_nodes(table: Listeners, parts: Parts) -> None:
    def seen(it: NodeSeen, now: float) -> None:
        name = it.node.metadata.name
        if parts.observer.node(it.node):
            with parts.quarantine.over(of_node(name), "NodeSeen"):
                parts.tenancy.node(name)
            parts.gangs.look_at(name, now)

    table.on(NodeSeen, seen)
    table.on(
        NodeGone,
        lambda it, _: parts.ledger.drop_node(it.name),
        lambda it, _: parts.tenancy.node(it.name),
        lambda it, now: parts.gangs.look_at(it.name, now),
    )
    table.on(
        GpusUnhealthy,
        lambda it, _: parts.ledger.set_unhealthy(it.node, it.minors),
        lambda it, _: parts.tenancy.node(it.node),
        lambda it, now: parts.gangs.look_at(it.node, now),
    )


def _of_definitions(table: Listeners, parts: Parts, pods: Lifecycle) -> None:
    classes, queues, budgets = parts.classes, parts.tenancy.queues, parts.preemption.budgets
    table.on(ClassSeen, lambda it, now: pods.see_anew(classes.put(it.gpu_class), now))
    table.on(ClassGone, lambda it, now: pods.see_anew(classes.drop(it.name), now))
    table.on(QueueSeen, lambda it, _: parts.tenancy.put(it.queue))
    table.on(QueueGone, lambda it, _: parts.tenancy.drop(it.source, it.name))
    table.on(NamespaceSeen, lambda it, _: queues.namespace(it.namespace.name, it.namespace.labels))
    table.on(NamespaceGone, lambda it, _: queues.namespace(it.name, None))
    table.on(BudgetSeen, lambda it, _: budgets.put(it.budget))
    table.on(BudgetGone, lambda it, _: budgets.drop(it.namespace, it.name))
    priorities, turns = parts.priorities, parts.gangs.starts.turns
    table.on(PrioritySeen, lambda it, _: turns.revalued(priorities.put(it.priority_class)))
    table.on(PriorityGone, lambda it, _: turns.revalued(priorities.drop(it.name)))


def _of_jobs(table: Listeners, parts: Parts) -> None:
    gangs, elastic, scalers = parts.gangs, parts.elastic, parts.elastic.scalers
    table.on(
        GroupSeen,
        lambda it, _: elastic.job(it.kind, it.key, it.job),
        lambda it, now: gangs.declare(it.kind, it.key, it.declaration, now),
        lambda it, _: parts.tenancy.renamed(gangs.known.get(it.key)),
    )
    table.on(
        GroupGone,
        lambda it, _: elastic.job(it.kind, it.key, None),
        lambda it, now: gangs.declare(it.kind, it.key, None, now),
        lambda it, _: parts.tenancy.renamed(gangs.known.get(it.key)),
    )
    table.on(ScalerSeen, lambda it, now: scalers.see(it.scaler, now))
    table.on(ScalerGone, lambda it, now: scalers.gone(it.kind, it.namespace, it.name, now))
    table.on(ScalersServed, lambda it, _: scalers.serve(it.kind, it.yes))


def _of_time(table: Listeners, parts: Parts, upkeep: Upkeep) -> None:
    table.on(
        Leading,
        lambda it, _: parts.elastic.lead(it.yes),
        lambda it, _: parts.preemption.lead(it.yes),
        lambda it, _: parts.classes.lead(it.yes),
        lambda it, _: parts.tenancy.lead(it.yes),
        lambda it, _: parts.gates.lead(it.yes),
        lambda it, now: parts.gangs.lead(it.yes, now),
    )
    table.on(
        WallMoved,
        lambda it, _: parts.wall.move(it.by),
        lambda it, now: parts.occupants.shift(it.by, now),
        lambda it, _: parts.gangs.shift(it.by),
        lambda _, now: parts.reservations.read_anew(now),
    )
    table.on(Tick, lambda it, now: upkeep.tick(it.part, now))
