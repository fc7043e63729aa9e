"""The extender's Prometheus metrics: `TABLE` names all of them, `Metrics` holds counters and latencies.

At each scrape `extender.server.exposition` reads the metrics of nodes, pods and queues from the engine.
docs/metrics.md is made from the table.
"""

from collections import Counter as Counts
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Literal, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from extender.faults import Faults
from extender.steps import Steps

VERB_BUCKETS = (0.0002, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120)
LAG_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 5)
GANG_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200, 43200)
"""Seconds."""


class Spec(NamedTuple):
    """One metric. A counter's name is without its `_total`."""

    kind: Literal["counter", "gauge", "histogram"]
    name: str
    labels: tuple[str, ...]
    help: str
    known: tuple[str, ...] = ()
    """Values of the labels that are served from the start, at 0: a rate misses a series' first step."""


_counter, _gauge, _histogram = partial(Spec, "counter"), partial(Spec, "gauge"), partial(Spec, "histogram")
_GPU = ("node", "UUID", "gpu")
"""As dcgm-exporter calls them."""

BOOKINGS = _gauge(
    "gangshare_bookings",
    ("state",),
    "Pods with GPUs booked, by state: held, binding, bound; kept: reserved for a pending pod or the replacement of a "
    "lost member.",
)
PENDING = _gauge(
    "gangshare_pending_pods",
    (),
    "Pending pods of all queues: those that request GPUs, and all others of the extender's schedulers.",
)
MEM = _gauge(
    "gangshare_gpu_memory_bytes",
    _GPU,
    "GPU memory that pods can request, in bytes. Of a GPU in MIG mode only its instances have it.",
)
MEM_FREE = _gauge(
    "gangshare_gpu_memory_free_bytes", _GPU, "GPU memory that pods can request and that is free, in bytes."
)
SLICES_FREE = _gauge("gangshare_gpu_slices_free", _GPU, "Time slices of a GPU that are free.")
ALLOCATED = _gauge(
    "gangshare_gpu_allocated_ratio",
    _GPU,
    "Part of the GPU that is allocated: the larger of memory and time slices, 1 if it is allocated whole.",
)
OFFERED = _gauge("gangshare_gpu_offered", (*_GPU, "model"), "1 if the GPU is healthy and not cordoned.")
INSTANCE = _gauge("gangshare_mig_instance", (*_GPU, "profile"), "1 for each MIG instance, with its profile.")
ISOLATION = _gauge(
    "gangshare_node_isolation",
    ("node", "memory", "compute"),
    "1 for the level at which a node isolates parts of its GPUs, if it publishes one: memory enforced or promised, "
    "compute capped or promised.",
)
INFO = _gauge(
    "gangshare_allocation_info",
    ("namespace", "pod", "container", "UUID", "node", "gpu"),
    "1 for each GPU of each container; joins with dcgm-exporter's metrics by UUID.",
)
VERB_SECONDS = _histogram(
    "gangshare_verb_seconds", ("verb",), "Seconds to answer a verb; bind includes the write of the Binding."
)
DECISIONS = _counter("gangshare_decisions", ("verb", "code"), "Answers to kube-scheduler, by reason code.")
QUARANTINED = _gauge("gangshare_quarantined", ("kind",), "Objects in quarantine after an internal error, by kind.")
GANGS = _gauge("gangshare_gangs", ("phase",), "Gangs by phase.")
GANG_SECONDS = _histogram(
    "gangshare_gang_phase_seconds",
    ("phase",),
    "Seconds that a gang spent in a phase; Binding lasts from the first Binding until the minimum is bound.",
)
ENGINE_COUNTERS = (
    _counter("gangshare_conflicts", (), "Binds refused because the GPUs were taken after filter."),
    _counter("gangshare_pod_requeues", (), "Pending pods requeued because GPUs became free."),
    _counter(
        "gangshare_errors",
        ("kind",),
        "Invalid input: allocations forged, malformed or newer; objects undecodable. Failed writes: effects given up.",
        ("forged", "malformed", "newer", "undecodable"),
    ),
    _counter(
        "gangshare_faults", ("place",), "Internal errors that were caught, by the component in which they happened."
    ),
    _counter(
        "gangshare_nominations",
        ("outcome",),
        "Single pods nominated to nodes that kube-scheduler did not check: made; lapsed: it did not ask again in time; "
        "yielded: to a workload before them; removed: from pods still pending.",
        ("made", "lapsed", "yielded", "removed"),
    ),
    _counter(
        "gangshare_gang_starts",
        ("outcome",),
        "Gang starts: planned; stuck or plan_invalidated: given up before the first Binding; "
        "undone: rolled back after it; preempted: evicted later.",
        ("planned", "stuck", "plan_invalidated", "undone", "preempted"),
    ),
    _counter(
        "gangshare_preemptions",
        ("outcome",),
        "Preemptions: planned; done: the preemptor was bound; left, lapsed, changed or unheard: it was not; refused: "
        "by a budget.",
        ("planned", "done", "left", "lapsed", "changed", "unheard", "refused"),
    ),
    _counter(
        "gangshare_preemption_victims",
        ("kind", "by"),
        "Preempted pods: pod, gang, or spare (surplus member); by priority in their queue, or by share (reclaim).",
        ("pod/priority", "pod/share", "gang/priority", "gang/share", "spare/priority", "spare/share"),
    ),
    _counter(
        "gangshare_preemption_lost_gpu_seconds",
        (),
        "GPU-seconds that preempted pods had run since their start or last checkpoint.",
    ),
    _counter(
        "gangshare_scale_ins",
        ("outcome",),
        "ScaleIns of elastic jobs: created; done, failed: as their operator says; overdue: workers were evicted; "
        "ignored: the job has too many.",
        ("created", "done", "failed", "overdue", "ignored"),
    ),
    _counter(
        "gangshare_scale_outs",
        ("outcome",),
        "ScaleOuts of elastic jobs: created; done, failed: as their operator says; ignored: the job has too many.",
        ("created", "done", "failed", "ignored"),
    ),
    _counter(
        "gangshare_drain_evictions",
        ("kind",),
        "Pods evicted from nodes that are drained: spare (surplus members); overdue: a ScaleIn had no effect; "
        "restart: their gang restarts.",
        ("spare", "overdue", "restart"),
    ),
)
"""Counters that the engine counts under the same names, without `gangshare_`."""
QUEUE_FAIR_SHARE = _gauge("gangshare_queue_fair_share_gpus", ("queue",), "Fair share of a queue, in GPUs.")
QUEUE_ALLOCATED = _gauge("gangshare_queue_allocated_gpus", ("queue",), "GPUs of the bound pods of a queue.")
QUEUE_REQUESTED = _gauge(
    "gangshare_queue_requested_gpus",
    ("queue",),
    "GPUs of a queue's bound pods and, while it is open, of pending pods that some node could take.",
)
QUEUE_SHARE = _gauge("gangshare_queue_share_ratio", ("queue",), "Allocated GPUs of a queue over its fair share.")
QUEUE_OVER = _gauge("gangshare_queue_over_capability", ("queue",), "1 if a queue uses more than its capability.")
QUEUE_PODS = _gauge(
    "gangshare_queue_pods", ("queue", "state"), "Pods of a queue and the queues below it: waiting, running."
)
LISTS = _counter("gangshare_lists", ("path",), "Complete lists read; more than one per collection: the watch was lost.")
WATCHING = _gauge("gangshare_watching", ("path",), "1 while the watch of a collection works.")
LEADER = _gauge("gangshare_leader", (), "1 while this process may write.")
REPLAY = _gauge("gangshare_replay_seconds", (), "Seconds from the start until all pods and nodes were read.")
LAG = _histogram("gangshare_loop_lag_seconds", (), "Seconds by which the event loop was late.")
STEPS = _histogram(
    "gangshare_loop_step_seconds",
    ("step",),
    "Seconds that one step held the event loop: event, verb, part of a page, of a tick or of a plan, or collection.",
)
VIOLATIONS = _gauge("gangshare_invariant_violations", (), "Invariants that the last check found violated.")

