"""Subjects of the engine's work: an error in the work is caught and reported under its subject."""

from __future__ import annotations

from typing import Literal, NamedTuple

from gangfilter.group import GroupKey
from protos.contract.training import Scaler

SubjectKind = Literal["pod", "node", "gang", "class", "queue", "budget", "priority", "scaler", "part"]


class Subject(NamedTuple):
    """An object, a gang, or (kind `part`) a component of the engine."""

    kind: SubjectKind
    key: str
    """A pod's UID; else the name, as NAMESPACE/NAME if the kind is namespaced."""
    source: str = ""
    """API group and version of a queue, or the kind of a scaler."""


def of_pod(uid: str) -> Subject:
    """The pod with this UID."""
    return Subject("pod", uid)


def of_gang(key: GroupKey) -> Subject:
    """The gang with this key."""
    return Subject("gang", str(key))


def of_node(name: str) -> Subject:
    """The node of this name."""
    return Subject("node", name)


def of_scaler(scaler: Scaler) -> Subject:
    """This ScaleIn or ScaleOut."""
    return Subject("scaler", f"{scaler.namespace}/{scaler.name}", scaler.kind)
