"""What the engine works for: the name of an object, under which an error over it is caught and told."""

from __future__ import annotations

from typing import Literal, NamedTuple

from gangfilter.group import GroupKey
from protos.contract.training import Scaler

SubjectKind = Literal["pod", "node", "gang", "class", "queue", "budget", "priority", "scaler", "part"]


class Subject(NamedTuple):
    """An object, a gang, or (kind `part`) a component of the engine."""

    kind: SubjectKind
    key: str
    """A pod's UID, NAMESPACE/NAME of a gang, the name of anything else, with its namespace if it has one."""
    source: str = ""
    """Which kind of queue (its API group and version) or of scaler it is."""


def of_pod(uid: str) -> Subject:
    """The pod with this UID."""
    return Subject("pod", uid)


def of_gang(key: GroupKey) -> Subject:
    """The gang of this name."""
    return Subject("gang", str(key))


def of_node(name: str) -> Subject:
    """The node of this name."""
    return Subject("node", name)


def of_scaler(scaler: Scaler) -> Subject:
    """This ScaleIn or ScaleOut."""
    return Subject("scaler", f"{scaler.namespace}/{scaler.name}", scaler.kind)
