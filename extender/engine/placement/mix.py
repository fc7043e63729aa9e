"""Which asks come lately: the mix that a placement should leave room for.

Asks are counted with a decaying weight. What is typical is taken over anew only when the mix has moved by a tenth, so
that what was computed with it stays good for long. Source: the typical workload of FGD (Weng et al., USENIX ATC 2023),
here learnt from the pods that come rather than given.
"""

from __future__ import annotations

from collections.abc import Mapping

from extender.engine.types.shape import Shape

WINDOW = 2000
"""Asks after which one counts 1/e as much as a new one."""
EVERY = 32
"""Asks between two looks at how far the mix has moved; fewer at first, when all that is known is little."""
MOVED = 0.1
"""Total variation distance from which on it is another mix."""
COVERED, MOST_TYPICAL = 0.9, 64
"""Share of the asked GPUs that the typical asks make up, those first that make up the most; and how many at most."""
MOST_SHAPES = 512
"""Shapes counted at a time; the rarest go."""
LARGE = 1e12


class Mix:
    """The asks of late, and what of them is typical."""

    def __init__(self) -> None:
        self._weights: dict[Shape, float] = {}
        self._next = 1.0
        """The weight of the next ask: rather than old ones less, new ones count more."""
        self._noted = self._unlooked = 0
        self.adopted: Mapping[Shape, float] = {}
        """The share of each shape, when it was last taken over."""

    def note(self, of: Shape) -> None:
        """A pod that asks GPUs came."""
        self._weights[of] = self._weights.get(of, 0.0) + self._next
        self._next *= WINDOW / (WINDOW - 1)
        self._noted += 1
        self._unlooked += 1

    @property
    def due(self) -> bool:
        """Whether so many came that it is worth a look."""
        return self._unlooked >= self._pace

    @property
    def young(self) -> bool:
        """Whether so little is known that a few asks make another mix."""
        return self._pace < EVERY

    @property
    def _pace(self) -> int:
        return min(EVERY, 1 + self._noted // 2)

    def look(self) -> bool:
        """See whether the mix has moved; if so, adopt it."""
        self._unlooked = 0
        self._trim()
        total = sum(self._weights.values())
        shares = {of: weight / total for of, weight in self._weights.items()} if total else {}
        union = {**shares, **self.adopted}
        moved = sum(abs(shares.get(of, 0.0) - self.adopted.get(of, 0.0)) for of in union) / 2
        if moved <= MOVED:
            return False
        self.adopted = shares
        return True

    def _trim(self) -> None:
        if len(self._weights) > MOST_SHAPES:
            kept = sorted(self._weights, key=self._weights.__getitem__, reverse=True)[: MOST_SHAPES // 2]
            self._weights = {of: self._weights[of] for of in kept}
        if self._next > LARGE:
            self._weights = {of: weight / self._next for of, weight in self._weights.items()}
            self._next = 1.0

    def typical(self) -> list[tuple[Shape, float]]:
        """The shapes of the adopted mix that ask for most of the GPUs; their shares of the asks, to add up to 1."""
        asked = {of: share * _gpus(of) for of, share in self.adopted.items()}
        enough, covered = COVERED * sum(asked.values()), 0.0
        found: list[Shape] = []
        for of in sorted(asked, key=asked.__getitem__, reverse=True)[:MOST_TYPICAL]:
            if covered >= enough:
                break
            found.append(of)
            covered += asked[of]
        total = sum(self.adopted[of] for of in found)
        return [(of, self.adopted[of] / total) for of in found]


def _gpus(of: Shape) -> float:
    """About how many GPUs are asked; a part of one counts as half."""
    return sum(c.gpus if c.whole else c.gpus / 2 for c in of.ask.containers) if of.ask is not None else 0.0
