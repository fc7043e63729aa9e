"""The page `/usage` of a node's measuring process: what each container uses of each GPU, beside what it was promised.

The process writes it, the commands read it. Missing keys have their default and unknown keys are ignored, so a command
reads the pages of older and newer processes.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from protos.contract.bounds import GPUS_PER_NODE, MEASURED


class Use(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One container on one GPU. Memory is in bytes. What the driver does not tell is None."""

    namespace: str = ""
    pod: str = ""
    uid: str = ""
    container: str = ""
    """`-` with no pod: all processes of the GPU that are in no container of a known pod."""
    queue: str = ""
    """The one that the pod names itself."""
    owner: str = ""
    """Kind/name of its controller."""
    uuid: str
    gpu: int
    model: str = ""
    whole: bool = False
    asks: bool = False
    """The pod requests GPUs."""
    promised: int = 0
    used: int | None = None
    sm: float | None = None
    """What part of the GPU's SM time it took in the last period."""
    idle: float | None = None
    """Seconds since it last did something on the GPU, as far as this process has seen."""
    processes: int = 0
    level: str = ""
    """How it is isolated from others on the GPU."""
    enforced: bool = False
    """It cannot use more memory than it was promised."""

    @property
    def overuse(self) -> int:
        """Bytes that a container of a pod with GPUs uses beyond its promise."""
        return max(0, (self.used or 0) - self.promised) if self.asks and not self.whole else 0


class Page(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The whole page."""

    node: str
    age: float = 0.0
    """Seconds since the measurement."""
    troubles: Annotated[tuple[str, ...], msgspec.Meta(max_length=GPUS_PER_NODE.most + 8)] = ()
    """What could not be measured, and why."""
    uses: Annotated[tuple[Use, ...], msgspec.Meta(max_length=MEASURED.most)] = ()


OUTSIDE = "-"
"""Shown for the container of processes that are in none."""
WHOLE = "whole GPU"
"""The level of a container with whole GPUs: it has no neighbours."""
INSTANCE = "instance (mig)"
"""That of a container with a MIG instance, for the same reason."""
