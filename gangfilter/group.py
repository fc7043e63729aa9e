"""Groups: how they are named, what is declared about them, and what holds.

Several sources may speak of one group: PodGroups of several kinds, and every member by its own annotations and labels.
`agreement` finds what holds when they differ.
"""

from __future__ import annotations

from typing import Literal

import msgspec

OnLost = Literal["wait", "restart", "ignore"]
LAXEST_FIRST: tuple[OnLost, ...] = ("ignore", "wait", "restart")


class GroupKey(msgspec.Struct, frozen=True, order=True):
    """A group's name; the same name in another namespace is another group."""

    namespace: str
    name: str
    """Empty for pods that want to be in a group but name none that can be read: they wait."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """What one source says of a group: a PodGroup, or a pod by its annotations and labels. None: it does not say."""

    source: str
    """For people: `PodGroup scheduling.volcano.sh/v1beta1`, `pods' gangshare.io/*`."""
    min_member: int | None = None
    """Members that must start together."""
    min_by_role: tuple[tuple[str, int], ...] = ()
    """The same per role, sorted by role; roles are in lower case everywhere."""
    lasting_by_role: tuple[tuple[str, int], ...] = ()
    """Of roles that start with more than they need: how many are enough once the group has started, sorted by role."""
    min_resources: tuple[tuple[str, int], ...] = ()
    """Amounts that nodes together must have free for a start, sorted by resource; cpu in thousandths of a core."""
    queue: str = ""
    priority_class: str = ""
    schedule_timeout_s: float | None = None
    """The user's limit for waiting."""
    on_member_lost: OnLost | None = None
    on_completion: str = ""
    """The role whose success ends the group."""
    expected_runtime_s: float | None = None
    """For how long it is expected to run."""
    problems: tuple[str, ...] = ()
    """Sentences about values of this source that cannot be read."""


class Membership(msgspec.Struct, frozen=True):
    """What a pod says of the group that it belongs to."""

    key: GroupKey
    role: str = ""
    required: bool = False
    """Always part of the minimum: a launcher or master, without which the others wait in vain."""
    declaration: Declaration | None = None
    """What the pod itself says of the group, None if nothing."""
    problems: tuple[str, ...] = ()
    """Sentences: names and roles that cannot be read, keys that name different groups, values that differ."""
    leader: str = ""
    """The role of a pod that may be made only when this one runs, "" if there is none."""

    @property
    def said(self) -> Declaration | None:
        """What the pod says, with what of it cannot be taken at its word; None if nothing."""
        if not self.problems:
            return self.declaration
        return msgspec.structs.replace(self.declaration or Declaration(source="pods"), problems=self.problems)


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for a group. `min_member` is None while nobody says: then it waits."""

    min_member: int | None = None
    """Never less than the roles' minimums together."""
    min_by_role: tuple[tuple[str, int], ...] = ()
    lasting_by_role: tuple[tuple[str, int], ...] = ()
    """What takes the place of these roles' minimums once the group has started."""
    min_resources: tuple[tuple[str, int], ...] = ()
    queue: str = ""
    priority_class: str = ""
    schedule_timeout_s: float | None = None
    on_member_lost: OnLost = "wait"
    on_completion: str = ""
    expected_runtime_s: float | None = None
    conflicts: tuple[str, ...] = ()
    """Sentences about declarations that differ or cannot be read."""
