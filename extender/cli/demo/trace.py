"""The recorded pods of the openb trace in order of arrival, and the pods that leave before each arrival."""

from __future__ import annotations

import csv
import heapq
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import NamedTuple

import msgspec

DATA = resources.files("extender.sim") / "data" / "openb_pods.csv"
COLUMNS = {"gpus": "num_gpu", "share_milli": "gpu_milli", "arrives": "creation_time", "leaves": "deletion_time"}


class Recorded(msgspec.Struct, frozen=True, rename=COLUMNS):
    """A pod of the trace. `share_milli` is its share of one GPU in thousandths: 1000 for whole GPUs."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    share_milli: int
    arrives: int
    leaves: int


class Step(NamedTuple):
    """An arrival, and the pods that leave before it."""

    leave: tuple[str, ...]
    arrive: Recorded


def recorded() -> list[Recorded]:
    """All pods of the sample, in order of arrival."""
    with DATA.open(encoding="utf-8") as file:
        pods = msgspec.convert(list(csv.DictReader(file)), list[Recorded], strict=False)
    return sorted(pods, key=lambda pod: pod.arrives)


def steps(pods: Sequence[Recorded], stretch: int) -> Iterator[Step]:
    """The arrivals in order, each with the pods that leave since the one before. Pods live `stretch` times as long."""
    leaving: list[tuple[int, str]] = []
    for pod in pods:
        gone = []
        while leaving and leaving[0][0] <= pod.arrives:
            gone.append(heapq.heappop(leaving)[1])
        yield Step(tuple(gone), pod)
        heapq.heappush(leaving, (_leaves(pod, stretch), pod.name))


def remaining(pods: Sequence[Recorded], stretch: int) -> list[str]:
    """The pods that stay beyond the last arrival, in the order in which they leave."""
    last = max((pod.arrives for pod in pods), default=0)
    leaving = sorted((_leaves(pod, stretch), pod.name) for pod in pods)
    return [name for leaves, name in leaving if leaves > last]


def _leaves(pod: Recorded, stretch: int) -> int:
    return pod.arrives + stretch * (pod.leaves - pod.arrives)
