"""Which model of GPUs a user probably meant."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice

from protos.contract.selection import WILD

COMPARED = 64
"""Models compared, and characters of each."""
WORDS = 256
"""Words of models compared."""


@lru_cache(maxsize=256)
def meant(globs: tuple[str, ...], models: tuple[str, ...]) -> str:
    """The model, or the word of a model, that is most like the first glob; "" if none is like it."""
    glob = next((each for each in globs if not each.startswith("!")), "")
    text = "".join(character for character in glob.lower() if character not in WILD)[:COMPARED]
    known = {each.lower(): each for each in _names(models[:COMPARED])}
    return next((known[each] for each in get_close_matches(text, known, 1)), "")


def _names(models: Sequence[str]) -> list[str]:
    """The models and the words in them; words without a digit, like NVIDIA, are no models."""
    shown = [model[:COMPARED] for model in models]
    words = (word for model in shown for word in model.replace("-", " ").split())
    return [*islice((word for word in words if any(map(str.isdecimal, word))), WORDS), *shown]
