"""Who hears of what the world tells: one table, from the type of an event to all that listen to it, in this order.

One listener that fails keeps no other from hearing; what the event is about is set aside (`quarantine`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from extender.engine.cycle.components import Components
from extender.engine.cycle.lifecycle import Lifecycle
from extender.engine.cycle.upkeep import Upkeep
from extender.engine.state.quarantine import Quarantine
from extender.engine.types.events import (
    BindAbandoned,
    BindDone,
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
from extender.engine.types.subject import of_node

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

        self._quarantine.each(self.of[kind], lambda _: event.about, kind.__name__, hear)


def listeners(components: Components, pods: Lifecycle, upkeep: Upkeep) -> Listeners:
    """The engine's parts and what each of them hears."""
    table = Listeners(components.quarantine)
    _of_pods(table, components, pods)
    _of_nodes(table, components)
    _of_definitions(table, components, pods)
    _of_jobs(table, components)
    _of_time(table, components, upkeep)
    return table


def _of_pods(table: Listeners, components: Components, pods: Lifecycle) -> None:
    table.on(PodSeen, lambda it, now: pods.see(it.pod, now))
    table.on(PodGone, lambda it, now: pods.forget(it.uid, now))
    table.on(BindDone, lambda it, now: pods.bind_done(it.uid, now, bound=it.outcome == "bound"))
    table.on(BindAbandoned, lambda it, _: components.barrier.left(it.uid))
    table.on(
        EvictionRefused,
        lambda it, now: components.effects.extend(components.preemption.refused(it.uid, it.why, now)),
        lambda it, now: components.elastic.refused(it.uid, now),
    )
    table.on(
        PodsListed,
        lambda _, now: components.presence.listed(now),
        lambda _, __: components.indexes.scorer.look(),
        lambda _, now: components.gangs.rounds.replayed(now),
    )


def _of_nodes(table: Listeners, components: Components) -> None:
    def seen(it: NodeSeen, now: float) -> None:
        name = it.node.metadata.name
        if components.observer.node(it.node):
            with components.quarantine.over(of_node(name), "NodeSeen"):
                components.tenancy.node(name)
            components.gangs.observer.look_at(name, now)

    table.on(NodeSeen, seen)
    table.on(
        NodeGone,
        lambda it, _: components.ledger.drop_node(it.name),
        lambda it, _: components.tenancy.node(it.name),
        lambda it, now: components.gangs.observer.look_at(it.name, now),
    )
    table.on(
        GpusUnhealthy,
        lambda it, _: components.ledger.set_unhealthy(it.node, it.minors),
        lambda it, _: components.tenancy.node(it.node),
        lambda it, now: components.gangs.observer.look_at(it.node, now),
    )


def _of_definitions(table: Listeners, components: Components, pods: Lifecycle) -> None:
    classes, queues, budgets = components.classes, components.tenancy.queues, components.preemption.budgets
    table.on(ClassSeen, lambda it, now: pods.see_anew(classes.put(it.gpu_class), now))
    table.on(ClassGone, lambda it, now: pods.see_anew(classes.drop(it.name), now))
    table.on(QueueSeen, lambda it, _: components.tenancy.put(it.queue))
    table.on(QueueGone, lambda it, _: components.tenancy.drop(it.source, it.name))
    table.on(NamespaceSeen, lambda it, _: queues.namespace(it.namespace.name, it.namespace.labels))
    table.on(NamespaceGone, lambda it, _: queues.namespace(it.name, None))
    table.on(BudgetSeen, lambda it, _: budgets.put(it.budget))
    table.on(BudgetGone, lambda it, _: budgets.drop(it.namespace, it.name))
    priorities, turns = components.priorities, components.gangs.planner.turns
    table.on(PrioritySeen, lambda it, _: turns.revalued(priorities.put(it.priority_class)))
    table.on(PriorityGone, lambda it, _: turns.revalued(priorities.drop(it.name)))


def _of_jobs(table: Listeners, components: Components) -> None:
    gangs, elastic, scalers = components.gangs, components.elastic, components.elastic.scalers
    table.on(
        GroupSeen,
        lambda it, _: elastic.job(it.kind, it.key, it.job),
        lambda it, now: gangs.observer.declare(it.kind, it.key, it.declaration, now),
        lambda it, _: components.tenancy.renamed(gangs.roster.known.get(it.key)),
    )
    table.on(
        GroupGone,
        lambda it, _: elastic.job(it.kind, it.key, None),
        lambda it, now: gangs.observer.declare(it.kind, it.key, None, now),
        lambda it, _: components.tenancy.renamed(gangs.roster.known.get(it.key)),
    )
    table.on(ScalerSeen, lambda it, now: scalers.see(it.scaler, now))
    table.on(ScalerGone, lambda it, now: scalers.gone(it.kind, it.namespace, it.name, now))
    table.on(ScalersServed, lambda it, _: scalers.serve(it.kind, it.yes))


def _of_time(table: Listeners, components: Components, upkeep: Upkeep) -> None:
    table.on(
        Leading,
        lambda it, _: components.elastic.lead(it.yes),
        lambda it, _: components.preemption.lead(it.yes),
        lambda it, _: components.classes.lead(it.yes),
        lambda it, _: components.tenancy.lead(it.yes),
        lambda it, _: components.gates.lead(it.yes),
        lambda it, now: components.gangs.rounds.lead(it.yes, now),
    )
    table.on(
        WallMoved,
        lambda it, _: components.wall.move(it.by),
        lambda it, now: components.running_pods.shift(it.by, now),
        lambda it, _: components.gangs.rounds.shift(it.by),
        lambda _, now: components.reservations.read_anew(now),
        lambda *_: components.waking.reorder(),
        lambda *_: components.tenancy.admission.reorder(),
        lambda *_: components.gangs.planner.turns.reorder(),
    )
    table.on(Tick, lambda it, now: upkeep.tick(it.part, now))
