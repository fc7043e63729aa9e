"""The surplus members of a gang, worst placed first.

Worst is a member on a drained node, then the farthest from the others: on a node with the fewest members of the gang,
then in a rack, zone and so on with the fewest (the labels that keep gangs together). Then the one whose GPUs are linked
worst to those of the others on its node, then the one whose GPUs the fewest pods share, as it frees whole GPUs. The
last criterion is the latest bind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from extender.engine.state.node_state import NodeState
from gangfilter.gang import Gang
from gangfilter.members import SETTLED, Member, Stage
from gangfilter.minimum import minimum


def spared(
    gang: Gang,
    going: Iterable[str],
    unnamed: Mapping[str, int],
    nodes: Mapping[str, NodeState],
    labels: Sequence[str],
) -> list[Member]:
    """The bound members beyond the minimum, those in `going` (names) first, then the worst placed.

    `unnamed`: members, by role, that are leaving but not known by name. If a gang has minimums by role, only members of
    these roles are surplus.
    """
    least, by_role = minimum(gang)
    roles = gang.roles(*SETTLED)
    roles.subtract(unnamed)
    left = 0 if least is None else roles.total() - least
    surplus: list[Member] = []
    for member in _worst_first(gang.at(Stage.BOUND), going, nodes, labels) if left > 0 else ():
        counted = not by_role or member.role in by_role
        if len(surplus) < left and counted and not member.required and roles[member.role] > by_role.get(member.role, 0):
            roles[member.role] -= 1
            surplus.append(member)
    return surplus


def _worst_first(
    members: Sequence[Member], going: Iterable[str], nodes: Mapping[str, NodeState], labels: Sequence[str]
) -> list[Member]:
    on_node: dict[str, list[Member]] = {}
    for member in members:
        on_node.setdefault(member.node, []).append(member)
    domains = {name: [_domain(nodes.get(name), label) for label in labels] for name in on_node}
    in_domain = [Counter[str]() for _ in labels]
    for name, here in on_node.items():
        for counts, domain in zip(in_domain, domains[name], strict=True):
            counts[domain] += len(here)
    leave = frozenset(going)

    def placement(member: Member) -> tuple[int, ...]:
        """The worst sorts first."""
        here, node = on_node[member.node], nodes.get(member.node)
        stays = node is None or not node.leaving
        around = (counts[domain] for counts, domain in zip(in_domain, domains[member.node], strict=True))
        return member.name not in leave, stays, len(here), *around, *_on_gpus(member, here, node)

    latest_first = sorted(members, key=lambda m: (m.bound_at, len(m.name), m.name), reverse=True)
    return sorted(latest_first, key=placement)


def _domain(node: NodeState | None, label: str) -> str:
    return node.labels.get(label, "") if node is not None else ""


def _on_gpus(member: Member, here: Sequence[Member], node: NodeState | None) -> tuple[int, int]:
    """How well the member's GPUs are linked to those of the others here, and how many pods share them."""
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
