"""The recorded pods of the openb trace, in order of arrival, and who leaves before each of them arrives."""

from __future__ import annotations

import csv
import heapq
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import NamedTuple

DATA = resources.files("extender.sim") / "data" / "openb_pods.csv"


class Recorded(NamedTuple):
    """One pod of the trace. `share_milli` is its part of one GPU in thousandths; whole GPUs say 1000."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    share_milli: int
    arrives: int
    leaves: int


class Step(NamedTuple):
    """One arrival: first these leave, then this one comes."""

    leave: tuple[str, ...]
    arrive: Recorded


def recorded() -> list[Recorded]:
    """All pods of the sample, in order of arrival."""
    with DATA.open(encoding="utf-8") as file:
        pods = [
            Recorded(
                name=row["name"],
                cpu_milli=int(row["cpu_milli"]),
                memory_mib=int(row["memory_mib"]),
                gpus=int(row["num_gpu"]),
                share_milli=int(row["gpu_milli"]),
                arrives=int(row["creation_time"]),
                leaves=int(row["deletion_time"]),
            )
            for row in csv.DictReader(file)
        ]
    return sorted(pods, key=lambda pod: pod.arrives)


def steps(pods: Sequence[Recorded], stretch: int) -> Iterator[Step]:
    """The arrivals in order, each with those who have left since the one before; lives are stretched by that factor."""
    leaving: list[tuple[int, str]] = []
    for pod in pods:
        gone = []
        while leaving and leaving[0][0] <= pod.arrives:
            gone.append(heapq.heappop(leaving)[1])
        yield Step(tuple(gone), pod)
        heapq.heappush(leaving, (_leaves(pod, stretch), pod.name))


def remaining(pods: Sequence[Recorded], stretch: int) -> list[str]:
    """The pods that have not left when the last has arrived, first to leave first."""
    last = max((pod.arrives for pod in pods), default=0)
    leaving = sorted((_leaves(pod, stretch), pod.name) for pod in pods)
    return [name for leaves, name in leaving if leaves > last]


def _leaves(pod: Recorded, stretch: int) -> int:
    return pod.arrives + stretch * (pod.leaves - pod.arrives)
