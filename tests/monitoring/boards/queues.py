"""Queues: what each is due, has and asks."""

from __future__ import annotations

from tests.monitoring.grafana import Dashboard, Query, Variable, panel
from tests.monitoring.promql import QUEUE, added, led


def _of(metric: str) -> str:
    return led(metric, "queue", where=QUEUE)


def _pods(state: str) -> str:
    return led("gangshare_queue_pods", "queue", where=f'{QUEUE}, state="{state}"')


_LEGEND = "{{queue}}"

BOARD = Dashboard(
    file="queues",
    title="Gangshare / Queues",
    help="Fair shares, allocated and requested GPUs of queues, and who waits in them.",
    variables=(Variable("queue", "Queue", "gangshare_queue_fair_share_gpus"),),
    panels=(
        panel(
            "table",
            "Queues",
            [
                Query(_of("gangshare_queue_fair_share_gpus"), "Fair share"),
                Query(_of("gangshare_queue_allocated_gpus"), "Allocated"),
                Query(_of("gangshare_queue_requested_gpus"), "Requested"),
                Query(_of("gangshare_queue_share_ratio"), "Allocated / fair share", "percentunit"),
                Query(_pods("waiting"), "Pods waiting"),
                Query(_pods("running"), "Pods running"),
                Query(_of("gangshare_queue_over_capability"), "Over capability", "bool_yes_no"),
            ],
            "In GPUs; parts of GPUs count as parts. A queue counts what is in the queues below it.",
            width=24,
        ),
        panel(
            "timeseries",
            "GPUs allocated",
            [Query(_of("gangshare_queue_allocated_gpus"), _LEGEND)],
            "GPUs of bound pods.",
        ),
        panel(
            "timeseries",
            "Fair share",
            [Query(_of("gangshare_queue_fair_share_gpus"), _LEGEND)],
            "What a queue is due of the GPUs now, by weights, guarantees and requests.",
        ),
        panel(
            "timeseries",
            "GPUs requested",
            [Query(_of("gangshare_queue_requested_gpus"), _LEGEND)],
            "GPUs of bound pods, and of pending pods that some node could take.",
        ),
        panel(
            "timeseries",
            "Allocated / fair share",
            [Query(_of("gangshare_queue_share_ratio"), _LEGEND)],
            "Above 100 %: the queue borrows. The queue with the least of its share goes first.",
            unit="percentunit",
        ),
        panel("timeseries", "Pods waiting", [Query(_pods("waiting"), _LEGEND)], "Pending pods of the queue."),
        panel("timeseries", "Pods running", [Query(_pods("running"), _LEGEND)], "Bound pods of the queue."),
        panel(
            "timeseries",
            "Pods reclaimed from borrowing queues",
            [Query(added("gangshare_preemption_victims_total", "kind", where='by="share"'), "{{kind}}")],
            "Pods that were preempted because another queue had less than its share.",
            width=12,
        ),
        panel(
            "timeseries",
            "Pods preempted by priority in their queue",
            [Query(added("gangshare_preemption_victims_total", "kind", where='by="priority"'), "{{kind}}")],
            "gang: its members; spare: surplus members of a gang that goes on.",
            width=12,
        ),
    ),
)
