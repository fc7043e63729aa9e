"""The choices of command-line options, without the imports that the replays need."""

from typing import Literal

Policy = Literal["fifo", "skip", "easy", "gangshare"]
"""A known policy, or the engine's own queue order and backfill."""
Durations = Literal["trace", "noisy", "none"]
"""The run times that policies know: those of the trace, those times 0.5 to 1.5, or none."""
