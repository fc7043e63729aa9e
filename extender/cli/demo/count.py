"""What the demo counts while pods arrive."""

from __future__ import annotations

from typing import NamedTuple


class Count(NamedTuple):
    """Numbers of pods, and of GPUs in use."""

    arrived: int
    of: int
    running: int
    waiting: int
    left: int
    gpus_held: int

    def line(self) -> str:
        return (
            f"arrived {self.arrived:3}/{self.of}   running {self.running:3}   waiting {self.waiting:3}"
            f"   left {self.left:3}   GPUs in use {self.gpus_held}"
        )
