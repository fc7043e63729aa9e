"""What most of the engine works on: the books, the settings, the counters, the quarantine and the clock of the wall."""

from __future__ import annotations

from collections import Counter

import msgspec

from extender.engine.state.ledger import Ledger
from extender.engine.state.quarantine import Quarantine
from extender.engine.types.settings import Settings
from extender.engine.types.wall import Wall


class EngineContext(msgspec.Struct, frozen=True, kw_only=True):
    """Made once, and given to whoever needs most of it."""

    ledger: Ledger
    settings: Settings
    counters: Counter[tuple[str, str]]
    """(what, label) → how often."""
    quarantine: Quarantine
    wall: Wall
