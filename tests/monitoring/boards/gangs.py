"""Gangs: phases, starts, and how long they wait."""

from __future__ import annotations

from tests.monitoring.grafana import Dashboard, Panel, Query, panel
from tests.monitoring.promql import added, led, quantile

_PHASE = "gangshare_gang_phase_seconds"


def _phase(title: str, phases: str, text: str) -> Panel:
    gauge = led("gangshare_gangs", "phase", where=f'phase=~"{phases}"')
    return panel("stat", title, f"sum({gauge})", text, width=6)


BOARD = Dashboard(
    file="gangs",
    title="Gangshare / Gangs",
    help="Gangs by phase, their starts, and how long they wait.",
    variables=(),
    panels=(
        _phase("Gangs that run", "Running", "All of their minimum are bound."),
        _phase("Gangs that wait", "Waiting", "Their minimum exists and waits for room; they hold nothing."),
        _phase("Gangs without all members", "Assembling", "Fewer pods exist than their minimum."),
        _phase("Gangs that lost members", "Degraded|Undoing", "They have fewer members than their minimum."),
        panel(
            "timeseries", "Gangs", [Query(led("gangshare_gangs", "phase"), "{{phase}}")], "Gangs by phase.", width=12
        ),
        panel(
            "timeseries",
            "Starts",
            [Query(added("gangshare_gang_starts_total", "outcome"), "{{outcome}}")],
            "stuck, plan_invalidated: given up before the first Binding; undone: rolled back after it.",
            width=12,
        ),
        panel(
            "heatmap",
            "Time that gangs waited for room",
            added(f"{_PHASE}_bucket", "le", where='phase="Waiting"'),
            "Gangs that left the phase Waiting, by the time they spent in it.",
            unit="short",
            width=12,
        ),
        panel(
            "timeseries",
            "Time in a phase",
            [
                Query(quantile(0.5, _PHASE, "phase"), "{{phase}}, median"),
                Query(quantile(0.95, _PHASE, "phase"), "{{phase}}, 95th percentile"),
            ],
            "Binding lasts from the first Binding until the minimum is bound.",
            unit="s",
            width=12,
        ),
        panel(
            "timeseries",
            "Gangs and pods preempted",
            [Query(added("gangshare_preemption_victims_total", "kind", "by"), "{{kind}}, by {{by}}")],
            "Preempted pods by what they belonged to, and why.",
        ),
        panel(
            "timeseries",
            "Elastic jobs",
            [
                Query(added("gangshare_scale_ins_total", "outcome"), "scale in: {{outcome}}"),
                Query(added("gangshare_scale_outs_total", "outcome"), "scale out: {{outcome}}"),
            ],
            "ScaleIns and ScaleOuts that the extender created, and their ends.",
        ),
        panel(
            "timeseries",
            "Evictions of drains",
            [Query(added("gangshare_drain_evictions_total", "kind"), "{{kind}}")],
            "Members evicted from nodes that will be removed.",
        ),
        panel(
            "timeseries",
            "GPUs kept",
            [Query(led("gangshare_bookings", where='state="kept"'), "reservations")],
            "Reservations for pending pods, and for replacements of lost members.",
        ),
        panel(
            "timeseries",
            "Nominations",
            [Query(added("gangshare_nominations_total", "outcome"), "{{outcome}}")],
            "Single pods nominated to nodes that kube-scheduler did not check.",
        ),
        panel(
            "timeseries",
            "Tries again",
            [
                Query(added("gangshare_pod_requeues_total"), "pods requeued"),
                Query(added("gangshare_conflicts_total"), "binds refused"),
            ],
            "Pods requeued because GPUs became free, and binds refused because the GPUs were taken after filter.",
        ),
    ),
)
