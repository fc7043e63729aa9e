"""The whole cluster: how much there is, who waits, and how the scheduler is."""

from __future__ import annotations

from tests.monitoring.grafana import Dashboard, Query, panel
from tests.monitoring.promql import added, gpus, led, measured, of_offered, per_second, quantile

_ALLOCATED = of_offered("gangshare_gpu_allocated_ratio")
_FREE = f"{_ALLOCATED} == bool 0"
_MEMORY, _MEMORY_FREE = of_offered("gangshare_gpu_memory_bytes"), of_offered("gangshare_gpu_memory_free_bytes")

BOARD = Dashboard(
    file="cluster",
    title="Gangshare / Cluster",
    help="GPUs of the cluster, pending pods, and the health of the extender.",
    variables=(),
    panels=(
        panel("stat", "Nodes with GPUs", f"count(count by (node) ({gpus()}))", "Nodes that offer GPUs.", width=4),
        panel("stat", "GPUs", f"count({gpus()})", "GPUs that are healthy and not cordoned.", width=4),
        panel("stat", "GPUs allocated", f"sum({_ALLOCATED})", "Parts of GPUs count as parts.", width=4),
        panel("stat", "GPUs free", f"sum({_FREE})", "GPUs that no pod uses: whole GPUs fit only here.", width=4),
        panel(
            "stat",
            "Memory allocated",
            f"1 - sum({_MEMORY_FREE}) / sum({_MEMORY})",
            "Part of the GPU memory that pods have.",
            unit="percentunit",
            width=4,
        ),
        panel("stat", "Pending pods", led("gangshare_pending_pods"), "Pods that wait, in all queues.", width=4),
        panel(
            "timeseries",
            "GPUs",
            [
                Query(f"count({gpus()})", "offered"),
                Query(f"sum({_ALLOCATED})", "allocated"),
                Query(f"sum({_FREE})", "free"),
            ],
            "Between allocated and offered, and not free, is what fragmentation leaves of GPUs in use.",
        ),
        panel(
            "timeseries",
            "GPU memory",
            [
                Query(f"sum({_MEMORY})", "total"),
                Query(f"sum({_MEMORY}) - sum({_MEMORY_FREE})", "allocated"),
                Query(measured("gangshare_container_gpu_memory_used_bytes"), "used"),
            ],
            "Used needs the component usage.",
            unit="bytes",
        ),
        panel(
            "timeseries",
            "Pods with GPUs",
            [
                Query(led("gangshare_bookings", "state"), "{{state}}"),
                Query(led("gangshare_pending_pods"), "pending"),
            ],
            "held: between filter and bind; kept: reserved for a pending pod or for the replacement of a lost member.",
        ),
        panel(
            "table",
            "Models",
            [
                Query(f"count by (model) ({gpus()})", "GPUs"),
                Query(f"sum by (model) ({_ALLOCATED})", "Allocated"),
                Query(f"sum by (model) ({_FREE})", "Free"),
            ],
            "GPUs by model.",
        ),
        panel(
            "table",
            "Nodes",
            [
                Query(f"count by (node) ({gpus()})", "GPUs"),
                Query(f"sum by (node) ({_ALLOCATED})", "Allocated"),
                Query(f"sum by (node) ({_FREE})", "Free"),
                Query(f"sum by (node) ({_MEMORY_FREE})", "Memory free", "bytes"),
            ],
            "GPUs by node. The dashboard Node shows one of them.",
        ),
        panel(
            "timeseries",
            "Answers to filter",
            [Query(per_second("gangshare_decisions_total", "code", where='verb="filter"'), "{{code}}")],
            "Answers to kube-scheduler by reason code; docs/refusals.md explains each code.",
            unit="reqps",
        ),
        panel(
            "timeseries",
            "Time to answer",
            [
                Query(quantile(0.5, "gangshare_verb_seconds", "verb"), "{{verb}}, median"),
                Query(quantile(0.99, "gangshare_verb_seconds", "verb"), "{{verb}}, 99th percentile"),
            ],
            "bind includes the write of the Binding, and the wait of a gang's members for each other.",
            unit="s",
        ),
        panel(
            "timeseries",
            "Preemptions",
            [Query(added("gangshare_preemptions_total", "outcome"), "{{outcome}}")],
            "Preemptions by outcome.",
        ),
        panel(
            "timeseries",
            "GPU-hours lost to preemption",
            f"{added('gangshare_preemption_lost_gpu_seconds_total')} / 3600",
            "What preempted pods had run since their start or last checkpoint.",
        ),
        panel(
            "stat",
            "Leading extenders",
            measured("gangshare_leader"),
            "One replica leads. 0: nothing is placed.",
            width=6,
        ),
        panel("stat", "Set aside", measured("gangshare_quarantined"), "Objects in quarantine.", width=6),
        panel(
            "stat",
            "Invariants violated",
            "max(gangshare_invariant_violations)",
            "Above 0 is a bug of Gangshare.",
            width=6,
        ),
        panel(
            "stat",
            "Watches lost",
            "sum(gangshare_watching == bool 0)",
            "Collections of the API server that are not followed.",
            width=6,
        ),
        panel(
            "timeseries",
            "Unusable input and failed writes",
            [Query(added("gangshare_errors_total", "kind"), "{{kind}}")],
            "forged: somebody else wrote an allocation.",
            width=12,
        ),
        panel(
            "timeseries",
            "Event loop",
            [
                Query(quantile(0.99, "gangshare_loop_lag_seconds"), "late, 99th percentile"),
                Query(quantile(0.99, "gangshare_loop_step_seconds", "step"), "{{step}}, 99th percentile"),
            ],
            "By how much the extender's event loop was late, and how long single steps held it.",
            unit="s",
            width=12,
        ),
    ),
)
