"""Free GPUs of equal nodes. A set of nodes is an integer with one bit for each node number."""

from __future__ import annotations

from extender.sim.jobtrace.trace import Shape


class Cluster:
    """The number of free GPUs on each node."""

    def __init__(self, nodes: int, gpus: int) -> None:
        self._free = [gpus] * nodes
        self._nodes_by_free = [0] * gpus + [(1 << nodes) - 1]
        """For each number of free GPUs, the nodes with exactly that many."""

    def copy(self) -> Cluster:
        other = Cluster(0, 0)
        other._free, other._nodes_by_free = self._free.copy(), self._nodes_by_free.copy()
        return other

    def fit(self, shape: Shape, closed: int = 0) -> int:
        """The nodes for a job: fewest free GPUs first, then lowest number; 0 if the job does not fit."""
        left, chosen = shape.workers, 0
        for nodes in self._nodes_by_free[shape.gpus :]:
            nodes &= ~closed
            while nodes:
                first = nodes & -nodes
                chosen |= first
                left -= 1
                if not left:
                    return chosen
                nodes ^= first
        return 0

    def has_free(self, gpus: int, nodes: int) -> bool:
        """Whether each of these nodes has at least this number of free GPUs."""
        return not any(nodes & fuller for fuller in self._nodes_by_free[:gpus])

    def take(self, nodes: int, gpus: int) -> None:
        """Take this number of GPUs on each of these nodes; a negative number frees GPUs."""
        while nodes:
            first = nodes & -nodes
            nodes ^= first
            number = first.bit_length() - 1
            free = self._free[number]
            self._nodes_by_free[free] ^= first
            self._nodes_by_free[free - gpus] |= first
            self._free[number] = free - gpus
