"""The members that a gang can spare, worst placed first.

Worst placed is who is on a node that is about to go; then who is farthest from the rest: on a node with the fewest
others of its gang, then in a rack, zone and so on with the fewest (the labels that keep gangs together), then whose
GPUs are linked worst to those of the others on its node; then whose GPUs fewest others share, since what it leaves is
whole; then who came last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from extender.engine.state.node_state import NodeState
from gangfilter.gang import Gang
from gangfilter.members import SETTLED, Member, Stage
from gangfilter.minimum import minimum

Worse = tuple[int, ...]
"""How a member is placed; what is worst sorts first."""


def spared(
    gang: Gang,
    going: Iterable[str],
    unnamed: Mapping[str, int],
    nodes: Mapping[str, NodeState],
    labels: Sequence[str],
) -> list[Member]:
    """Bound members without which the minimum still is bound, those in `going` (names) first, then the worst placed.

    `unnamed` more of these roles go anyway. Where minimums are said by role, nobody knows what it would mean to lose
    one of another.
    """
    least, by_role = minimum(gang)
    roles = gang.roles(*SETTLED)
    roles.subtract(unnamed)
    left = 0 if least is None else roles.total() - least
    found: list[Member] = []
    for member in worst_first(gang.at(Stage.BOUND), going, nodes, labels) if left > 0 else ():
        known = not by_role or member.role in by_role
        if len(found) < left and known and not member.required and roles[member.role] > by_role.get(member.role, 0):
            roles[member.role] -= 1
            found.append(member)
    return found


def worst_first(
    members: Sequence[Member], going: Iterable[str], nodes: Mapping[str, NodeState], labels: Sequence[str]
) -> list[Member]:
    """These members of one gang, those in `going` (names) first, then the worst placed."""
    leave = frozenset(going)
    worse = _measure(members, nodes, labels)
    late = sorted(members, key=lambda m: (m.bound_at, len(m.name), m.name), reverse=True)
    return sorted(late, key=lambda m: (m.name not in leave, *worse(m)))


def _measure(
    members: Sequence[Member], nodes: Mapping[str, NodeState], labels: Sequence[str]
) -> Callable[[Member], Worse]:
    """Tells how a member is placed among these."""
    on_node: dict[str, list[Member]] = {}
    for member in members:
        on_node.setdefault(member.node, []).append(member)
    where = {name: [_domain(nodes.get(name), label) for label in labels] for name in on_node}
    near = [Counter[str]() for _ in labels]
    for name, here in on_node.items():
        for counts, domain in zip(near, where[name], strict=True):
            counts[domain] += len(here)

    def worse(member: Member) -> Worse:
        here, node = on_node[member.node], nodes.get(member.node)
        stays = node is None or not node.leaving
        around = (counts[domain] for counts, domain in zip(near, where[member.node], strict=True))
        return stays, len(here), *around, *_on_gpus(member, here, node)

    return worse


def _domain(node: NodeState | None, label: str) -> str:
    return node.labels.get(label, "") if node is not None else ""


def _on_gpus(member: Member, here: Sequence[Member], node: NodeState | None) -> tuple[int, int]:
    """How well its GPUs are linked to those of the others here, and how many pods have parts of them."""
    books = node.books if node is not None else None
    if books is None:
        return 0, 0
    held = {
        m.uid: [books.gpus[u] for u in entry.charges if u in books.gpus]
        for m in here
        if (entry := books.entries.get(m.uid))
    }
    own = held.pop(member.uid, [])
    others = [book.gpu.index for each in held.values() for book in each]
    linked = sum(books.topology.value(book.gpu.index, other) for book in own for other in others)
    return linked, sum(book.sharers for book in own)
