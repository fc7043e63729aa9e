"""The names that commands offer before anything else is imported."""

from typing import Literal

Policy = Literal["fifo", "skip", "easy", "gangshare"]
"""Who decides: a known policy, or our own line and backfill."""
Durations = Literal["trace", "noisy", "none"]
"""What the policies know of run times: the trace's own, those times 0.5 to 1.5, or nothing."""
