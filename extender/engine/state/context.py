"""The objects that most components of the engine share."""

from __future__ import annotations

from collections import Counter

import msgspec

from extender.engine.state.cannot_fit import CannotFit
from extender.engine.state.ledger import Ledger
from extender.engine.state.outbox import Outbox
from extender.engine.state.quarantine import Quarantine
from extender.engine.types.settings import Settings
from extender.engine.types.wall import Wall


class EngineContext(msgspec.Struct, frozen=True, kw_only=True):
    """Created once, and passed to the components that need most of it."""

    ledger: Ledger
    cannot_fit: CannotFit
    settings: Settings
    counters: Counter[tuple[str, str]]
    """(metric, label) → count."""
    quarantine: Quarantine
    outbox: Outbox
    wall: Wall
