"""Why a node does not take a pod, in a few words for people, who see the nodes counted by reason.

The decisions do not depend on it. Whether the GPUs of a node suffice is known by the indexes; this names what is short.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from extender.engine.state import intree
from extender.engine.state.intree import Amounts, Constraints
from extender.engine.state.node_state import NodeState
from protos.contract.ask import ContainerAsk, Demand, PodAsk
from protos.contract.books import NodeBooks
from protos.contract.gpu_book import GpuBook
from protos.contract.inventory import HEALTHY, IN_MIG_MODE, Gpu
from protos.contract.links import EXACT
from protos.contract.printable import brief
from protos.contract.selection import Selection, capability, matches
from protos.contract.served import lack
from protos.contract.signature import Signature

LONGEST_MODEL = 60
"""Characters of a model's name."""
PASSING = (intree.UNSCHEDULABLE,)
"""What keeps a pod off a node for a while only."""


class Misfit(NamedTuple):
    """Why a node does not take a pod."""

    why: str
    never: bool
    """It holds even if no pod were on the node."""


class Asked(NamedTuple):
    """What one pod needs of a node."""

    ask: PodAsk | None
    requests: Amounts
    constraints: Constraints
    excluded: int
    """Nodes that kube-scheduler refused it: bits by node number."""
    ignored: Collection[str]
    """Resources that the books of a node count."""