TABLE = (
    BOOKINGS, PENDING, MEM, MEM_FREE, SLICES_FREE, ALLOCATED, OFFERED, INSTANCE, ISOLATION, INFO,
    VERB_SECONDS, DECISIONS, QUARANTINED,
    GANGS, GANG_SECONDS, *ENGINE_COUNTERS,
    QUEUE_FAIR_SHARE, QUEUE_ALLOCATED, QUEUE_REQUESTED, QUEUE_SHARE, QUEUE_OVER, QUEUE_PODS,
    LISTS, WATCHING, LEADER, REPLAY, LAG, STEPS, VIOLATIONS,
)  # fmt: skip


class Metrics(Collector):
    """The metrics that are counted as things happen, in a registry of their own."""

    def __init__(self, engine_counters: Mapping[tuple[str, str], int]) -> None:
        """`engine_counters` are the engine's, by name and label."""
        # By default each counter and histogram has one more time series: when it was created.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._engine_counters = engine_counters
        self.registry = CollectorRegistry()
        self.verb_seconds = self._histogram(VERB_SECONDS, VERB_BUCKETS)
        self.decisions: Counts[tuple[str, str]] = Counts()
        """Answers to kube-scheduler, by verb and reason code."""
        self.lists = Counter(LISTS.name, LISTS.help, LISTS.labels, registry=self.registry)
        self.watching = self._gauge(WATCHING)
        self.leader = self._gauge(LEADER)
        self.replay_seconds = self._gauge(REPLAY)
        self.loop_lag = self._histogram(LAG, LAG_BUCKETS)
        self.violations = self._gauge(VIOLATIONS)
        self.gang_seconds = self._histogram(GANG_SECONDS, GANG_BUCKETS)
        self.errors: Counts[str] = Counts()
        """Invalid input and failed writes that the shell meets, by kind; the engine counts its own."""
        self.faults = Faults()
        """Internal errors that the shell catches; the engine counts its own."""
        self.steps = Steps()
        self.registry.register(self)

    def _gauge(self, spec: Spec) -> Gauge:
        return Gauge(spec.name, spec.help, spec.labels, registry=self.registry)

    def _histogram(self, spec: Spec, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(spec.name, spec.help, spec.labels, buckets=buckets, registry=self.registry)

    def collect(self) -> Iterator[Metric]:
        """The engine's counters and the steps of the event loop, read at each scrape."""
        of_shell: dict[str, Mapping[str, int]] = {"errors": self.errors, "faults": self.faults.counted}
        for spec in ENGINE_COUNTERS:
            name = spec.name.removeprefix("gangshare_")
            counts = Counts(dict.fromkeys(spec.known, 0))
            counts.update({label: count for (key, label), count in self._engine_counters.items() if key == name})
            counts.update(of_shell.get(name, {}))
            family = CounterMetricFamily(spec.name, spec.help, labels=spec.labels)
            if not spec.labels:
                family.add_metric((), counts[""])
            else:
                for label, count in sorted(counts.items()):
                    family.add_metric(label.split("/", len(spec.labels) - 1), count)
            yield family
        decisions = CounterMetricFamily(DECISIONS.name, DECISIONS.help, labels=DECISIONS.labels)
        for labels, count in sorted(self.decisions.items()):
            decisions.add_metric(labels, count)
        yield decisions
        yield self.steps.fill(HistogramMetricFamily(STEPS.name, STEPS.help, labels=STEPS.labels))
