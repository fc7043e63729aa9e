"""The mix of recent requests: a placement should leave GPUs that such pods can use.

Requests are counted with a decaying weight. A new mix is adopted only when it has moved by a tenth, so that what was
computed with the old one stays valid for long. Source: the typical workload of FGD (Weng et al., USENIX ATC 2023), here
learnt from the pods that come.
"""

from __future__ import annotations

from collections.abc import Mapping

from extender.engine.types.shape import Shape

WINDOW = 2000
"""Requests after which one counts 1/e as much as a new one."""
EVERY = 32
"""Requests between two checks of how far the mix has moved; fewer while few are known."""
MOVED = 0.1
"""The total variation distance above which a mix is adopted."""
COVERED, MOST_TYPICAL = 0.9, 64
"""The part of the requested GPUs that the typical shapes make up, and how many shapes at most."""
MOST_SHAPES = 512
"""Shapes counted at a time; the rarest are dropped."""
LARGE = 1e12


class Mix:
    """Counts recent requests by shape, and keeps the adopted mix."""

    def __init__(self) -> None:
        self._weights: dict[Shape, float] = {}
        self._next = 1.0
        """The weight of the next request: new ones count more, instead of old ones less."""
        self._noted = self._unchecked = 0
        self.adopted: Mapping[Shape, float] = {}
        """The share of each shape."""

    def note(self, of: Shape) -> None:
        """Count a pod that requests GPUs."""
        self._weights[of] = self._weights.get(of, 0.0) + self._next
        self._next *= WINDOW / (WINDOW - 1)
        self._noted += 1
        self._unchecked += 1

    @property
    def due(self) -> bool:
        """Whether enough requests came for a check."""
        return self._unchecked >= min(EVERY, 1 + self._noted // 2)

    @property
    def young(self) -> bool:
        """Whether so few requests are known that a few more make another mix."""
        return 1 + self._noted // 2 < EVERY

    def look(self) -> bool:
        """Adopt the mix if it has moved; return whether it has."""
        self._unchecked = 0
        if len(self._weights) > MOST_SHAPES:
            kept = sorted(self._weights, key=self._weights.__getitem__, reverse=True)[: MOST_SHAPES // 2]
            self._weights = {of: self._weights[of] for of in kept}
        if self._next > LARGE:
            self._weights = {of: weight / self._next for of, weight in self._weights.items()}
            self._next = 1.0
        total = sum(self._weights.values())
        shares = {of: weight / total for of, weight in self._weights.items()} if total else {}
        union = {**shares, **self.adopted}
        moved = sum(abs(shares.get(of, 0.0) - self.adopted.get(of, 0.0)) for of in union) / 2
        if moved <= MOVED:
            return False
        self.adopted = shares
        return True

    def typical(self) -> list[tuple[Shape, float]]:
        """The shapes of the adopted mix that request most GPUs, with their shares of these requests."""
        asked = {of: share * _gpus(of) for of, share in self.adopted.items()}
        enough, covered = COVERED * sum(asked.values()), 0.0
        typical: list[Shape] = []
        for of in sorted(asked, key=asked.__getitem__, reverse=True)[:MOST_TYPICAL]:
            if covered >= enough:
                break
            typical.append(of)
            covered += asked[of]
        total = sum(self.adopted[of] for of in typical)
        return [(of, self.adopted[of] / total) for of in typical]


def _gpus(of: Shape) -> float:
    """About how many GPUs are requested; a part of one counts as half."""
    return sum(c.gpus if c.whole else c.gpus / 2 for c in of.ask.containers) if of.ask is not None else 0.0
