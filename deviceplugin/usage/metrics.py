"""The metrics of the measuring process: `TABLE` names all of them. docs/metrics.md is made from the table.

Series are made of the last measurement at each scrape, so those of a pod end with it.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Literal, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from deviceplugin.usage.accounting import Owner, Time
from protos.contract import mig
from protos.contract.measured import Use


class Spec(NamedTuple):
    """One metric. A counter's name is without its `_total`."""

    kind: Literal["counter", "gauge"]
    name: str
    labels: tuple[str, ...]
    help: str


_counter, _gauge = partial(Spec, "counter"), partial(Spec, "gauge")
_CONTAINER = ("node", "namespace", "pod", "container", "UUID", "gpu", "model", "queue", "level")
_OWNER = ("node", "namespace", "queue", "owner")

USED = _gauge(
    "gangshare_container_gpu_memory_used_bytes",
    _CONTAINER,
    "GPU memory that a container uses, in bytes; container `-`: processes in no container of a known pod.",
)
PROMISED = _gauge(
    "gangshare_container_gpu_memory_promised_bytes", _CONTAINER, "GPU memory that a container was promised, in bytes."
)
SM = _gauge(
    "gangshare_container_gpu_sm_utilization_ratio",
    _CONTAINER,
    "Part of the GPU's SM time that a container took in the last period, 0 to 1; missing where the driver does not "
    "tell it.",
)
IDLE = _gauge(
    "gangshare_container_gpu_idle_seconds",
    _CONTAINER,
    "Seconds since a container last did something on the GPU, as far as this process has seen.",
)
ENFORCED = _gauge(
    "gangshare_container_gpu_enforced",
    _CONTAINER,
    "1 if the container cannot use more GPU memory than it was promised, 0 if it can.",
)
PROMISED_SECONDS = _counter(
    "gangshare_promised_gpu_seconds", _OWNER, "GPU-seconds that pods were promised, parts of GPUs counted as such."
)
MEMORY_SECONDS = _counter(
    "gangshare_memory_used_gpu_seconds", _OWNER, "GPU-seconds that pods used, by the part of the GPU's memory."
)
SM_SECONDS = _counter(
    "gangshare_sm_used_gpu_seconds",
    _OWNER,
    "GPU-seconds that pods used, by the part of the GPU's SM time; missing where the driver does not tell it.",
)
READABLE = _gauge("gangshare_usage_gpu_readable", ("node", "UUID", "gpu"), "1 if the driver told the GPU's processes.")
AGE = _gauge("gangshare_usage_age_seconds", ("node",), "Seconds since the last measurement.")
EVENTS = _counter(
    "gangshare_usage_events", ("node",), "Events about containers that use more than they were promised, or are idle."
)

TABLE = (
    USED, PROMISED, SM, IDLE, ENFORCED, PROMISED_SECONDS, MEMORY_SECONDS, SM_SECONDS, READABLE, AGE, EVENTS,
)  # fmt: skip


class Measured(NamedTuple):
    """What the metrics show."""

    node: str
    uses: tuple[Use, ...] = ()
    times: Mapping[Owner, Time] = MappingProxyType({})
    readable: tuple[tuple[str, int, bool], ...] = ()
    """UUID, index, and whether it was read, of each GPU."""
    age: float = 0.0
    events: int = 0


class Metrics(Collector):
    """Reads the last measurement at each scrape."""

    def __init__(self, measured: Callable[[], Measured]) -> None:
        self._measured = measured
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        now = self._measured()
        yield from _of_containers(now)
        yield from _of_owners(now)
        readable = _family(READABLE)
        for uuid, index, read in now.readable:
            readable.add_metric((now.node, uuid, mig.shown(index)), int(read))
        yield readable
        age, events = _family(AGE), _family(EVENTS)
        age.add_metric((now.node,), now.age)
        events.add_metric((now.node,), now.events)
        yield from (age, events)


def _family(spec: Spec) -> GaugeMetricFamily | CounterMetricFamily:
    kind = CounterMetricFamily if spec.kind == "counter" else GaugeMetricFamily
    return kind(spec.name, spec.help, labels=spec.labels)


def _of_containers(now: Measured) -> Iterator[Metric]:
    used, promised, sm, idle, enforced = (_family(spec) for spec in (USED, PROMISED, SM, IDLE, ENFORCED))
    for use in now.uses:
        named = (use.namespace, use.pod, use.container, use.uuid, mig.shown(use.gpu), use.model, use.queue, use.level)
        labels = (now.node, *named)
        for family, value in ((used, use.used), (sm, use.sm), (idle, use.idle)):
            if value is not None:
                family.add_metric(labels, value)
        if use.level:
            promised.add_metric(labels, use.promised)
            enforced.add_metric(labels, int(use.enforced))
    yield from (used, promised, sm, idle, enforced)


def _of_owners(now: Measured) -> Iterator[Metric]:
    promised, memory, sm = (_family(spec) for spec in (PROMISED_SECONDS, MEMORY_SECONDS, SM_SECONDS))
    for owner, time in now.times.items():
        labels = (now.node, *owner)
        promised.add_metric(labels, time.promised)
        memory.add_metric(labels, time.memory)
        if time.sm is not None:
            sm.add_metric(labels, time.sm)
    yield from (promised, memory, sm)
