"""Groups: their names, the declarations about them, and the terms that hold.

Several sources may declare one group: PodGroups of several kinds, and each member by its annotations and labels.
`agreement` decides which values hold when they differ.
"""

from __future__ import annotations

from typing import Literal

import msgspec

OnLost = Literal["wait", "restart", "ignore"]
LAXEST_FIRST: tuple[OnLost, ...] = ("ignore", "wait", "restart")


class GroupKey(msgspec.Struct, frozen=True, order=True):
    """The name of a group, unique in its namespace."""

    namespace: str
    name: str
    """Empty for pods that ask for a group but name none that can be read: they wait."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class _Fields(msgspec.Struct, frozen=True, kw_only=True):
    """What can be declared of a group. None or empty: not declared."""

    min_member: int | None = None
    """Members that must start together."""
    min_by_role: tuple[tuple[str, int], ...] = ()
    """The same per role, sorted by role; roles are in lower case everywhere."""
    lasting_by_role: tuple[tuple[str, int], ...] = ()
    """How many are enough once the group has started, for roles that start with more than they need; sorted by role."""
    min_resources: tuple[tuple[str, int], ...] = ()
    """Amounts that nodes together must have free for a start, sorted by resource; cpu in thousandths of a core."""
    queue: str = ""
    priority_class: str = ""
    schedule_timeout_s: float | None = None
    """The user's limit of the time before the start."""
    on_member_lost: OnLost | None = None
    on_completion: str = ""
    """The role whose success ends the group."""
    expected_runtime_s: float | None = None
    elastic: bool = False
    """It runs well without its surplus members: other workloads of their priority may preempt them."""


class Declaration(_Fields, frozen=True, kw_only=True):
    """What one source declares: a PodGroup, or a pod by its annotations and labels."""

    source: str
    """For people: `PodGroup scheduling.volcano.sh/v1beta1`, `pods' gangshare.io/*`."""
    problems: tuple[str, ...] = ()
    """Sentences about unreadable values of this source."""


class Terms(_Fields, frozen=True, kw_only=True):
    """What holds for a group; it waits while `min_member` is None, which is at least the sum of the roles' minimums."""

    on_member_lost: OnLost = "wait"
    conflicts: tuple[str, ...] = ()
    """Sentences about values that differ or cannot be read."""


class Membership(msgspec.Struct, frozen=True):
    """The group of a pod, and what the pod declares about it."""

    key: GroupKey
    role: str = ""
    required: bool = False
    """Always part of the minimum: a launcher or master, without which the others cannot work."""
    declaration: Declaration | None = None
    problems: tuple[str, ...] = ()
    """Sentences about unreadable names and roles, keys that name different groups, and values that differ."""
    leader: str = ""
    """The role of a pod that may be made only when this one runs, "" if there is none."""

    @property
    def said(self) -> Declaration | None:
        """The pod's declaration, with the problems; None if there is neither."""
        if not self.problems:
            return self.declaration
        return msgspec.structs.replace(self.declaration or Declaration(source="pods"), problems=self.problems)
