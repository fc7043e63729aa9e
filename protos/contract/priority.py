"""PriorityClasses, as far as groups name them. Source: scheduling.k8s.io/v1 PriorityClass."""

from __future__ import annotations

import msgspec

from protos.contract.objects import Int32, ObjectMeta

API_VERSION, KIND, PLURAL = "scheduling.k8s.io/v1", "PriorityClass", "priorityclasses"
SYSTEM_PREFIX = "system-"
"""Names of Kubernetes' own classes begin so. Source: pkg/apis/scheduling SystemPriorityClassPrefix."""
HIGHEST = 1_000_000_000
"""The most that a class of a user may give. Source: pkg/apis/scheduling HighestUserDefinablePriority."""
LEAST = -(2**31)
"""No class gives less: an int32."""
NEVER = "Never"
"""preemptionPolicy of those for whom nobody is evicted. Source: core/v1 PreemptNever."""


class PriorityClass(msgspec.Struct, frozen=True, rename="camel"):
    """A scheduling.k8s.io/v1 PriorityClass."""

    metadata: ObjectMeta
    value: Int32 = 0
    preemption_policy: str | None = None

    @property
    def system(self) -> bool:
        """It is for parts of Kubernetes."""
        return self.value > HIGHEST or self.metadata.name.startswith(SYSTEM_PREFIX)

    @property
    def never(self) -> bool:
        """Nobody is evicted for those of this class."""
        return self.preemption_policy == NEVER


_decoder = msgspec.json.Decoder(PriorityClass)


def decode(raw: bytes) -> PriorityClass:
    """A class from its JSON; raises msgspec.DecodeError."""
    return _decoder.decode(raw)
