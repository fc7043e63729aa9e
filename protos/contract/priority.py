"""PriorityClasses, as far as groups name them. Source: scheduling.k8s.io/v1 PriorityClass."""

from __future__ import annotations

import msgspec

from protos.contract.objects import ObjectMeta

API_VERSION, KIND, PLURAL = "scheduling.k8s.io/v1", "PriorityClass", "priorityclasses"
NEVER = "Never"
"""preemptionPolicy of those for whom nobody is evicted. Source: core/v1 PreemptNever."""


class PriorityClass(msgspec.Struct, frozen=True, rename="camel"):
    """A scheduling.k8s.io/v1 PriorityClass."""

    metadata: ObjectMeta
    value: int = 0
    preemption_policy: str | None = None

    @property
    def never(self) -> bool:
        """Nobody is evicted for those of this class."""
        return self.preemption_policy == NEVER


_decoder = msgspec.json.Decoder(PriorityClass)


def decode(raw: bytes) -> PriorityClass:
    """A class from its JSON; raises msgspec.DecodeError."""
    return _decoder.decode(raw)
