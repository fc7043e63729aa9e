"""Isolation of parts of GPUs: how a node enforces memory and caps compute, and what a pod demands.

A whole GPU has one holder, so it meets every demand.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from protos.contract.bounds import ISOLATION_WHY

Memory = Literal["", "driver", "mps", "library"]
"""Who enforces the memory limit of a container; "": nobody, it is promised."""
Compute = Literal["", "cooperative", "mps"]
"""Who caps the compute of a container; `cooperative`: its own environment, which it can change; "": nobody."""
Demanded = Literal["any", "memory", "compute"]
"""`memory`: enforced memory; `compute`: enforced memory and capped compute."""
DEMANDED: tuple[Demanded, ...] = ("any", "memory", "compute")
"""From the weakest to the strictest."""


class Isolation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The isolation that a node has proved for parts of its GPUs."""

    memory: Memory = ""
    compute: Compute = ""
    why: Annotated[str, msgspec.Meta(max_length=ISOLATION_WHY.most)] = ""
    """Why not more, "" if all is enforced."""

    def meets(self, demanded: Demanded) -> bool:
        """Whether parts of this node's GPUs are isolated as demanded."""
        if demanded == "any":
            return True
        return bool(self.memory) and (demanded == "memory" or self.compute == "mps")

    @property
    def lack(self) -> str:
        """What is not enforced here, in constant words; "" if all is."""
        if not self.memory:
            return "its memory limits are promised, not enforced"
        return {"mps": "", "cooperative": "its compute limits are cooperative, not enforced"}.get(
            self.compute, "its compute limits are promised, not enforced"
        )

    @property
    def kind(self) -> tuple[str, str]:
        """That of memory and of compute."""
        return self.memory, self.compute

    @property
    def words(self) -> tuple[str, str]:
        """The levels of memory and of compute."""
        memory = f"enforced ({self.memory})" if self.memory else "promised"
        return memory, f"capped ({self.compute})" if self.compute else "promised"

    def __str__(self) -> str:
        memory, compute = self.words
        return f"memory {memory}, compute {compute}"


INSTANCE = "instance (mig)"
"""The level of a MIG instance, whose memory and compute are its own; in words."""
PROMISED = Isolation()
"""That of a node on which nobody has set up more."""


def stricter(one: Demanded, other: Demanded) -> Demanded:
    """The stricter of two demands."""
    return max(one, other, key=DEMANDED.index)
