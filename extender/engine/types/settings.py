"""Engine settings."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from gangfilter.gang import Patience
from protos.contract import mig, names, priority, provisioning, selector
from protos.contract.flag import Flag, listed, option
from protos.contract.isolation import Demanded
from protos.contract.shared_settings import SettingsError, SharedSettings

LOCALITY_LABELS = ("topology.kubernetes.io/zone",)
"""Default labels of a node's location, nearest first."""
DRAIN_TAINTS = (
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption=disrupting",
    "aws-node-termination-handler/spot-itn",
    "aws-node-termination-handler/scheduled-maintenance",
    "aws-node-termination-handler/asg-lifecycle-termination",
    "cloud.google.com/impending-node-termination",
    "remediator.kubernetes.azure.com/unschedulable",
)
"""Default taints that announce a node's removal. Source: cluster-autoscaler utils/taints; karpenter disruption (the
second of its two is from before v1); aws-node-termination-handler TAINT_NODE; GKE's k8s-node-termination-handler; AKS
node auto-drain."""

ElasticQuotas = Literal["limits", "deserved", "guaranteed"]
UnknownKeys = Literal["refuse", "warn"]

_WHOLE = re.compile(r"-?[0-9]{1,10}")
_SECONDS = (
    "replacement_hold_s",
    "reservation_ttl_s",
    "min_runtime_s",
    "idle_first_s",
    "scale_in_timeout_s",
    "scale_out_delay_s",
    "backfill_delay_s",
    "provisioning_after_s",
)


def group_priority(text: str) -> int:
    """The highest priority that a PodGroup can give: `members`, `any` or a number; raises SettingsError."""
    named = {"members": priority.LEAST, "any": priority.HIGHEST}
    if text in named:
        return named[text]
    if not _WHOLE.fullmatch(text) or not priority.LEAST <= int(text) <= priority.HIGHEST:
        raise SettingsError(f"{text!r} is no priority: expected members, any or a number up to {priority.HIGHEST}")
    return int(text)


def with_profiles(resources: names.Resources, profiles: Sequence[str]) -> names.Resources:
    """The resources with those of further MIG profiles; raises SettingsError."""
    try:
        return msgspec.structs.replace(resources, mig=mig.resources((*mig.KNOWN, *profiles)))
    except ValueError as error:
        raise SettingsError(f"--mig-profiles: {error}") from error


