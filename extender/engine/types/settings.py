"""Engine settings."""

from __future__ import annotations

import math
import re
from typing import Annotated, Literal

from gangfilter.gang import Patience
from protos.contract import priority
from protos.contract.flag import Flag, listed
from protos.contract.shared_settings import SettingsError, SharedSettings

LOCALITY_LABELS = ("topology.kubernetes.io/zone",)
"""Labels that say where a node is, from near to far, if nothing else is said."""
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
"""Taints that say that a node is about to go, if nothing else is said. Source: cluster-autoscaler utils/taints;
karpenter disruption (the second of its two before v1); aws-node-termination-handler TAINT_NODE; GKE's
k8s-node-termination-handler; AKS node auto-drain."""

ElasticQuotas = Literal["limits", "deserved", "guaranteed"]


_WHOLE = re.compile(r"-?[0-9]{1,10}")
_LABEL = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
"""A label's key, as Kubernetes takes it."""
_SECONDS = (
    "replacement_hold_s",
    "reservation_ttl_s",
    "min_runtime_s",
    "scale_in_timeout_s",
    "scale_out_delay_s",
    "backfill_delay_s",
)


def group_priority(text: str) -> int:
    """What the PriorityClass of a PodGroup may give: `members`, `any` or a number; raises SettingsError."""
    named = {"members": priority.LEAST, "any": priority.HIGHEST}
    if text in named:
        return named[text]
    if not _WHOLE.fullmatch(text) or not priority.LEAST <= int(text) <= priority.HIGHEST:
        raise SettingsError(f"{text!r} is no priority: expected members, any or a number up to {priority.HIGHEST}")
    return int(text)


class Settings(SharedSettings, frozen=True, kw_only=True):
    """Settings of the decisions, the same for the whole cluster. Fields with a `Flag` are given by users."""

    offer_limit: Annotated[
        int, Flag("Most nodes in a filter answer; kube-scheduler's own scores decide among them.")
    ] = 16
    score_tolerance: Annotated[
        int, Flag("Nodes that cost so many more thousandths of a GPU are as good as the best.")
    ] = 10
    in_tree_preferences: Annotated[
        bool, Flag("Offer all nodes that are about equally good to every pod, not only some of them (slower).")
    ] = False
    scheduler_names: Annotated[
        tuple[str, ...],
        Flag(
            "Schedulers that ask us, by comma; pods of others count in no gang until they are bound. Empty: all.",
            listed,
        ),
    ] = ()
    gang_bind_timeout_s: Annotated[
        float, Flag("Seconds from the first Binding of a gang until all members must be bound; else it is undone.")
    ] = 30.0
    replacement_hold_s: Annotated[
        float, Flag("Seconds for which the GPUs of a lost gang member are held for its replacement; 0 disables.")
    ] = 300.0
    reservation_ttl_s: Annotated[
        float, Flag("Most seconds for which a gangshare.io/reservation holds GPUs for a pending pod; 0 disables.")
    ] = 300.0
    preemption: Annotated[
        bool, Flag("Evict pods of lower priority for pending pods and gangs; needs --reservation-ttl above 0.")
    ] = True
    min_runtime_s: Annotated[float, Flag("Seconds that a pod or gang runs before it may be preempted.")] = 30.0
    group_priority: Annotated[
        int,
        Flag(
            "Most that the PriorityClass of a PodGroup gives: the highest of its members, any, or this number.",
            group_priority,
            "members|any|NUMBER",
            "members",
        ),
    ] = priority.LEAST
    elastic_quotas: Annotated[
        ElasticQuotas,
        Flag("What counts of an ElasticQuota. limits: max; deserved: min too; guaranteed: min also while it is idle."),
    ] = "deserved"
    """A tenant may have made it, so its minimum is no guarantee unless an operator says so."""
    scale_in_timeout_s: Annotated[
        float, Flag("Seconds that an elastic job's operator has to remove workers before they are evicted; 0: none.")
    ] = 120.0
    """No less than the workers' own grace period."""
    scale_out_delay_s: Annotated[
        float, Flag("Seconds that GPUs are idle with no pending pod for them before an elastic job grows; 0 disables.")
    ] = 60.0
    backfill_delay_s: Annotated[
        float, Flag("Seconds that the first of a queue is pending before it gets a backfill reservation; 0 disables.")
    ] = 300.0
    bind_timeout_s: Annotated[
        float, Flag("The scheduler's httpTimeout for bind in seconds; binds of gangs wait half as long at most.")
    ] = 120.0
    max_gang_size: Annotated[
        int, Flag("Most members that start together; all must come into bind in half of the bind timeout.")
    ] = 2000
    """Their binds are held until the last has come, and each holds a connection."""
    locality_labels: Annotated[
        tuple[str, ...],
        Flag(
            "Node labels of location, nearest first, by comma: gangs are kept together by them. Empty disables.",
            listed,
            default=",".join(LOCALITY_LABELS),
        ),
    ] = LOCALITY_LABELS
    drain_taints: Annotated[
        tuple[str, ...],
        Flag(
            "Taints or labels, KEY or KEY=VALUE, of nodes that will go, by comma: they are drained. Empty disables.",
            listed,
            default=",".join(DRAIN_TAINTS),
        ),
    ] = DRAIN_TAINTS
    soft_charge_s: float = 1.0
    """Seconds for which a node stays charged for a pod that filter sent there, until its bind."""
    undecided_s: float = 0.05
    """Seconds for which a filter waits for the bind of an earlier pod that was offered several nodes."""
    unseen_bind_s: float = 15.0
    """Seconds after the start in which a bind is served although this process saw no filter of that pod."""
    nominate_from: int = 500
    """Nodes from which on members of a gang that starts are nominated to theirs before kube-scheduler asks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("offer_limit", 1), ("score_tolerance", 0), ("max_gang_size", 1)):
            if getattr(self, name) < least:
                raise SettingsError(f"{name} is {getattr(self, name)}: expected {least} or more")
        if self.score_tolerance > 1000:
            raise SettingsError(
                f"score_tolerance is {self.score_tolerance}: expected at most 1000, thousandths of a GPU"
            )
        for name in ("bind_timeout_s", "gang_bind_timeout_s"):
            if getattr(self, name) <= 0:
                raise SettingsError(f"{name} is {getattr(self, name)}: expected a number of seconds above zero")
        for name in _SECONDS:
            if not 0 <= getattr(self, name) < math.inf:
                raise SettingsError(f"{name} is {getattr(self, name)}: expected a number of seconds from zero on")
        if not priority.LEAST <= self.group_priority <= priority.HIGHEST:
            raise SettingsError(f"group_priority is {self.group_priority}: expected at most {priority.HIGHEST}")
        for label in self.locality_labels:
            if not _LABEL.fullmatch(label) or self.locality_labels.count(label) > 1:
                raise SettingsError(f"locality_labels has {label!r}: expected keys of labels, each once")
        keys = [taint.partition("=")[0] for taint in self.drain_taints]
        for key in keys:
            if not _LABEL.fullmatch(key) or keys.count(key) > 1:
                raise SettingsError(f"drain_taints has {key!r}: expected keys of taints or labels, each once")

    @property
    def patience(self) -> Patience:
        """How long gangs may take."""
        hold_s = self.bind_timeout_s / 2
        return Patience(
            stuck_s=min(Patience().stuck_s, hold_s),
            hold_s=hold_s,
            gang_bind_timeout_s=self.gang_bind_timeout_s,
            replacement_hold_s=self.replacement_hold_s,
        )
