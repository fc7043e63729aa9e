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
    "Pods that hold GPUs, by state: held, binding, bound; kept: for one in a lost member's place, or that waits.",
)
WAITING = Spec("gangshare_waiting_pods", "gauge", (), "Pods that ask for GPUs and have none.")
MEM = Spec("gangshare_gpu_memory_units", "gauge", ("node", "uuid", "index"), "Memory of a GPU, in units.")
MEM_FREE = Spec("gangshare_gpu_memory_free_units", "gauge", ("node", "uuid", "index"), "Memory nobody booked.")
SLICES_FREE = Spec("gangshare_gpu_slices_free", "gauge", ("node", "uuid", "index"), "Time slices nobody booked.")
OFFERED = Spec("gangshare_gpu_offered", "gauge", ("node", "uuid", "index"), "1 if it is healthy and not cordoned.")
INFO = Spec(
    "gangshare_allocation_info",
    "gauge",
    ("namespace", "pod", "container", "UUID", "node", "gpu"),
    "1 for each GPU of each container; join it with dcgm-exporter's metrics by UUID.",
)
VERB_SECONDS = Spec("gangshare_verb_seconds", "histogram", ("verb",), "Time to an answer; bind's has the write.")
DECISIONS = Spec("gangshare_decisions", "counter", ("verb", "code"), "Answers to kube-scheduler, by reason code.")
CONFLICTS = Spec("gangshare_conflicts", "counter", (), "Binds refused since the GPUs were taken after filter.")
WAKES = Spec("gangshare_wakes", "counter", (), "Refused pods brought back to the scheduler since there was room.")
PROBLEMS = Spec(
    "gangshare_problems",
    "counter",
    ("kind",),
    "Wrong things seen: allocations forged, malformed or newer; objects undecodable; effects given up.",
)
FAULTS = Spec(
    "gangshare_faults",
    "counter",
    ("place",),
    "Errors of gangshare's own, caught over an object, by where they happened.",
)
SET_ASIDE = Spec("gangshare_set_aside", "gauge", ("kind",), "Objects set aside after such errors, by kind.")
GANGS = Spec("gangshare_gangs", "gauge", ("phase",), "Gangs by phase.")
GANG_STARTS = Spec(
    "gangshare_gang_starts",
    "counter",
    ("outcome",),
    "Starts of gangs: planned; stuck or upset: given up before any Binding; undone: taken back after some; "
    "preempted: taken away later.",
)
GANG_SECONDS = Spec(
    "gangshare_gang_phase_seconds",
    "histogram",
    ("phase",),
    "Time a gang spent in a phase it has left; Binding lasts from the first Binding until the minimum is bound.",
)
PREEMPTIONS = Spec(
    "gangshare_preemptions",
    "counter",
    ("outcome",),
    "Preemptions: planned; done: who waited came; left, lapsed, changed or unheard: it did not; refused: by a budget.",
)
PREEMPTED = Spec(
    "gangshare_preemption_victims",
    "counter",
    ("kind", "by"),
    "Evicted pods: pod, gang, or spare in a gang; by priority in their queue, or by share for another.",
)
LOST = Spec(
    "gangshare_preemption_lost_gpu_seconds",
    "counter",
    (),
    "GPU-seconds that evicted pods had run since their start or last checkpoint.",
)
SCALE_INS = Spec(
    "gangshare_scale_ins",
    "counter",
    ("outcome",),
    "ScaleIns of elastic jobs: created; done, failed: as their operator says; overdue: workers were evicted after all; "
    "ignored: the job has too many.",
)
SCALE_OUTS = Spec(
    "gangshare_scale_outs",
    "counter",
    ("outcome",),
    "ScaleOuts of elastic jobs: created; done, failed: as their operator says; ignored: the job has too many.",
)
LEFT = Spec(
    "gangshare_leaving_evictions",
    "counter",
    ("kind",),
    "Pods evicted from nodes that are about to go: spare in their gang; overdue: a ScaleIn came to nothing; restart: "
    "their gang starts anew.",
)
QUEUE_DESERVED = Spec("gangshare_queue_deserved_gpus", "gauge", ("queue",), "GPUs that are due to a queue.")
QUEUE_ALLOCATED = Spec("gangshare_queue_allocated_gpus", "gauge", ("queue",), "GPUs that its pods have.")
QUEUE_REQUESTED = Spec("gangshare_queue_requested_gpus", "gauge", ("queue",), "Those, and what its pods wait for.")
QUEUE_SHARE = Spec("gangshare_queue_share", "gauge", ("queue",), "How much of its due a queue has; 1 is all of it.")
QUEUE_OVER = Spec(
    "gangshare_queue_over_capability", "gauge", ("queue",), "1 if pods of a queue have more than its capability."
)
QUEUE_PODS = Spec("gangshare_queue_pods", "gauge", ("queue", "state"), "Pods of a queue and below: waiting, running.")
LISTS = Spec("gangshare_lists", "counter", ("path",), "Complete lists read; a second one: the watch was lost.")
WATCHING = Spec("gangshare_watching", "gauge", ("path",), "1 while a collection is followed without trouble.")
LEADER = Spec("gangshare_leader", "gauge", (), "1 while this process may write.")
REPLAY = Spec("gangshare_replay_seconds", "gauge", (), "Time from the start until all pods and nodes were read.")
LAG = Spec("gangshare_loop_lag_seconds", "histogram", (), "How late the event loop came round.")
STEPS = Spec(
    "gangshare_loop_step_seconds",
    "histogram",
    ("step",),
    "How long the event loop was held at a time: by event, answer, part of a tick, slice of planning, collection.",
)
VIOLATIONS = Spec("gangshare_invariant_violations", "gauge", (), "What the last check of the books found wrong.")

