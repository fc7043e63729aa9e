"""What the engine can be told."""

from __future__ import annotations

from typing import Literal

import msgspec

from gangfilter.gang import Patience
from protos.contract import names, priority

LOCALITY_LABELS = ("topology.kubernetes.io/zone",)
"""Labels that say where a node is, from near to far, if nothing else is said."""
LEAVING = (
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


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the decisions, the same for the whole cluster."""

    resources: names.Resources = names.Resources()
    """The extended resource names that pods ask for."""
    unit_mib: int = names.DEFAULT_UNIT_MIB
    """MiB per unit of GPU memory. A node that counts in another unit takes no new pods."""
    slices_per_gpu: int = names.DEFAULT_SLICES_PER_GPU
    """Time slices per GPU, where a node does not say."""
    offer_limit: int = 16
    """How many equally good nodes a filter answer names at most; kube-scheduler's own scores decide among them."""
    band: int = 10
    """Nodes that cost at most so many thousandths of a GPU more than the best count as equally good."""
    soft_charge_s: float = 1.0
    """Seconds for which a node stays charged for a pod that filter sent there, until its bind."""
    undecided_s: float = 0.05
    """Seconds for which a filter waits for the bind of an earlier pod that was offered several nodes."""
    unseen_bind_s: float = 15.0
    """Seconds after the start in which a bind is served although this process saw no filter of that pod."""
    schedulers: frozenset[str] = frozenset()
    """Scheduler names whose pods come to us (empty: all); others' pods count in no gang until they are bound."""
    patience: Patience = Patience()
    """How long gangs may take."""
    largest_gang: int = 2000
    """Members that may start together at most: their binds are held until the last has come, kube-scheduler takes them
    one after the other, and each holds a connection."""
    keep_s: float = 300.0
    """Seconds for which room is kept at most for a pod whose `gangshare.io/reservation` asks for it; 0: not."""
    preemption: bool = True
    """Evict pods of lower priority for those that wait; takes a `keep_s` above 0."""
    min_run_s: float = 30.0
    """Seconds that a pod or gang runs at least before others take its room."""
    group_priority: int = priority.LEAST
    """The PriorityClass of a PodGroup gives its gang so much at most, or as much as the highest of its members has."""
    elastic_quotas: ElasticQuotas = "deserved"
    """What counts of an ElasticQuota, which a tenant may have made: `limits`: its maximum; `deserved`: its minimum too,
    as its part; `guaranteed`: that is kept for it where it lends nothing."""
    scale_in_s: float = 120.0
    """Seconds that an elastic job's operator has to let workers go whose room others take, and no less than they have
    to end; then they are evicted. 0: they are at once."""
    grow_after_s: float = 60.0
    """Seconds for which there must be room for more workers of an elastic job that nobody else waits for, until it gets
    them; 0: it does not."""
    backfill_s: float = 300.0
    """Seconds that the first of a queue waits until room is kept for it, which those behind it must not delay; 0: none
    is kept."""
    locality_labels: tuple[str, ...] = LOCALITY_LABELS
    """Labels that say where a node is, from near to far: members of a gang are kept together by them."""
    leaving: tuple[str, ...] = LEAVING
    """Keys of taints or labels by which a node is about to go, or `key=value`: nobody is placed there any more, and who
    can be spared there goes."""
    nominate_from: int = 500
    """Nodes from which on members of a gang that starts are nominated to theirs before kube-scheduler asks."""
    in_tree_preferences: bool = False
    """Offer all nodes that are about equally good to every pod, not `offer_limit` of them (slower)."""
    gpushare: bool = False
    """Speak the gpushare dialect beside our own: its annotations are written and read."""
