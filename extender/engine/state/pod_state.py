"""The record of one live pod: its requests, its node, and the state of its placement.

`TRANSITIONS` defines the states; docs/architecture.md shows its diagram.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from enum import StrEnum
from typing import Literal

import msgspec

from extender.engine.state.intree import passes
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_info import UNREAD, PodInfo
from extender.engine.types.effects import PodRef
from extender.engine.types.shape import Shape, of_model, shape
from extender.engine.types.subject import Subject, of_pod
from protos.contract.allocation import Allocation
from protos.contract.ask import PodAsk
from protos.contract.reason import Reason
from protos.contract.resize import Resized, allocated, booked

State = Literal["waiting", "held", "binding", "bound"]
Requests = tuple[tuple[str, int], ...]
"""Amounts, sorted by resource."""
UNUSABLE = "malformed: the allocation does not match the pod's requests or its node"


class Change(StrEnum):
    """What changes a pod's state."""

    HELD = "GPUs of a node are held for it"
    BOOKED = "bind has chosen its GPUs"
    WRITTEN = "its Binding is written"
    FOUND = "the API shows it on a node"
    RELEASED = "it gives up its GPUs"


TRANSITIONS: dict[tuple[State, Change], State] = {
    ("waiting", Change.HELD): "held",
    ("waiting", Change.BOOKED): "binding",
    ("waiting", Change.FOUND): "bound",
    ("held", Change.HELD): "held",
    ("held", Change.BOOKED): "binding",
    ("held", Change.FOUND): "bound",
    ("held", Change.RELEASED): "waiting",
    ("binding", Change.WRITTEN): "bound",
    ("binding", Change.FOUND): "bound",
    ("binding", Change.RELEASED): "waiting",
    ("bound", Change.FOUND): "bound",
    ("bound", Change.RELEASED): "waiting",
}
"""The next state. A missing row is an internal error."""


def diagram() -> str:
    """The table as a Mermaid state diagram."""
    lines = [f"    {state} --> {to}: {change}" for (state, change), to in TRANSITIONS.items()]
    return "\n".join(["stateDiagram-v2", "    [*] --> waiting", *lines, "    bound --> [*]: it ends or is deleted"])


class PodState(msgspec.Struct, eq=False):
    """One live pod. The records of finished and deleted pods are dropped."""

    ref: PodRef
    since: float
    info: PodInfo = UNREAD
    """The content of its object; `UNREAD` while it is in quarantine."""
    state: State = "waiting"
    node: str = ""
    asked: PodAsk | Reason | None = None
    """Its GPU request, or why the request is invalid."""
    mistake: Reason | None = None
    """A key that Gangshare does not read, found while it had no node."""
    model: str = ""
    """The model of GPUs that equal members of its gang have, "" if it may have any."""
    requests: Requests = ()
    version: str = ""
    """From which `asked` and `requests` were read (`Observer`); "" if they may have changed since."""
    priority: int = 0
    allocation: Allocation | None = None
    text: str | None = None
    """The allocation annotation as written or trusted."""
    resized: Resized | None = None
    """BOUND: the answer to its last wish for another amount of GPU memory, as written or trusted."""
    superseded: str | None = ""
    """The annotation that this answer replaces, which the API shows until the answer is written; "" if it is."""
    wish: str | None = None
    """The last wish, as read."""
    misread: str = ""
    """BOUND: why its annotation is not trusted, "" if it is."""
    unusable: bool = False
    """Its allocation is trusted, but does not match its requests or its node."""
    forged: bool = False
    """It has no node but an allocation: it waits until the annotation is removed."""
    learned: bool = False
    """The fields above are complete. After an internal error they are read again."""
    filtered: bool = False
    deadline: float = 0.0
    """HELD: when the soft charge ends."""
    open_until: float = 0.0
    """HELD, with several nodes offered: until when filter waits for this pod's bind."""
    refusal: Reason | None = None
    excluded: int = 0
    """The nodes that kube-scheduler refused it when the extender did: bits by node number."""
    sampled: bool = False
    """kube-scheduler did not look at every node when it last asked about more than the nominated one."""
    declined: str = ""
    declined_until: float = 0.0
    """The nominated node that the extender has just refused it: kube-scheduler asks about others at once."""
    nominated_again_at: float = 0.0
    """When it may be nominated again after kube-scheduler has refused the nodes of several nominations."""
    wakes: int = 0
    """Requeues since its last refusal."""
    again_at: float = 0.0
    """When it may be requeued next."""
    told_at: float = -math.inf
    """When an Event last said why it is pending."""
    queue: str | None = None
    """The queue that it or its gang names ("" for none), and in which it counts; None if it counts in no queue."""
    gpu_class: str = ""
    """The GpuClass whose quota in the queue it uses, "" for none."""

    @property
    def subject(self) -> Subject:
        return of_pod(self.ref.uid)

    @property
    def problem(self) -> str:
        """The problem of its annotation: `forged`, `malformed` or `newer`, and details after a colon; or ""."""
        return self.misread or (UNUSABLE if self.unusable else "")

    @property
    def ask(self) -> PodAsk | None:
        """Its GPU request, None if it has none or an invalid one; of a resized pod what is booked for it."""
        if not isinstance(self.asked, PodAsk):
            return None
        asked = booked(self.asked, self.resized.booked) if self.resized is not None else self.asked
        return of_model(asked, self.model) if self.model else asked

    @property
    def booked(self) -> Allocation | None:
        """Its allocation with the amounts that are booked."""
        if self.allocation is None or self.resized is None:
            return self.allocation
        return allocated(self.allocation, self.resized.booked)

    @property
    def shape(self) -> Shape:
        return shape(self.ask, self.requests)

    def passes(self, node: NodeState, ignored: Collection[str]) -> bool:
        """Whether the node passes kube-scheduler's filters, as far as is known; `ignored`: resources in the books."""
        if self.excluded >> node.number & 1:
            return False
        return not self.sampled or passes(node, self.info.constraints, self.requests, ignored)

    def after(self, change: Change) -> State:
        """The next state; KeyError if the table has none."""
        return TRANSITIONS[self.state, change]

    def move(self, change: Change) -> None:
        """Change to the next state; KeyError if the table has none."""
        self.state = self.after(change)
