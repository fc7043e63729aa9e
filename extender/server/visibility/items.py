"""The objects of the aggregated API, read from the engine in small steps: None between two of them is a pause."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import asdict, replace

from extender.engine.cycle.engine import Engine
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.state.roster import GangInfo
from extender.server import explain, inspect, places, verdicts
from extender.server.desk import SLICE, Pieces, Refusal, current
from extender.wire import answers
from extender.wire import visibility as wire
from extender.wire.answers import Earliest, Ref
from extender.wire.visibility import Item
from gangfilter.group import GroupKey
from protos.contract import mig
from protos.contract.isolation import INSTANCE

R = TypeVar("R", bound=Ref)
Listing = Generator[Item | None, None, None]
MOST_MEMBERS = 2000
"""A gang of more members is shown without them."""
HIDDEN = "another namespace"
"""In place of a workload that the caller may not see."""


class Sight(NamedTuple):
    """The namespaces whose pods the caller may see by name; None: all."""

    namespaces: Collection[str] | None

    def __contains__(self, namespace: object) -> bool:
        return self.namespaces is None or namespace in self.namespaces


class View(NamedTuple):
    """The books at a moment, as a caller may see them."""

    engine: Engine
    now: float
    sight: Sight
    query: str = ""
    """Of the request, for kinds that take parameters."""
    waiting: bool = False
    """Only pending pods."""
    names: Collection[str] | None = None
    """Only these nodes; None: all."""


# -- GPUs and nodes


def gpus(view: View, namespace: str) -> Listing:  # noqa: ARG001  # they are in none
    """All GPUs, node by node."""
    for state in current(view.engine.nodes, sorted(view.engine.nodes)):
        yield from _gpus(view, state)
        yield None


def gpu(view: View, namespace: str, name: str) -> Listing:  # noqa: ARG001
    """A GPU by the name of its node and its index: NODE-INDEX, and NODE-INDEX.PLACE for a MIG instance."""
    state = view.engine.nodes.get(name.rpartition("-")[0])
    for item in _gpus(view, state) if state is not None else ():
        if item.name == name:
            yield item


def nodes(view: View, namespace: str) -> Listing:  # noqa: ARG001
    """The nodes that tell of GPUs."""
    wanted = view.engine.nodes if view.names is None else view.names
    for state in current(view.engine.nodes, sorted(wanted)):
        yield _node(view, places.page(view.engine, state)) if tells(state) else None


def node(view: View, namespace: str, name: str) -> Listing:  # noqa: ARG001
    """A node by name."""
    state = view.engine.nodes.get(name)
    if state is not None and tells(state):
        yield _node(view, places.whole(view.engine, state))


def tells(state: NodeState) -> bool:
    """Whether the node has GPUs of ours, or had them."""
    return state.books is not None or bool(state.problem)


def _gpus(view: View, state: NodeState) -> Iterator[Item]:
    if tells(state):
        for gpu in _statuses(view, places.page(view.engine, state)):
            yield Item("", f"{state.name}-{mig.shown(gpu.index).replace(':', '.')}", gpu)


def _node(view: View, page: answers.NodePage) -> Item:
    seen, others = _seen(view.sight, page.unplaced)
    own = {"gpus": tuple(_statuses(view, page)), "unplaced": seen, "other_unplaced": others}
    return Item("", page.name, wire.GpuNodeStatus(**{**asdict(page), **own}))


def _statuses(view: View, node: answers.NodePage) -> Iterator[wire.GpuStatus]:
    for gpu in node.gpus:
        seen, others = _seen(view.sight, gpu.pods)
        about: dict[str, Any] = {
            "node": node.name,
            "unit_mib": node.unit_mib,
            "slices": gpu.slices if gpu.profile else node.slices_per_gpu,
            "verdict": verdicts.of_gpu(gpu, node.verdict, node.name),
            "other_pods": others,
            "isolation": INSTANCE if gpu.profile else node.isolation,
            "isolation_why": "" if gpu.profile else node.isolation_why,
        }
        yield wire.GpuStatus(**{**asdict(gpu), **about, "pods": seen})


def _seen(sight: Sight, pods: Iterable[R]) -> tuple[tuple[R, ...], int]:
    """Those pods that the caller may see, and the number of the others."""
    every = tuple(pods)
    seen = tuple(pod for pod in every if pod.namespace and pod.namespace in sight)
    return seen, len(every) - len(seen)


# -- pods and gangs


def pods(view: View, namespace: str) -> Listing:
    """The pods that request GPUs or are pending, of a namespace or ("") of all."""
    pods = _waiting(view.engine) if view.waiting else current(view.engine.pods)
    for number, pod in enumerate(pods):
        if pod is not None and namespace in ("", pod.ref.namespace):
            yield _pod(view, pod)
        elif pod is None or number % SLICE == 0:
            yield None


def _waiting(engine: Engine) -> Iterator[PodState | None]:
    """The pods without a node, and a pause for every `SLICE` pods."""
    uids = list(engine.pods)
    for start in range(0, len(uids), SLICE):
        found = map(engine.pods.get, uids[start : start + SLICE])
        yield from [pod for pod in found if pod is not None and pod.state == "waiting"]
        yield None


def _pod(view: View, pod: PodState) -> Item | None:
    engine = view.engine
    shown: answers.OfPod | None = None
    if engine.tenancy.pending(pod):
        shown = inspect.waiting_pod(engine, pod, view.now)
    elif pod.ask is not None:
        shown = inspect.placed_pod(engine, pod)
    return _pod_item(view, wire.GpuPodStatus(**asdict(shown))) if shown is not None else None


def _pod_item(view: View, status: wire.GpuPodStatus) -> Item:
    hidden = replace(status, first=hidden_start(view, status.first), earliest=hidden_start(view, status.earliest))
    return Item(status.namespace, status.name, hidden, status.uid)


def pod(view: View, namespace: str, name: str) -> Listing:
    """A pod by name, with its place in line."""
    try:
        text = yield from whole_page(explain.pod(view.engine, namespace, name, view.now))
    except Refusal:
        return  # there is none
    yield _pod_item(view, msgspec.json.decode(text, type=wire.GpuPodStatus))


def gangs(view: View, namespace: str) -> Listing:
    """The gangs of a namespace or ("") of all, without their members."""
    for number, info in enumerate(current(view.engine.gangs.roster.known)):
        if namespace in ("", info.gang.key.namespace):
            yield _gang(view, info)
        elif number % SLICE == 0:
            yield None


def _gang(view: View, info: GangInfo) -> Item:
    tenancy = view.engine.tenancy
    queue = tenancy.queues.at(tenancy.admission.local_queue(info.gang)).name
    status = wire.GangStatus(**asdict(inspect.gang(info, view.now)), queue=queue)
    return Item(status.namespace, status.name, status)


def gang(view: View, namespace: str, name: str) -> Listing:
    """A gang by name, with its members and its place in line."""
    info = view.engine.gangs.roster.known.get(GroupKey(namespace, name))
    if info is not None and len(info.gang.members) > MOST_MEMBERS:
        yield _gang(view, info)
    elif info is not None:
        text = yield from whole_page(explain.group(view.engine, info.gang.key, view.now))
        status = msgspec.json.decode(text, type=wire.GangStatus)
        hidden = replace(status, first=hidden_start(view, status.first), earliest=hidden_start(view, status.earliest))
        yield Item(namespace, name, hidden)


def hidden_start(view: View, start: Earliest | None) -> Earliest | None:
    """The start of the first of a queue. Workloads of namespaces that the caller may not see have no names."""
    return replace(start, who=shown(view, start.who), after=shown(view, start.after)) if start is not None else None


def shown(view: View, workload: str) -> str:
    """A workload of a namespace that the caller may see, else that there is one."""
    namespace = workload.removeprefix("gang ").partition("/")[0]
    return workload if not workload or namespace in view.sight else HIDDEN


def whole_page(pieces: Pieces) -> Generator[None, None, bytes]:
    """The whole text of a page of the status port; raises Refusal."""
    text = bytearray()
    for piece in pieces:
        text += piece
        yield
    return bytes(text)


def namespaces(engine: Engine) -> Pieces:
    """The namespaces of pods that request GPUs, as a JSON list by name."""
    found = set()
    for number, pod in enumerate(current(engine.pods)):
        if pod.ask is not None:
            found.add(pod.ref.namespace)
        if number % SLICE == 0:
            yield b""
    yield msgspec.json.encode(sorted(found))