class Misfits:
    """Compares a pod with nodes. Nodes with equal GPUs in equal use are compared once."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._everything = intree.counted(asked.requests)
        self._in_tree = intree.counted(asked.requests, asked.ignored)
        """Without what the books of a node count."""
        self._known: dict[Signature, Misfit] = {}

    def of(self, node: NodeState, *, has_gpus: bool) -> Misfit | None:
        """Why the node does not take the pod, None if it does. `has_gpus`: the GPUs that it requests are free there."""
        asked = self._asked
        if node.fault:
            return Misfit("its inventory cannot be used", never=True)
        if hurdle := asked.constraints.hurdle(node):
            return Misfit(hurdle, never=hurdle not in PASSING)
        if asked.ask is not None and not has_gpus:
            return self._gpus(asked.ask, node)
        needed = self._everything if node.books is None else self._in_tree
        if resource := intree.lacking(needed, node.allocatable, node.used):
            never = dict(needed)[resource] > node.allocatable.get(resource, 0)
            return Misfit(f"too little {resource}", never)
        if asked.excluded >> node.number & 1:
            return Misfit("refused by kube-scheduler's own filters", never=False)
        return None

    def _gpus(self, ask: PodAsk, node: NodeState) -> Misfit:
        books = node.books
        if books is None:
            served = ask.only_whole and any(node.allocatable.get(each.whole) for each in ask.containers)
            if served and not ask.selection.selective:
                return Misfit("too few whole GPUs free", never=False)
            return Misfit("no GPUs of Gangshare", never=True)
        if ask.selection.uuids:
            return _of_gpus(ask, books)
        signature = books.signature()
        if signature not in self._known:
            self._known[signature] = _of_gpus(ask, books)
        return self._known[signature]


def _of_gpus(ask: PodAsk, books: NodeBooks) -> Misfit:
    """What the GPUs of a node lack for this request, which does not fit there."""
    selected = _selected(ask.selection, books)
    if isinstance(selected, str):
        return Misfit(selected, never=True)
    if why := _no_parts(ask, books) or _too_small(ask, books, selected) or _unjoined(ask, books, selected):
        return Misfit(why, never=True)
    if books.inventory.state != "ready":
        return Misfit("its plugin is not ready", never=False)
    offered = [book for book in selected if book.offered]
    if _too_small(ask, books, offered):
        healthy = sum(book.gpu.health == HEALTHY for book in selected)
        return Misfit("GPUs cordoned" if healthy > len(offered) else "GPUs unhealthy", never=False)
    return Misfit(_in_use(ask, books, offered) or "its free GPUs do not go together", never=False)


def _selected(selection: Selection, books: NodeBooks) -> list[GpuBook] | str:
    """The GPUs that the selection accepts, or the first condition that none of them meets."""
    found = [book for book in books.gpus.values() if book.gpu.health != IN_MIG_MODE]
    if not found:
        return "GPUs in MIG mode" if books.gpus else "no GPUs"
    if selection.uuids:
        found = [book for uuid in books.named(selection) if (book := books.gpus[uuid]) in found]
    models = ", ".join(sorted({book.gpu.model or "unknown" for book in books.gpus.values()}))
    conditions: tuple[tuple[str, Callable[[Gpu], bool]], ...] = (
        ("other GPU UUIDs", lambda _: True),
        (f"model {brief(models, LONGEST_MODEL)}", lambda gpu: matches(selection.models, gpu.model)),
        ("GPUs of another class", lambda gpu: matches(selection.also, gpu.model)),
        ("GPUs with less memory than min-gpu-memory", lambda gpu: gpu.mem_mib >= selection.min_mem_mib),
        ("GPUs too large for the class", lambda gpu: not 0 < selection.max_mem_mib < gpu.mem_mib),
        ("GPUs below min-clock-mhz", lambda gpu: gpu.clock_mhz >= selection.min_clock_mhz),
        ("GPUs below min-compute-capability", lambda gpu: capability(gpu) >= selection.min_cc),
    )
    for otherwise, accepts in conditions:
        found = [book for book in found if accepts(book.gpu)]
        if not found:
            return otherwise
    return found


def _no_parts(ask: PodAsk, books: NodeBooks) -> str:
    """What the node lacks for parts of GPUs, whatever is free; "" if nothing."""
    for container in ask.containers:
        demands = [demand for book in books.gpus.values() if (demand := books.amounts(container, book.gpu))]
        if (why := lack(books.inventory, container)) and demands and not any(demand.whole for demand in demands):
            return why
    return ""


def _too_small(ask: PodAsk, books: NodeBooks, gpus: Sequence[GpuBook]) -> str:
    """What these GPUs lack for one of the containers even if all were free, "" if nothing."""
    for container in ask.containers:
        demands = _demands(container, books, gpus)
        large = sum(demand.mem <= book.gpu.mem and demand.slices <= book.slices_per_gpu for book, demand in demands)
        if not large:
            if container.profile and container.profile not in books.profiles:
                return f"no MIG instance {container.profile}"
            return "GPUs too small" if demands or not container.whole or container.profile else f"no {container.whole}"
        if large < container.gpus:
            return f"fewer than {container.gpus} such {'MIG instances' if container.profile else 'GPUs'}"
    return ""


def _demands(container: ContainerAsk, books: NodeBooks, gpus: Sequence[GpuBook]) -> list[tuple[GpuBook, Demand]]:
    pairs = [(book, books.demand(container, book.gpu)) for book in gpus]
    return [(book, demand) for book, demand in pairs if demand is not None]


def _in_use(ask: PodAsk, books: NodeBooks, offered: Sequence[GpuBook]) -> str:
    """Which amount is used up on GPUs that are large enough."""
    for container in ask.containers:
        demands = _demands(container, books, offered)
        if sum(book.fits(demand) for book, demand in demands) >= container.gpus:
            continue
        if container.profile:
            few = "no" if container.gpus == 1 else f"fewer than {container.gpus}"
            return f"{few} MIG instance{'s' * (container.gpus > 1)} {container.profile} free"
        if container.whole:
            if any(demand.whole for _, demand in demands):
                return "no whole GPU free" if container.gpus == 1 else f"fewer than {container.gpus} whole GPUs free"
        elif demands and all(demand.whole for _, demand in demands):
            return "no MIG instance free"
        roomy = sum(not book.wholes and demand.mem <= book.mem_free for book, demand in demands)
        return "too few time slices free" if roomy >= container.gpus else "too little GPU memory free"
    return ""


def _unjoined(ask: PodAsk, books: NodeBooks, gpus: Sequence[GpuBook]) -> str:
    """Whether the node has too few GPUs that are joined as requested, in words."""
    link, local = ask.selection.link, ask.selection.numa_local
    count = max(container.gpus for container in ask.containers)
    if not any(container.profile for container in ask.containers):
        gpus = [book for book in gpus if not book.gpu.mig]
    if count < 2 or len(gpus) > EXACT or (link != "nvlink" and not local):
        return ""
    joined = books.topology.best(tuple(book.gpu.index for book in gpus), count, (), link, local)
    return "" if joined is not None else f"fewer than {count} GPUs joined as requested"
