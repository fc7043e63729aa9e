"""PriorityClasses that groups name. Source: scheduling.k8s.io/v1 PriorityClass."""

from __future__ import annotations

import msgspec

from protos.contract.objects import Int32, ObjectMeta

API_VERSION, KIND, PLURAL = "scheduling.k8s.io/v1", "PriorityClass", "priorityclasses"
SYSTEM_PREFIX = "system-"
"""Name prefix of Kubernetes' own classes. Source: pkg/apis/scheduling SystemPriorityClassPrefix."""
HIGHEST = 1_000_000_000
"""The highest priority of user classes. Source: pkg/apis/scheduling HighestUserDefinablePriority."""
LEAST = -(2**31)
"""The lowest priority: an int32."""
NEVER = "Never"
"""preemptionPolicy of pods that never preempt. Source: core/v1 PreemptNever."""


class PriorityClass(msgspec.Struct, frozen=True, rename="camel"):
    """A scheduling.k8s.io/v1 PriorityClass."""

    metadata: ObjectMeta
    value: Int32 = 0
    preemption_policy: str | None = None
    global_default: bool = False
    """It holds for pods that name no class."""

    @property
    def system(self) -> bool:
        """Whether it is for components of Kubernetes."""
        return self.value > HIGHEST or self.metadata.name.startswith(SYSTEM_PREFIX)

    @property
    def never(self) -> bool:
        """Whether pods of this class never preempt."""
        return self.preemption_policy == NEVER


decode = msgspec.json.Decoder(PriorityClass).decode
"""A class from its JSON; raises msgspec.DecodeError."""
