"""The objects that declare groups, of every kind that there may be."""

from extender.cluster.optional import Complain, Declared, Source
from extender.engine.types.events import Event, GroupGone, GroupSeen
from gangfilter import podgroups
from gangfilter.group import Declaration, GroupKey
from protos.contract import training
from protos.contract.reason import Reason
from protos.contract.training import TrainingJob
from protos.kube.changes import Ref
from protos.kube.events import Reference

UNREADABLE = "GroupUnreadable"
Found = tuple[GroupKey, Declaration, TrainingJob | None]


def api_version(kind: podgroups.Kind) -> str:
    """Group and version, as in an object's apiVersion: how the engine knows a kind."""
    return f"{kind.api_group}/{kind.version}"


def sources(complain: Complain) -> list[Source]:
    """All kinds; `complain` is told of objects that cannot be read."""
    return [_source(kind, complain) for kind in podgroups.KINDS]


def _source(kind: podgroups.Kind, complain: Complain) -> Source:
    def decode(raw: bytes) -> Found:
        key, declaration = podgroups.declaration(kind, raw)
        return key, declaration, training.decode_job(raw) if kind.kind == training.JOB_KIND else None

    return Source(api_version(kind), kind.plural, kind.kind, decode, _Declared(kind, complain))


class _Declared(Declared):
    """What the objects of one kind declare."""

    def __init__(self, kind: podgroups.Kind, complain: Complain) -> None:
        self._kind, self._name, self._complain = kind, api_version(kind), complain

    def seen(self, _: Ref, found: Found) -> Event:
        key, declaration, job = found
        return GroupSeen(self._name, key, declaration, job)

    def gone(self, ref: Ref) -> Event:
        return GroupGone(self._name, GroupKey(ref.namespace, ref.name))

    def unreadable(self, ref: Ref, error: Exception) -> None:
        about = Reference(self._name, self._kind.kind, ref.name, ref.namespace, ref.uid)
        self._complain(about, Reason(UNREADABLE, str(error)))
