"""How many GPUs are free on each node. Sets of nodes are bits by node number."""

from __future__ import annotations

from extender.sim.jobtrace.trace import Shape


class Cluster:
    """Equal nodes."""

    def __init__(self, nodes: int, gpus: int) -> None:
        self._free = [gpus] * nodes
        self._with = [0] * gpus + [(1 << nodes) - 1]
        """By number of free GPUs the nodes that have so many."""

    def copy(self) -> Cluster:
        other = Cluster(0, 0)
        other._free, other._with = self._free.copy(), self._with.copy()
        return other

    def fit(self, shape: Shape, closed: int = 0) -> int:
        """The nodes for a job: always those with fewest GPUs free, of these the first; 0 if it does not fit."""
        left, chosen = shape.workers, 0
        for nodes in self._with[shape.gpus :]:
            nodes &= ~closed
            while nodes:
                first = nodes & -nodes
                chosen |= first
                left -= 1
                if not left:
                    return chosen
                nodes ^= first
        return 0

    def holds(self, gpus: int, nodes: int) -> bool:
        """Whether each of these nodes has so many GPUs free."""
        return not any(nodes & some for some in self._with[:gpus])

    def take(self, nodes: int, gpus: int) -> None:
        """So many GPUs of each of these nodes; a negative number gives them back."""
        while nodes:
            first = nodes & -nodes
            nodes ^= first
            number = first.bit_length() - 1
            free = self._free[number]
            self._with[free] ^= first
            self._with[free - gpus] |= first
            self._free[number] = free - gpus
