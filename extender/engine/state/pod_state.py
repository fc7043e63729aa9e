"""One live pod: what it asks, where it is, and how far its placement has come.

The states and what moves a pod from one to another are the table below; docs/architecture.md draws it.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Literal

from extender.engine.state.pod_info import UNREAD
from extender.engine.types.effects import PodRef
from extender.engine.types.shape import Shape, shape
from extender.engine.types.subject import Subject, of_pod
from protos.contract.allocation import Allocation
from protos.contract.ask import PodAsk
from protos.contract.reason import Reason

State = Literal["waiting", "held", "binding", "bound"]
"""It has no node; GPUs of a node are held for it; its Binding is being written; it is on its node."""
Requests = tuple[tuple[str, int], ...]
"""Amounts by resource, sorted."""
UNUSABLE = "malformed: the allocation does not name the GPUs that the pod asks"


class Change(StrEnum):
    """What moves a pod on."""

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
"""What follows. Anything else is an error of ours."""


def diagram() -> str:
    """The table as a Mermaid state diagram."""
    lines = [f"    {state} --> {to}: {change}" for (state, change), to in TRANSITIONS.items()]
    return "\n".join(["stateDiagram-v2", "    [*] --> waiting", *lines, "    bound --> [*]: it ends or is deleted"])


class PodState:
    """What we know of one live pod, by UID. Finished and deleted pods are forgotten."""

    __slots__ = (
        "again_at", "allocation", "asked", "deadline", "excluded", "filtered", "forged", "gpu_class", "info", "learned",
        "misread", "node", "open_until", "priority", "queue", "ref", "refusal", "requests", "since", "state",
        "text", "told_at", "unusable", "version", "wakes",
    )  # fmt: skip

    def __init__(self, ref: PodRef, now: float) -> None:
        self.ref = ref
        self.since = now
        self.info = UNREAD
        """What its object says; `UNREAD` also while it is set aside."""
        self.state: State = "waiting"
        self.node = ""
        self.asked: PodAsk | Reason | None = None
        """What it wants, or why that makes no sense."""
        self.requests: Requests = ()
        self.version = ""
        """The object's resourceVersion when `asked` and `requests` were read; "" where they may be others by now."""
        self.priority = 0
        self.allocation: Allocation | None = None
        self.text: str | None = None
        """The allocation's text as written or believed."""
        self.misread = ""
        """BOUND: why its annotation is not believed, "" if it is."""
        self.unusable = False
        """Its allocation is believed, but does not fit what it asks or its node."""
        self.forged = False
        """An unbound pod that carries an allocation: it waits until that is taken away."""
        self.learned = False
        """All of the above was read to its end; not so after an error of ours: then it is read anew."""
        self.filtered = False
        self.deadline = 0.0
        """HELD: when the soft charge ends."""
        self.open_until = 0.0
        """HELD: until when a filter should wait for this pod's bind, since it was offered several nodes."""
        self.refusal: Reason | None = None
        self.excluded = 0
        """The nodes that it was not refused for, since kube-scheduler did not ask about them: bits by node number."""
        self.wakes = 0
        """How often it was woken since it was last refused."""
        self.again_at = 0.0
        """When it may be woken once more."""
        self.told_at = -math.inf
        """When people were last told why it waits."""
        self.queue: str | None = None
        """The queue ("" for none) that it names, or its gang does, and in which it counts; None: it counts in none."""
        self.gpu_class = ""
        """The GpuClass of which it counts GPUs there, "" if of none."""

    @property
    def subject(self) -> Subject:
        """Whom work for it is done for."""
        return of_pod(self.ref.uid)

    @property
    def problem(self) -> str:
        """What is wrong with its annotation: `forged`, `malformed` or `newer`, details after a colon; or nothing."""
        return self.misread or (UNUSABLE if self.unusable else "")

    @property
    def ask(self) -> PodAsk | None:
        """What it wants of GPUs, None if nothing or nonsense."""
        return self.asked if isinstance(self.asked, PodAsk) else None

    @property
    def shape(self) -> Shape:
        return shape(self.ask, self.requests)

    def after(self, change: Change) -> State:
        """The next state; KeyError if the table has none."""
        return TRANSITIONS[self.state, change]

    def move(self, change: Change) -> None:
        """Go on to the next state; KeyError if the table has none."""
        self.state = self.after(change)
