"""The extender's Prometheus metrics: `TABLE` names them all, `Metrics` keeps counters and latencies as things happen.

What the books hold is not kept twice: `extender.server.exposition` reads it from the engine when Prometheus asks.
docs/metrics.md is made from the table: `python -m extender.metrics > docs/metrics.md`.
"""

from collections import Counter as Counts
from collections.abc import Iterator, Mapping
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

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str

    @property
    def full_name(self) -> str:
        return f"{self.name}_total" if self.kind == "counter" else self.name


BOOKINGS = Spec(
    "gangshare_bookings",
    "gauge",
    ("state",),
    "Pods with GPUs booked, by state: held, binding, bound; kept: reserved for a pending pod or the replacement of a "
    "lost member.",
)
PENDING = Spec(
    "gangshare_pending_pods",
    "gauge",
    (),
    "Pending pods of all queues: those that request GPUs, and all others of the extender's schedulers.",
)
MEM = Spec("gangshare_gpu_memory_units", "gauge", ("node", "uuid", "index"), "GPU memory, in units.")
MEM_FREE = Spec(
    "gangshare_gpu_memory_free_units", "gauge", ("node", "uuid", "index"), "GPU memory that is free, in units."
)
SLICES_FREE = Spec(
    "gangshare_gpu_slices_free", "gauge", ("node", "uuid", "index"), "Time slices of a GPU that are free."
)
OFFERED = Spec("gangshare_gpu_offered", "gauge", ("node", "uuid", "index"), "1 if the GPU is healthy and not cordoned.")
INFO = Spec(
    "gangshare_allocation_info",
    "gauge",
    ("namespace", "pod", "container", "UUID", "node", "gpu"),
    "1 for each GPU of each container; joins with dcgm-exporter's metrics by UUID.",
)
VERB_SECONDS = Spec(
    "gangshare_verb_seconds",
    "histogram",
    ("verb",),
    "Seconds to answer a verb; bind includes the write of the Binding.",
)
DECISIONS = Spec("gangshare_decisions", "counter", ("verb", "code"), "Answers to kube-scheduler, by reason code.")
CONFLICTS = Spec("gangshare_conflicts", "counter", (), "Binds refused because the GPUs were taken after filter.")
REQUEUES = Spec("gangshare_pod_requeues", "counter", (), "Pending pods requeued because GPUs became free.")
ERRORS = Spec(
    "gangshare_errors",
    "counter",
    ("kind",),
    "Invalid input and failed writes: allocations forged, malformed or newer; objects undecodable; effects given up.",
)
FAULTS = Spec(
    "gangshare_faults",
    "counter",
    ("place",),
    "Internal errors that were caught, by the component in which they happened.",
)
QUARANTINED = Spec(
    "gangshare_quarantined", "gauge", ("kind",), "Objects in quarantine after an internal error, by kind."
)
GANGS = Spec("gangshare_gangs", "gauge", ("phase",), "Gangs by phase.")
GANG_STARTS = Spec(
    "gangshare_gang_starts",
    "counter",
    ("outcome",),
    "Gang starts: planned; stuck or upset: given up before the first Binding; undone: rolled back after it; "
    "preempted: evicted later.",
)
GANG_SECONDS = Spec(
    "gangshare_gang_phase_seconds",
    "histogram",
    ("phase",),
    "Seconds that a gang spent in a phase; Binding lasts from the first Binding until the minimum is bound.",
)
PREEMPTIONS = Spec(
    "gangshare_preemptions",
    "counter",
    ("outcome",),
    "Preemptions: planned; done: the preemptor was bound; left, lapsed, changed or unheard: it was not; refused: by a "
    "budget.",
)
PREEMPTED = Spec(
    "gangshare_preemption_victims",
    "counter",
    ("kind", "by"),
    "Preempted pods: pod, gang, or spare (surplus member); by priority in their queue, or by share (reclaim).",
)
LOST = Spec(
    "gangshare_preemption_lost_gpu_seconds",
    "counter",
    (),
    "GPU-seconds that preempted pods had run since their start or last checkpoint.",
)
SCALE_INS = Spec(
    "gangshare_scale_ins",
    "counter",
    ("outcome",),
    "ScaleIns of elastic jobs: created; done, failed: as their operator says; overdue: workers were evicted; "
    "ignored: the job has too many.",
)
SCALE_OUTS = Spec(
    "gangshare_scale_outs",
    "counter",
    ("outcome",),
    "ScaleOuts of elastic jobs: created; done, failed: as their operator says; ignored: the job has too many.",
)
DRAIN_EVICTIONS = Spec(
    "gangshare_drain_evictions",
    "counter",
    ("kind",),
    "Pods evicted from nodes that are drained: spare (surplus members); overdue: a ScaleIn had no effect; "
    "restart: their gang restarts.",
)
QUEUE_FAIR_SHARE = Spec("gangshare_queue_fair_share_gpus", "gauge", ("queue",), "Fair share of a queue, in GPUs.")
QUEUE_ALLOCATED = Spec("gangshare_queue_allocated_gpus", "gauge", ("queue",), "GPUs of the bound pods of a queue.")
QUEUE_REQUESTED = Spec(
    "gangshare_queue_requested_gpus", "gauge", ("queue",), "GPUs of the bound and pending pods of a queue."
)
QUEUE_SHARE = Spec("gangshare_queue_share", "gauge", ("queue",), "Allocated GPUs of a queue over its fair share.")
QUEUE_OVER = Spec("gangshare_queue_over_capability", "gauge", ("queue",), "1 if a queue uses more than its capability.")
QUEUE_PODS = Spec(
    "gangshare_queue_pods", "gauge", ("queue", "state"), "Pods of a queue and the queues below it: waiting, running."
)
LISTS = Spec(
    "gangshare_lists", "counter", ("path",), "Complete lists read; more than one per collection: the watch was lost."
)
WATCHING = Spec("gangshare_watching", "gauge", ("path",), "1 while the watch of a collection works.")
LEADER = Spec("gangshare_leader", "gauge", (), "1 while this process may write.")
REPLAY = Spec("gangshare_replay_seconds", "gauge", (), "Seconds from the start until all pods and nodes were read.")
LAG = Spec("gangshare_loop_lag_seconds", "histogram", (), "Seconds by which the event loop was late.")
STEPS = Spec(
    "gangshare_loop_step_seconds",
    "histogram",
    ("step",),
    "Seconds that one step held the event loop: event, verb, part of a page, of a tick or of a plan, or collection.",
)
VIOLATIONS = Spec("gangshare_invariant_violations", "gauge", (), "Invariants that the last check found violated.")

