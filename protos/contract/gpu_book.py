"""The book of one GPU: its usage, and whether a demand fits."""

from __future__ import annotations

from collections.abc import Iterable

from protos.contract import inventory as inv
from protos.contract.ask import ContainerAsk, Demand


class GpuBook:
    """The usage of one GPU in units and slices; `wholes` and `sharers` count pods."""

    __slots__ = (
        "blocked",
        "cordoned",
        "cut",
        "divisible",
        "gpu",
        "mem_used",
        "sharers",
        "slices_per_gpu",
        "slices_used",
        "wholes",
    )

    def __init__(self, gpu: inv.Gpu, slices_per_gpu: int, cordoned: bool = False) -> None:
        """`slices_per_gpu`: of this GPU; a MIG instance has fewer than its GPU."""
        self.gpu = gpu
        self.slices_per_gpu = slices_per_gpu
        self.cordoned = cordoned
        self.mem_used = self.slices_used = self.wholes = self.sharers = 0
        self.blocked = 0
        """Pods that have instances with which this possible MIG instance cannot exist."""
        self.divisible = False
        """MIG instances are made of this GPU on demand, and it is well."""
        self.cut = 0
        """Compute slices, of seven, of the instances on demand that pods have of this GPU."""

    def copy(self) -> GpuBook:
        twin = GpuBook(self.gpu, self.slices_per_gpu, self.cordoned)
        twin.mem_used, twin.slices_used = self.mem_used, self.slices_used
        twin.wholes, twin.sharers = self.wholes, self.sharers
        twin.blocked, twin.cut, twin.divisible = self.blocked, self.cut, self.divisible
        return twin

    def add(self, demand: Demand, sign: int = 1) -> None:
        if demand.whole:
            self.wholes += sign
        else:
            self.sharers += sign
        self.mem_used += sign * demand.mem
        self.slices_used += sign * demand.slices

    def fits(self, demand: Demand) -> bool:
        if self.wholes or self.blocked:
            return False
        if demand.whole:
            return not self.sharers
        return self.mem_used + demand.mem <= self.gpu.mem and self.slices_used + demand.slices <= self.slices_per_gpu

    @property
    def offered(self) -> bool:
        """Whether new pods may get this GPU."""
        return self.gpu.health == inv.HEALTHY and not self.cordoned

    @property
    def idle(self) -> bool:
        """Whether the GPU is offered and no pod uses it."""
        return not (self.sharers or self.wholes or self.blocked) and self.offered

    @property
    def mem_free(self) -> int:
        free = self.gpu.mem - self.mem_used
        return free if free > 0 and not self.blocked else 0

    @property
    def slices_free(self) -> int:
        free = self.slices_per_gpu - self.slices_used
        return free if free > 0 else 0

    @property
    def allocated(self) -> float:
        """The part of the GPU that pods have: the larger of memory and slices. Above 1 if it is overused."""
        of_memory = self.mem_used / self.gpu.mem if self.gpu.mem else 0.0
        return max(of_memory, self.slices_used / self.slices_per_gpu, float(self.wholes))

    @property
    def overused(self) -> bool:
        return (
            self.mem_used > self.gpu.mem
            or self.slices_used > self.slices_per_gpu
            or self.wholes > 1
            or bool(self.wholes and (self.sharers or self.blocked))
        )


def peak(parts: Iterable[tuple[ContainerAsk, Demand]]) -> Demand:
    """The peak usage of one GPU by the containers of one pod, which come in the kubelet's order.

    It is max(init, apps + sidecars); an init container runs beside the sidecars that are declared before it.
    Source: KEP-753, PodRequests of k8s.io/component-helpers/resource.
    """
    mem = slices = side_mem = side_slices = app_mem = app_slices = 0
    whole = False
    for ask, demand in parts:
        whole = whole or demand.whole
        if ask.kind == "app":
            app_mem += demand.mem
            app_slices += demand.slices
            continue
        mem = max(mem, side_mem + demand.mem)
        slices = max(slices, side_slices + demand.slices)
        if ask.kind == "sidecar":
            side_mem += demand.mem
            side_slices += demand.slices
    return Demand(max(mem, side_mem + app_mem), max(slices, side_slices + app_slices), whole)
