"""The node and pod lists of the trace, read from CSV; what cannot be read is named with its file and line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from extender.sim.table import Row, TraceError, read

MILLI = 1000
"""Thousandths that make one GPU."""
MOST_GPUS = 1024
"""GPUs of one node, or of one pod."""
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec")


class Node(msgspec.Struct, frozen=True):
    """A node of the cluster."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


class Spec(msgspec.Struct, frozen=True, cache_hash=True):
    """What a pod asks. Pods of equal specs fit the same nodes."""

    cpu_milli: int
    memory_mib: int
    gpus: int
    milli: int
    """Of each of its GPUs; less than 1000 only where it asks one, 0 where it asks none."""
    models: tuple[str, ...] = ()
    """GPU models that it accepts; empty: any."""

    @property
    def gpu_milli(self) -> int:
        """Of all its GPUs."""
        return self.gpus * self.milli


class Pod(msgspec.Struct, frozen=True):
    """A pod of the list."""

    name: str
    spec: Spec


def capacity(nodes: Sequence[Node]) -> int:
    """GPU milli of all nodes."""
    return sum(node.gpus for node in nodes) * MILLI


def read_nodes(path: Path) -> list[Node]:
    """The nodes of a list in its order; raises TraceError, also where none of them has a GPU."""
    nodes = read(path, NODE_COLUMNS, _node)
    if not capacity(nodes):
        raise TraceError(f"{path}: 0 GPUs in all: expected a node with GPUs")
    return nodes


def read_pods(path: Path) -> list[Pod]:
    """The pods of a list in its order; raises TraceError, also where none of them asks for a GPU."""
    pods = read(path, POD_COLUMNS, _pod)
    if not any(pod.spec.gpus for pod in pods):
        raise TraceError(f"{path}: no pod asks for a GPU: expected one that does")
    return pods


def _node(row: Row) -> Node:
    gpus = row.number("gpu", most=MOST_GPUS)
    if gpus and not row.text("model"):
        raise row.wrong("model", "the GPU model of a node with GPUs")
    return Node(row.text("sn"), row.number("cpu_milli"), row.number("memory_mib"), gpus, row.text("model"))


def _pod(row: Row) -> Pod:
    gpus = row.number("num_gpu", most=MOST_GPUS)
    least = 0 if not gpus else 1 if gpus == 1 else MILLI
    milli = row.number("gpu_milli", least=least, most=MILLI if gpus else 0)
    models = tuple(row.text("gpu_spec").split("|")) if row.text("gpu_spec") else ()
    if not all(models):
        raise row.wrong("gpu_spec", "GPU models joined by |")
    return Pod(row.text("name"), Spec(row.number("cpu_milli"), row.number("memory_mib"), gpus, milli, models))