TABLE = (
    BOOKINGS, PENDING, MEM, MEM_FREE, SLICES_FREE, OFFERED, INFO, VERB_SECONDS, DECISIONS, CONFLICTS, REQUEUES, ERRORS,
    FAULTS, QUARANTINED, GANGS, GANG_STARTS, GANG_SECONDS, PREEMPTIONS, PREEMPTED, LOST, SCALE_INS, SCALE_OUTS,
    DRAIN_EVICTIONS,
    QUEUE_FAIR_SHARE, QUEUE_ALLOCATED, QUEUE_REQUESTED, QUEUE_SHARE, QUEUE_OVER, QUEUE_PODS,
    LISTS, WATCHING, LEADER, REPLAY, LAG, STEPS, VIOLATIONS,
)  # fmt: skip


class Metrics:
    """What is counted as it happens, in a registry of its own."""

    def __init__(self, engine_counters: Mapping[tuple[str, str], int]) -> None:
        """`engine_counters` are the engine's: (what, label) → how often."""
        # Else each counter and histogram comes with a time series of when it was made.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self.verb_seconds = self._histogram(VERB_SECONDS, VERB_BUCKETS)
        self.decisions = Counter(DECISIONS.name, DECISIONS.help, DECISIONS.labels, registry=self.registry)
        self.lists = Counter(LISTS.name, LISTS.help, LISTS.labels, registry=self.registry)
        self.watching = self._gauge(WATCHING)
        self.leader = self._gauge(LEADER)
        self.replay_seconds = self._gauge(REPLAY)
        self.loop_lag = self._histogram(LAG, LAG_BUCKETS)
        self.violations = self._gauge(VIOLATIONS)
        self.gang_seconds = self._histogram(GANG_SECONDS, GANG_BUCKETS)
        self.errors: Counts[str] = Counts()
        """Problems that the shell meets, by kind; the engine counts its own."""
        self.faults = Faults()
        """Errors that the shell catches; the engine counts its own."""
        self.steps = Steps()
        self.registry.register(_Engine(engine_counters, self.errors, self.faults.counted))
        self.registry.register(_Loop(self.steps))

    def _gauge(self, spec: Spec) -> Gauge:
        return Gauge(spec.name, spec.help, spec.labels, registry=self.registry)

    def _histogram(self, spec: Spec, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(spec.name, spec.help, spec.labels, buckets=buckets, registry=self.registry)


class _Engine(Collector):
    """The engine's counters, read when asked."""

    def __init__(
        self, counters: Mapping[tuple[str, str], int], errors: Mapping[str, int], faults: Mapping[str, int]
    ) -> None:
        self._counters, self._errors, self._faults = counters, errors, faults

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(CONFLICTS.name, CONFLICTS.help, self._counters.get(("conflicts", ""), 0))
        yield CounterMetricFamily(REQUEUES.name, REQUEUES.help, self._counters.get(("pod_requeues", ""), 0))
        yield _family(ERRORS, Counts(self._errors) + self._of("errors"))
        yield _family(FAULTS, Counts(self._faults) + self._of("faults"))
        yield _family(GANG_STARTS, self._of("gang_starts"))
        yield _family(PREEMPTIONS, self._of("preemptions"))
        yield _family(PREEMPTED, self._of("preemption_victims"))
        yield _family(SCALE_INS, self._of("scale_ins"))
        yield _family(SCALE_OUTS, self._of("scale_outs"))
        yield _family(DRAIN_EVICTIONS, self._of("drain_evictions"))
        lost = self._counters.get(("preemption_lost_gpu_seconds", ""), 0)
        yield CounterMetricFamily(LOST.name, LOST.help, lost)

    def _of(self, what: str) -> Counts[str]:
        """By label."""
        return Counts({label: count for (of, label), count in self._counters.items() if of == what})


class _Loop(Collector):
    """The steps of the event loop, read when asked."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def collect(self) -> Iterator[Metric]:
        yield self._steps.fill(HistogramMetricFamily(STEPS.name, STEPS.help, labels=STEPS.labels))


def _family(spec: Spec, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(spec.name, spec.help, labels=spec.labels)
    for label, count in sorted(counts.items()):
        family.add_metric(label.split("/") if len(spec.labels) > 1 else [label], count)
    return family


def table() -> str:
    """The page of all metrics, in Markdown."""
    lines = ["# Metrics of the extender", "", "Served under `/metrics` to everybody on the status port, but for", ""]
    lines[-2] += f" `{INFO.name}`: it names tenants' pods."
    lines[-2] += " The secure port tells it to Prometheus with a token ([operations](operations.md#the-status-port)),"
    lines[-2] += " the status port on loopback, or to everybody with `--open-allocations`."
    lines += ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    lines += [f"| `{s.full_name}` | {s.kind} | {', '.join(s.labels)} | {s.help} |" for s in TABLE]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
