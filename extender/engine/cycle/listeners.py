"""Which components take which event: one table, from the type of an event to its listeners, in order.

If a listener fails, the others are called all the same, and the object of the event is quarantined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from extender.engine.cycle.components import Components
from extender.engine.cycle.lifecycle import Lifecycle
from extender.engine.cycle.upkeep import Upkeep
from extender.engine.state.quarantine import Quarantine
from extender.engine.types import events
from extender.engine.types.events import Event
from extender.engine.types.subject import of_node

E = TypeVar("E", bound=Event)


class Listeners:
    """Listeners by type of event. Each is called with the event and now."""

    def __init__(self, quarantine: Quarantine) -> None:
        self._quarantine = quarantine
        self.of: dict[type[Any], tuple[Callable[[Any, float], object], ...]] = {}

    def on(self, kind: type[E], *listeners: Callable[[E, float], object]) -> None:
        """Set the listeners of a type of event."""
        self.of[kind] = listeners

    def tell(self, event: Event, now: float) -> None:
        """Call all listeners of the event."""
        kind = type(event)
        self._quarantine.each(
            self.of[kind], lambda _: event.about, kind.__name__, lambda listener: listener(event, now)
        )


def listeners(components: Components, pods: Lifecycle, upkeep: Upkeep) -> Listeners:
    """The table of the engine."""
    table = Listeners(components.quarantine)
    _of_pods(table, components, pods)
    _of_nodes(table, components)
    _of_definitions(table, components, pods)
    _of_jobs(table, components)
    _of_time(table, components, upkeep)
    return table


def _of_pods(table: Listeners, components: Components, pods: Lifecycle) -> None:
    table.on(events.PodSeen, lambda event, now: pods.see(event.pod, now))
    table.on(events.PodGone, lambda event, now: pods.forget(event.uid, now))
    table.on(events.BindDone, lambda event, now: pods.bind_done(event.uid, now, bound=event.outcome == "bound"))
    table.on(events.BindAbandoned, lambda event, _: components.barrier.left(event.uid))
    table.on(
        events.EvictionRefused,
        lambda event, now: components.preemption.refused(event.uid, event.why, now),
        lambda event, now: components.elastic.refused(event.uid, now),
    )
    table.on(
        events.PodsListed,
        lambda _, now: components.presence.listed(now),
        lambda _, __: components.indexes.scorer.look(),
        lambda _, now: components.gangs.rounds.replayed(now),
        lambda _, now: components.nominations.listed(now),
    )


def _of_nodes(table: Listeners, components: Components) -> None:
    def seen(event: events.NodeSeen, now: float) -> None:
        name = event.node.metadata.name
        if components.observer.node(event.node):
            with components.quarantine.over(of_node(name), "NodeSeen"):
                components.tenancy.node(name)
            components.gangs.observer.look_at(name, now)

    table.on(events.NodeSeen, seen)
    table.on(
        events.NodeGone,
        lambda event, _: components.ledger.drop_node(event.name),
        lambda event, _: components.tenancy.node(event.name),
        lambda event, now: components.gangs.observer.look_at(event.name, now),
    )
    table.on(
        events.GpusUnhealthy,
        lambda event, _: components.ledger.set_unhealthy(event.node, event.minors),
        lambda event, _: components.tenancy.node(event.node),
        lambda event, now: components.gangs.observer.look_at(event.node, now),
    )


def _of_definitions(table: Listeners, components: Components, pods: Lifecycle) -> None:
    classes, queues, budgets = components.classes, components.tenancy.queues, components.preemption.budgets
    table.on(events.ClassSeen, lambda event, now: pods.class_changed(classes.put(event.gpu_class), now))
    table.on(events.ClassGone, lambda event, now: pods.class_changed(classes.drop(event.name), now))
    table.on(events.QueueSeen, lambda event, _: components.tenancy.put(event.queue))
    table.on(events.QueueGone, lambda event, _: components.tenancy.drop(event.source, event.name))
    table.on(
        events.NamespaceSeen,
        lambda event, _: queues.namespace(event.namespace.name, event.namespace.labels),
        lambda event, now: pods.set_default(event.namespace.name, event.namespace.isolation, now),
    )
    table.on(
        events.NamespaceGone,
        lambda event, _: queues.namespace(event.name, None),
        lambda event, now: pods.set_default(event.name, None, now),
    )
    table.on(events.BudgetSeen, lambda event, _: budgets.put(event.budget))
    table.on(events.BudgetGone, lambda event, _: budgets.drop(event.namespace, event.name))
    priorities, turns = components.priorities, components.gangs.planner.turns
    table.on(events.PrioritySeen, lambda event, _: turns.revalued(priorities.put(event.priority_class)))
    table.on(events.PriorityGone, lambda event, _: turns.revalued(priorities.drop(event.name)))


def _of_jobs(table: Listeners, components: Components) -> None:
    gangs, elastic, scalers = components.gangs, components.elastic, components.elastic.scalers
    table.on(
        events.GroupSeen,
        lambda event, _: elastic.job(event.kind, event.key, event.job),
        lambda event, now: gangs.observer.declare(event.kind, event.key, event.declaration, now),
        lambda event, _: components.tenancy.renamed(gangs.roster.known.get(event.key)),
    )
    table.on(
        events.GroupGone,
        lambda event, _: elastic.job(event.kind, event.key, None),
        lambda event, now: gangs.observer.declare(event.kind, event.key, None, now),
        lambda event, _: components.tenancy.renamed(gangs.roster.known.get(event.key)),
    )
    table.on(events.ScalerSeen, lambda event, now: scalers.see(event.scaler, now))
    table.on(events.ScalerGone, lambda event, now: scalers.gone(event.kind, event.namespace, event.name, now))
    table.on(events.ScalersServed, lambda event, _: scalers.serve(event.kind, event.yes))


def _of_time(table: Listeners, components: Components, upkeep: Upkeep) -> None:
    table.on(
        events.Leading,
        lambda event, _: components.elastic.lead(event.yes),
        lambda event, _: components.preemption.lead(event.yes),
        lambda event, _: components.classes.lead(event.yes),
        lambda event, _: components.tenancy.lead(event.yes),
        lambda event, _: components.gates.lead(event.yes),
        lambda event, now: components.gangs.rounds.lead(event.yes, now),
        lambda event, now: components.pending_reasons.lead(event.yes, now),
    )
    table.on(
        events.WallMoved,
        lambda event, _: components.wall.move(event.by),
        lambda event, now: components.running_pods.shift(event.by, now),
        lambda event, _: components.gangs.rounds.shift(event.by),
        lambda _, now: components.reservations.read_anew(now),
        lambda *_: components.waking.reorder(),
        lambda *_: components.tenancy.admission.reorder(),
        lambda *_: components.gangs.planner.turns.reorder(),
    )
    table.on(events.Tick, lambda event, now: upkeep.tick(event.part, now))