class Settings(SharedSettings, frozen=True, kw_only=True):
    """Settings of the engine's decisions. Users can set the fields with a `Flag`."""

    offer_limit: Annotated[
        int, Flag("Maximum number of nodes in a filter answer. kube-scheduler's scores choose among them.")
    ] = 16
    score_tolerance: Annotated[
        int, Flag("Difference in cost, in thousandths of a GPU, up to which two nodes count as equal.")
    ] = 10
    in_tree_preferences: Annotated[
        bool, Flag("Offer every pod all nodes of about equal cost, not only some of them. This is slower.")
    ] = False
    scheduler_names: Annotated[
        tuple[str, ...],
        Flag(
            "Names of the schedulers that call this extender, separated by commas. Empty: all. Pods of others "
            "join their gang when they are bound.",
            listed,
        ),
    ] = ()
    unknown_keys: Annotated[
        UnknownKeys,
        Flag(
            "Pods with gangshare.io keys that are unknown or in the wrong place, or with keys of other products: "
            "refuse: they stay pending; warn: they get an Event only."
        ),
    ] = "refuse"
    default_isolation: Annotated[
        Demanded,
        Flag(
            "What pods demand for parts of GPUs if neither they nor their namespace say (gangshare.io/isolation). "
            "memory: enforced memory; compute: capped compute, too; any: nothing."
        ),
    ] = "any"
    mig_profiles: Annotated[
        tuple[str, ...],
        Flag(
            "MIG profiles beside those that NVIDIA documents, separated by commas. Name the same ones to "
            "scheduler-config (--mig-profile).",
            listed,
        ),
    ] = ()
    gang_bind_timeout_s: Annotated[
        float,
        Flag("Seconds from a gang's first Binding until all members must be bound. After that the gang is undone."),
    ] = 30.0
    replacement_hold_s: Annotated[
        float, Flag("Seconds that the GPUs of a lost member are held for its replacement. 0 disables.")
    ] = 300.0
    reservation_ttl_s: Annotated[
        float,
        Flag("Maximum time, in seconds, that a gangshare.io/reservation holds GPUs. 0 disables."),
    ] = 300.0
    preemption: Annotated[
        bool, Flag("Preempt pods of lower priority for pending pods and gangs. Needs --reservation-ttl above 0.")
    ] = True
    min_runtime_s: Annotated[float, Flag("Seconds that a pod or gang runs before it may be preempted.")] = 30.0
    idle_first_s: Annotated[
        float,
        Flag(
            "Seconds without use of a GPU after which pods give way first in preemption, among those of equal "
            "priority. Needs components/usage-idle. 0 disables."
        ),
    ] = 0.0
    elastic_gangs: Annotated[
        bool,
        Flag(
            "Preempt surplus members of all gangs at equal priority, not only those of gangs with "
            'gangshare.io/elastic: "true".'
        ),
    ] = False
    group_priority: Annotated[
        int,
        Flag(
            "Highest priority that a PodGroup's PriorityClass can give. members: that of its members; any: no limit.",
            group_priority,
            "members|any|NUMBER",
            "members",
        ),
    ] = priority.LEAST
    elastic_quotas: Annotated[
        ElasticQuotas,
        Flag("Fields of an ElasticQuota that count. limits: max; deserved: also min; guaranteed: min even while idle."),
    ] = "deserved"
    """A tenant may have created the ElasticQuota, so its min is a guarantee only if an operator sets this."""
    scale_in_timeout_s: Annotated[
        float, Flag("Seconds that the operator of an elastic job has to remove workers. After that they are evicted.")
    ] = 120.0
    """At least the workers' own grace period."""
    scale_out_delay_s: Annotated[
        float,
        Flag("Seconds that GPUs must be idle, with no pending pod for them, before an elastic job grows. 0 disables."),
    ] = 60.0
    backfill_delay_s: Annotated[
        float,
        Flag("Seconds that the first workload of a queue waits before it gets a backfill reservation. 0 disables."),
    ] = 300.0
    provisioning_class: Annotated[
        str,
        Flag(
            "Class of the ProvisioningRequests by which gangs that lack capacity ask an autoscaler, for example "
            "check-capacity.autoscaling.x-k8s.io. Needs components/provisioning. Empty disables."
        ),
    ] = ""
    provisioning_after_s: Annotated[
        float, Flag("Seconds that a gang lacks capacity before it asks by a ProvisioningRequest.")
    ] = 30.0
    bind_timeout_s: Annotated[
        float,
        Flag("httpTimeout, in seconds, of kube-scheduler's configuration. Binds of gangs wait for at most half of it."),
    ] = 120.0
    max_gang_size: Annotated[
        int, Flag("Maximum number of members that start together. All must reach bind within half of the bind timeout.")
    ] = 2000
    """The binds are held until the last member comes, and each holds a connection."""
    locality_labels: Annotated[
        tuple[str, ...],
        Flag(
            "Node labels of a location, nearest first, separated by commas. Gangs are kept together by them. "
            "Empty disables.",
            listed,
            default=",".join(LOCALITY_LABELS),
        ),
    ] = LOCALITY_LABELS
    drain_taints: Annotated[
        tuple[str, ...],
        Flag(
            "Taints or labels (KEY or KEY=VALUE) of nodes that will be removed, separated by commas. Such nodes get no "
            "new pods and are drained. Empty disables.",
            listed,
            default=",".join(DRAIN_TAINTS),
        ),
    ] = DRAIN_TAINTS
    soft_charge_s: float = 1.0
    """Lifetime in seconds of a soft charge, from filter to bind."""
    undecided_s: float = 0.05
    """Seconds that filter waits for the bind of an earlier pod that was offered several nodes."""
    unseen_bind_s: float = 15.0
    """Seconds after the start in which a bind needs no preceding filter in this process."""

    def __post_init__(self) -> None:
        super().__post_init__()
        with_profiles(super().resources, self.mig_profiles)
        for name in ("offer_limit", "max_gang_size"):
            self._refuse_if(getattr(self, name) < 1, name, "1 or more")
        tolerable = 0 <= self.score_tolerance <= 1000
        self._refuse_if(not tolerable, "score_tolerance", "at least 0 and at most 1000 thousandths of a GPU")
        for name in ("bind_timeout_s", "gang_bind_timeout_s"):
            self._refuse_if(not 0 < getattr(self, name) < math.inf, name, "a number of seconds above zero")
        for name in _SECONDS:
            self._refuse_if(not 0 <= getattr(self, name) < math.inf, name, "a number of seconds from zero on")
        named = not self.provisioning_class or provisioning.CLASS_NAME.fullmatch(self.provisioning_class)
        self._refuse_if(not named, "provisioning_class", "a name of at most 253 small letters, digits, - and .")
        allowed = priority.LEAST <= self.group_priority <= priority.HIGHEST
        self._refuse_if(not allowed, "group_priority", f"at most {priority.HIGHEST}")
        taint_keys = tuple(taint.partition("=")[0] for taint in self.drain_taints)
        for name, keys, kind in (
            ("locality_labels", self.locality_labels, "labels"),
            ("drain_taints", taint_keys, "taints or labels"),
        ):
            for key in keys:
                if not selector.KEY.fullmatch(key) or keys.count(key) > 1:
                    raise SettingsError(f"{option(name)} has {key!r}: expected keys of {kind}, each once")

    def _refuse_if(self, wrong: bool, name: str, expected: str) -> None:
        if wrong:
            raise SettingsError(f"{option(name)} is {getattr(self, name)}: expected {expected}")

    @property
    def resources(self) -> names.Resources:
        """The extended resources that pods request."""
        return with_profiles(super().resources, self.mig_profiles)

    @property
    def patience(self) -> Patience:
        """The time limits of gangs."""
        hold_s = self.bind_timeout_s / 2
        return Patience(
            stuck_s=min(Patience().stuck_s, hold_s),
            hold_s=hold_s,
            gang_bind_timeout_s=self.gang_bind_timeout_s,
            replacement_hold_s=self.replacement_hold_s,
        )
