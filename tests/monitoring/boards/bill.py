"""What tenants got and used, in GPU-hours, and what it costs."""

from __future__ import annotations

from tests.monitoring.grafana import Dashboard, Query, Variable, panel
from tests.monitoring.promql import NAMESPACE, QUEUE, added, measured, per_second

_WHERE = f"{NAMESPACE}, {QUEUE}"
_OWNER = ("namespace", "queue", "owner")
_CONTAINER = ("namespace", "queue", "pod", "container", "node", "gpu")
_PROMISED, _MEMORY, _SM = (f"gangshare_{what}_gpu_seconds_total" for what in ("promised", "memory_used", "sm_used"))
_USED, _OF = "gangshare_container_gpu_memory_used_bytes", "gangshare_container_gpu_memory_promised_bytes"


def _hours(counter: str, *by: str) -> str:
    return f"{added(counter, *by, where=_WHERE, over='$__range')} / 3600"


def _of_container(metric: str) -> str:
    return measured(metric, *_CONTAINER, where=_WHERE)


BOARD = Dashboard(
    file="bill",
    title="Gangshare / Bill",
    help="GPU-hours that tenants were promised and used in the chosen time, and their price.",
    variables=(
        Variable("namespace", "Namespace", _PROMISED),
        Variable("queue", "Queue", _PROMISED),
        Variable("price", "Price of a GPU-hour", text="1"),
    ),
    needs=("usage",),
    panels=(
        panel(
            "stat", "GPU-hours", _hours(_PROMISED), "What pods were promised; parts of GPUs count as parts.", width=6
        ),
        panel("stat", "Price", f"{_hours(_PROMISED)} * $price", "GPU-hours times the price of one.", width=6),
        panel(
            "stat",
            "Memory used",
            f"{_hours(_MEMORY)} / ({_hours(_PROMISED)})",
            "GPU-hours used, by memory, of those promised.",
            unit="percentunit",
            width=6,
        ),
        panel(
            "stat",
            "SM time used",
            f"{_hours(_SM)} / ({_hours(_PROMISED)})",
            "GPU-hours used, by SM time, of those promised. GPUs that tell no SM time count as unused.",
            unit="percentunit",
            width=6,
        ),
        panel(
            "table",
            "Bill",
            [
                Query(_hours(_PROMISED, *_OWNER), "GPU-hours"),
                Query(f"{_hours(_PROMISED, *_OWNER)} * $price", "Price"),
                Query(_hours(_MEMORY, *_OWNER), "Used by memory"),
                Query(_hours(_SM, *_OWNER), "Used by SM time"),
            ],
            "By namespace, queue and controller of the pods.",
            width=24,
        ),
        panel(
            "timeseries",
            "GPUs by namespace",
            [Query(per_second(_PROMISED, "namespace", where=_WHERE), "{{namespace}}")],
            "GPUs that pods were promised.",
        ),
        panel(
            "timeseries",
            "GPUs by queue",
            [Query(per_second(_PROMISED, "queue", where=_WHERE), "{{queue}}")],
            "The queue that pods name themselves; empty for others.",
        ),
        panel(
            "timeseries",
            "GPUs promised and used",
            [
                Query(per_second(_PROMISED, where=_WHERE), "promised"),
                Query(per_second(_MEMORY, where=_WHERE), "used by memory"),
                Query(per_second(_SM, where=_WHERE), "used by SM time"),
            ],
            "The distance is what tenants hold and do not use.",
        ),
        panel(
            "table",
            "Most memory over promise",
            [Query(f"topk(20, {_of_container(_USED)} - {_of_container(_OF)})", "Over promise", "bytes")],
            "Below 0: the container uses less than it was promised.",
            width=12,
        ),
        panel(
            "table",
            "Longest idle",
            [Query(f"topk(20, {_of_container('gangshare_container_gpu_idle_seconds')})", "Idle", "s")],
            "Time since the container last did something on its GPU.",
            width=12,
        ),
    ),
)
