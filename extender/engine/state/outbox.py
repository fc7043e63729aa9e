"""The effects that the engine's caller has not taken yet: the one way in which effects leave the engine."""

from __future__ import annotations

from collections.abc import Iterable

from extender.engine.types.effects import Effect, Open, PostBinding


class Outbox:
    """Owns the effects. Components put them here in the order in which they are carried out, and return none."""

    def __init__(self) -> None:
        self._effects: list[Effect] = []

    def put(self, *effects: Effect) -> None:
        """Have these effects carried out."""
        self._effects += effects

    def extend(self, effects: Iterable[Effect]) -> None:
        """Have these effects carried out; those made before one that raises an error are kept."""
        self._effects.extend(effects)

    def taken(self) -> list[Effect]:
        """The effects since the last call."""
        effects, self._effects = self._effects, []
        return effects

    def opened(self, uid: str) -> PostBinding | None:
        """Take the Binding of this gang member out again, if it is there; the caller carries it out."""
        effect = next((each for each in self._effects if isinstance(each, Open) and each.pod.uid == uid), None)
        if effect is None:
            return None
        self._effects.remove(effect)
        return effect.place
