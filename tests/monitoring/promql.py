"""Queries that several dashboards ask."""

from __future__ import annotations

NODE, QUEUE, NAMESPACE = 'node=~"$node"', 'queue=~"$queue"', 'namespace=~"$namespace"'
GPU = ("node", "gpu", "UUID")
"""The labels that name a GPU."""


def led(metric: str, *by: str, where: str = "") -> str:
    """The gauge as the leading extender tells it; the other replicas serve it too."""
    leading = "and on (instance) gangshare_leader == 1"
    return f"max{_by(by)} ({metric}{_where(where)} {leading})"


def measured(metric: str, *by: str, where: str = "") -> str:
    """The sum of a gauge or counter of plugins or measuring processes."""
    return f"sum{_by(by)} ({metric}{_where(where)})"


def added(counter: str, *by: str, where: str = "", over: str = "$__rate_interval") -> str:
    """What was counted, by all replicas, in each step of the picture or `over` a time."""
    return f"sum{_by(by)} (increase({counter}{_where(where)}[{over}]))"


def per_second(counter: str, *by: str, where: str = "") -> str:
    """How often something was counted in a second."""
    return f"sum{_by(by)} (rate({counter}{_where(where)}[$__rate_interval]))"


def quantile(part: float, histogram: str, *by: str, where: str = "") -> str:
    """What this part of the observations of a histogram did not exceed."""
    return f"histogram_quantile({part}, {per_second(f'{histogram}_bucket', 'le', *by, where=where)})"


def gpus(where: str = "") -> str:
    """The GPUs that are offered, by node, GPU and model."""
    return f"({led('gangshare_gpu_offered', *GPU, 'model', where=where)} == 1)"


def of_offered(metric: str, where: str = "") -> str:
    """A gauge of those GPUs, with their model."""
    gauge = led(metric, *GPU, where=where)
    return f"({gauge} * on ({', '.join(GPU)}) group_right () {gpus(where)})"


def _by(labels: tuple[str, ...]) -> str:
    return f" by ({', '.join(labels)})" if labels else ""


def _where(conditions: str) -> str:
    return f"{{{conditions}}}" if conditions else ""