TABLE = (
    BOOKINGS, WAITING, MEM, MEM_FREE, SLICES_FREE, OFFERED, INFO, VERB_SECONDS, DECISIONS, CONFLICTS, WAKES, PROBLEMS,
    FAULTS, SET_ASIDE, GANGS, GANG_STARTS, GANG_SECONDS, PREEMPTIONS, PREEMPTED, LOST, SCALE_INS, SCALE_OUTS, LEFT,
    QUEUE_DESERVED, QUEUE_ALLOCATED, QUEUE_REQUESTED, QUEUE_SHARE, QUEUE_OVER, QUEUE_PODS,
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
        self.problems: Counts[str] = Counts()
        """Problems that the shell meets, by kind; the engine counts its own."""
        self.faults = Faults()
        """Errors that the shell catches; the engine counts its own."""
        self.steps = Steps()
        self.registry.register(_Engine(engine_counters, self.problems, self.faults.counted))
        self.registry.register(_Loop(self.steps))

    def _gauge(self, spec: Spec) -> Gauge:
        return Gauge(spec.name, spec.help, spec.labels, registry=self.registry)

    def _histogram(self, spec: Spec, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(spec.name, spec.help, spec.labels, buckets=buckets, registry=self.registry)


class _Engine(Collector):
    """The engine's counters, read when asked."""

    def __init__(
        self, counters: Mapping[tuple[str, str], int], problems: Mapping[str, int], faults: Mapping[str, int]
    ) -> None:
        self._counters, self._problems, self._faults = counters, problems, faults

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(CONFLICTS.name, CONFLICTS.help, self._counters.get(("conflicts", ""), 0))
        yield CounterMetricFamily(WAKES.name, WAKES.help, self._counters.get(("wakes", ""), 0))
        yield _family(PROBLEMS, Counts(self._problems) + self._of("problems"))
        yield _family(FAULTS, Counts(self._faults) + self._of("faults"))
        yield _family(GANG_STARTS, self._of("gang_starts"))
        yield _family(PREEMPTIONS, self._of("preemptions"))
        yield _family(PREEMPTED, self._of("preemption_victims"))
        yield _family(SCALE_INS, self._of("scale_ins"))
        yield _family(SCALE_OUTS, self._of("scale_outs"))
        yield _family(LEFT, self._of("leaving_evictions"))
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
