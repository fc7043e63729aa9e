"""One node, or some: its GPUs, the containers on them, and the plugin."""

from __future__ import annotations

from tests.monitoring.grafana import Dashboard, Query, Variable, panel
from tests.monitoring.promql import GPU, NODE, added, gpus, led, measured, of_offered, quantile

_CONTAINER = ("node", "gpu", "namespace", "pod", "container", "level")
_LEGEND = "{{node}} GPU {{gpu}}"
_ALLOCATED = of_offered("gangshare_gpu_allocated_ratio", NODE)


def _of_gpu(metric: str) -> str:
    return led(metric, *GPU, where=NODE)


def _of_container(metric: str) -> str:
    return measured(metric, *_CONTAINER, where=NODE)


BOARD = Dashboard(
    file="node",
    title="Gangshare / Node",
    help="GPUs of nodes, the containers on them, and the device plugin.",
    variables=(Variable("node", "Node", "gangshare_gpu_offered"),),
    panels=(
        panel("stat", "GPUs", f"count({gpus(NODE)})", "GPUs that are healthy and not cordoned.", width=6),
        panel("stat", "GPUs allocated", f"sum({_ALLOCATED})", "Parts of GPUs count as parts.", width=6),
        panel(
            "stat",
            "Memory free",
            f"sum({of_offered('gangshare_gpu_memory_free_bytes', NODE)})",
            "GPU memory that pods can still request here.",
            unit="bytes",
            width=6,
        ),
        panel(
            "stat",
            "Containers with GPUs",
            f"count({_of_container('gangshare_container_gpu_memory_promised_bytes')})",
            "Needs the component usage; so do all panels about what containers use.",
            width=6,
        ),
        panel(
            "bargauge",
            "GPUs allocated",
            [Query(_of_gpu("gangshare_gpu_allocated_ratio"), _LEGEND)],
            "The larger part of memory and time slices; 100 % for a whole GPU.",
            unit="percentunit",
            most=1,
        ),
        panel(
            "timeseries",
            "GPU memory used",
            [Query(measured("gangshare_container_gpu_memory_used_bytes", "node", "gpu", where=NODE), _LEGEND)],
            "By the containers of each GPU, as the driver tells it.",
            unit="bytes",
        ),
        panel(
            "timeseries",
            "SM utilization",
            [Query(measured("gangshare_container_gpu_sm_utilization_ratio", "node", "gpu", where=NODE), _LEGEND)],
            "SM time of the containers of each GPU.",
            unit="percentunit",
        ),
        panel(
            "table",
            "GPUs",
            [
                Query(_of_gpu("gangshare_gpu_memory_bytes"), "Memory", "bytes"),
                Query(_of_gpu("gangshare_gpu_memory_free_bytes"), "Memory free", "bytes"),
                Query(_of_gpu("gangshare_gpu_slices_free"), "Slices free"),
                Query(led("gangshare_gpu_offered", *GPU, where=NODE), "Offered", "bool_yes_no"),
            ],
            "Offered: healthy and not cordoned.",
            width=12,
        ),
        panel(
            "table",
            "Containers",
            [
                Query(_of_container("gangshare_container_gpu_memory_promised_bytes"), "Promised", "bytes"),
                Query(_of_container("gangshare_container_gpu_memory_used_bytes"), "Used", "bytes"),
                Query(_of_container("gangshare_container_gpu_sm_utilization_ratio"), "SM", "percentunit"),
                Query(_of_container("gangshare_container_gpu_idle_seconds"), "Idle", "s"),
                Query(_of_container("gangshare_container_gpu_enforced"), "Memory enforced", "bool_yes_no"),
            ],
            "A row without a pod is what processes use that are in no container of a known pod.",
            width=12,
        ),
        panel(
            "table",
            "Isolation",
            [
                Query(
                    led("gangshare_node_isolation", "node", "memory", "compute", where=NODE), "Published", "bool_yes_no"
                )
            ],
            "The level at which nodes isolate parts of GPUs. Nodes that are not listed promise both.",
        ),
        panel(
            "table",
            "GPUs by health",
            [Query(measured("gangshare_plugin_gpus", "node", "health", where=NODE), "GPUs")],
            "As the plugin tells it; mig: in MIG mode.",
        ),
        panel(
            "table",
            "Registered with the kubelet",
            [
                Query(
                    measured("gangshare_plugin_registered", "node", "resource", where=NODE), "Registered", "bool_yes_no"
                )
            ],
            "No: the kubelet does not follow the plugin's devices, so no pod with this resource starts.",
        ),
        panel(
            "timeseries",
            "Time of Allocate",
            [Query(quantile(0.99, "gangshare_plugin_allocate_seconds", "node", where=NODE), "{{node}}")],
            "99th percentile, from the kubelet's call to the plugin's answer.",
            unit="s",
        ),
        panel(
            "timeseries",
            "Pods given GPUs",
            [Query(added("gangshare_plugin_placements_total", "how", where=NODE), "{{how}}")],
            "By how the GPUs were chosen; annotated: as the extender decided.",
        ),
        panel(
            "timeseries",
            "Allocate calls refused",
            [Query(added("gangshare_plugin_refusals_total", "reason", where=NODE), "{{reason}}")],
            "docs/refusals.md explains each reason.",
        ),
    ),
)
