"""New pods, and whether each is to be born with our scheduling gate: the same for every part that decides it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gangfilter import naming
from gangfilter.values import Key, annotation, label
from protos.contract import names

Json = dict[str, Any]
SCHEDULERS = (names.PROFILE,)
OTHERS_GATE = "kueue.x-k8s.io/admission"
IN_A_GROUP = {names.GROUP: "g"}


def a_new_pod(*, annotations: Json | None = None, labels: Json | None = None, **spec: Any) -> Json:
    """A pod as it is sent to be created."""
    containers = [{"name": "main", "image": "localhost/busybox:1"}]
    metadata: Json = {"generateName": "new-", "namespace": "default"}
    metadata |= {"annotations": annotations} if annotations else {}
    metadata |= {"labels": labels} if labels else {}
    whole = {"schedulerName": names.PROFILE, "containers": containers, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": whole}


def saying(key: Key, value: str = "g1") -> Json:
    """A pod that says this."""
    return a_new_pod(**{f"{key.place}s": {key.name: value}})


def _misplaced() -> Iterator[Key]:
    for key in naming.KEYS:
        elsewhere = label(key.name) if key.place == "annotation" else annotation(key.name)
        if elsewhere not in naming.KEYS:
            yield elsewhere


CASES: dict[str, tuple[Json, bool]] = {
    **{f"a group's {key}": (saying(key), True) for key in naming.KEYS},
    **{f"no group's {key}": (saying(key), False) for key in _misplaced()},
    "a single pod": (a_new_pod(), False),
    "a single pod with labels and annotations": (a_new_pod(labels={"app": "a"}, annotations={"note": "b"}), False),
    "a role alone": (a_new_pod(annotations={names.ROLE: "worker"}), False),
    "another scheduler's": (a_new_pod(annotations=IN_A_GROUP, schedulerName="default-scheduler"), False),
    "one that has a node": (a_new_pod(annotations=IN_A_GROUP, nodeName="node-1"), False),
    "one behind somebody else's gate": (
        a_new_pod(annotations=IN_A_GROUP, schedulingGates=[{"name": OTHERS_GATE}]),
        True,
    ),
    "one behind our gate": (a_new_pod(annotations=IN_A_GROUP, schedulingGates=[{"name": names.PLAN_GATE}]), True),
    "one of no group behind our gate": (a_new_pod(schedulingGates=[{"name": names.PLAN_GATE}]), True),
}
"""A pod, and whether our gate is on it in the end."""
IN_SPEC = a_new_pod(schedulingGroup={"podGroupName": "g1"})
"""A group named by a field of Kubernetes 1.36."""


def gates(pod: Json) -> list[str]:
    """The names of a pod's scheduling gates."""
    return [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]


def as_expected(case: str, found: Json) -> bool:
    """Whether a pod of this case came out right: its own gates are all there, ours once or not at all."""
    sent, gated = CASES[case]
    own = [gate for gate in gates(sent) if gate != names.PLAN_GATE]
    return sorted(gates(found)) == sorted([*own, *([names.PLAN_GATE] if gated else [])])
