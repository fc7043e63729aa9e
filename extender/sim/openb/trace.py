"""The node and pod lists of the trace, read from CSV."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from extender.sim.table import Row, TraceError, read
from protos.contract import bounds

MILLI = 1000
"""Thousandths that make one GPU."""
MOST_GPUS = bounds.GPUS_PER_NODE.most
"""Limit for the GPUs of one node, and of one pod."""
MOST_MODELS = bounds.GLOBS.most
"""Limit for the models that one pod accepts."""
MODEL = re.compile(r"[A-Z0-9][A-Z0-9._-]{0,62}")
MODELS = "GPU models of letters, digits and . _ -, at most 63 characters each"
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
SPEC_COLUMN = "gpu_spec"
"""Some of the published pod lists have no such column: their pods accept every model."""


class Node(msgspec.Struct, frozen=True):
    """A node of the cluster."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


class Spec(msgspec.Struct, frozen=True, cache_hash=True, order=True):
    """The resources that a pod requests. Pods of equal specs fit the same nodes."""

    cpu_milli: int
    memory_mib: int
    gpus: int
    milli: int
    """Of each GPU: less than 1000 only for one GPU, 0 without GPUs."""
    models: tuple[str, ...] = ()
    """Accepted GPU models; empty: any."""

    @property
    def gpu_milli(self) -> int:
        """Of all GPUs together."""
        return self.gpus * self.milli


class Pod(msgspec.Struct, frozen=True):
    """A pod of the list."""

    name: str
    spec: Spec


def capacity(nodes: Sequence[Node]) -> int:
    """GPU milli of all nodes."""
    return sum(node.gpus for node in nodes) * MILLI


def read_nodes(path: Path) -> list[Node]:
    """The nodes in the order of the list; raises TraceError, also for a list without GPUs."""
    nodes = read(path, NODE_COLUMNS, _node)
    if not capacity(nodes):
        raise TraceError(f"{path}: 0 GPUs in all: expected a node with GPUs")
    return nodes


def read_pods(path: Path) -> list[Pod]:
    """The pods in the order of the list; raises TraceError, also if no pod requests a GPU."""
    pods = read(path, POD_COLUMNS, _pod)
    if not any(pod.spec.gpus for pod in pods):
        raise TraceError(f"{path}: no pod requests a GPU: expected at least one that does")
    return pods


def _node(row: Row) -> Node:
    gpus, model = row.number("gpu", most=MOST_GPUS), row.text("model").upper()
    if gpus and not model:
        raise row.wrong("model", "the GPU model of a node with GPUs")
    if model and not MODEL.fullmatch(model):
        raise row.wrong("model", MODELS)
    return Node(row.text("sn"), row.number("cpu_milli"), row.number("memory_mib"), gpus, model)


def _pod(row: Row) -> Pod:
    gpus = row.number("num_gpu", most=MOST_GPUS)
    least = 0 if not gpus else 1 if gpus == 1 else MILLI
    milli = row.number("gpu_milli", least=least, most=MILLI if gpus else 0)
    models = tuple(row.text(SPEC_COLUMN).upper().split("|")) if row.text(SPEC_COLUMN) else ()
    if len(models) > MOST_MODELS or not all(map(MODEL.fullmatch, models)):
        raise row.wrong(SPEC_COLUMN, f"at most {MOST_MODELS} {MODELS}, joined by |")
    return Pod(row.text("name"), Spec(row.number("cpu_milli"), row.number("memory_mib"), gpus, milli, models))
