"""How a gang stands, in the words of each kind of PodGroup, and writing that into its status.

Operators wait for these words: Volcano's, and Kubeflow's with Volcano, make no pods before the phase is `Inqueue`. No
word says that a gang runs while fewer than its minimum do. Sources: Volcano pkg/apis/scheduling, kube-batch
pkg/apis/scheduling, scheduler-plugins apis/scheduling and pkg/controllers.
"""

from collections.abc import Callable, Mapping
from typing import Any

import structlog

from extender.cluster.status import BY_US, Condition, Json, conditions, read, unwritten
from extender.engine.types.effects import GroupStatus
from gangfilter import podgroups
from gangfilter.table import Phase as P
from protos.contract import names
from protos.kube import errors, paths
from protos.kube.client import ApiClient
from protos.kube.events import Reference

log = structlog.get_logger(__name__)
Form = Callable[[GroupStatus, P, Mapping[str, Any], str], Json]
"""Of what is to be said, its phase, the status as it is and the time (RFC 3339): the fields to be written."""


_PLURALS = {kind.api_version: kind.plural for kind in podgroups.KINDS}


LOST = "GangMemberLost"
"""The code of a gang that runs with fewer than its minimum since members are gone."""


# Phases in the words of each dialect.

_OWN = {phase: str(phase) for phase in P} | {P.BINDING: "Starting", P.UNDOING: "Degraded"}
_VOLCANO = {
    P.ASSEMBLING: "Inqueue",
    P.WAITING: "Inqueue",
    P.STARTING: "Inqueue",
    P.BINDING: "Inqueue",
    P.RUNNING: "Running",
    P.DEGRADED: "Unknown",
    P.UNDOING: "Unknown",
    P.COMPLETED: "Completed",
    P.FAILED: "Inqueue",
}
"""There is no word for a failed one; with `Pending` an operator would never make pods for another try."""
_VOLCANO_REASONS = {
    P.ASSEMBLING: "NotEnoughTasks",
    P.WAITING: "NotEnoughResources",
    P.FAILED: "NotEnoughResources",
    P.DEGRADED: "NotEnoughResources",
    P.UNDOING: "PodDeleted",
}
_COSCHEDULING = {
    P.ASSEMBLING: "Pending",
    P.WAITING: "Scheduling",
    P.STARTING: "Scheduling",
    P.BINDING: "Scheduling",
    P.RUNNING: "Running",
    P.DEGRADED: "Unknown",
    P.UNDOING: "Unknown",
    P.COMPLETED: "Finished",
    P.FAILED: "Failed",
}


def shown(said: GroupStatus) -> P:
    """The phase to be shown; what is bound decides over what was announced."""
    whole = said.bound + said.succeeded >= said.min_member
    return P.DEGRADED if said.phase is P.RUNNING and not whole else said.phase


def writes(kind: str) -> bool:
    """Whether objects of this API group and version are told; the status of others is left to others."""
    return _group(kind) in _FORMS


def status(kind: str, said: GroupStatus, before: Mapping[str, Any], now: str) -> Json:
    """The fields of a PodGroup's status that say this.

    `kind` is the API group and version, `before` the status as it is, `now` the time (RFC 3339).
    """
    return _FORMS[_group(kind)](said, shown(said), before, now)


def _group(kind: str) -> str:
    return kind.partition("/")[0]


def _own(said: GroupStatus, phase: P, before: Mapping[str, Any], now: str) -> Json:
    """Each phase that the gang was in has a condition; that of the present one is true."""
    word = _OWN[phase]
    code, message = (said.reason.code, str(said.reason)) if said.reason else (word, _bound(said))
    past = [Condition(other, False, word, "") for other in dict.fromkeys(_OWN.values()) if other != word]
    return {
        "phase": word,
        "minMember": said.min_member,
        "members": said.present,
        "bound": said.bound,
        "succeeded": said.succeeded,
        "failed": said.failed,
        "conditions": conditions([*past, Condition(word, True, code, message)], before, now),
    }


def _volcano(said: GroupStatus, phase: P, before: Mapping[str, Any], now: str) -> Json:
    scheduled = phase in (P.RUNNING, P.COMPLETED)
    why = "" if scheduled or phase in (P.STARTING, P.BINDING) else _VOLCANO_REASONS[phase]
    if said.reason is not None and said.reason.code == LOST:
        why = "PodDeleted"
    unschedulable = Condition("Unschedulable", bool(why), why, str(said.reason or _bound(said)) if why else "")
    told = [unschedulable, Condition("Scheduled", scheduled, "", _bound(said))]
    return {"phase": _VOLCANO[phase], **_counts(said), "conditions": conditions(told, before, now)}


def _coscheduling(said: GroupStatus, phase: P, before: Mapping[str, Any], now: str) -> Json:
    word = _COSCHEDULING[phase]
    began = before.get("scheduleStartTime") or (now if word == "Scheduling" else None)
    return {"phase": word, **_counts(said), **({"scheduleStartTime": began} if began else {})}


def _bound(said: GroupStatus) -> str:
    return f"{said.bound} of {max(said.present, said.min_member)} members are bound"


def _counts(said: GroupStatus) -> Json:
    return {"running": said.bound, "succeeded": said.succeeded, "failed": said.failed}


_FORMS: dict[str, Form] = {
    names.DOMAIN: _own,
    "scheduling.volcano.sh": _volcano,
    "scheduling.incubator.k8s.io": _volcano,
    "scheduling.x-k8s.io": _coscheduling,
    "scheduling.sigs.k8s.io": _coscheduling,
}
"""By API group."""


class StatusWriter:
    """Writes the status of PodGroups."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._refused: set[str] = set()
        self._whole: set[str] = set()
        """Kinds whose definition has no status subresource: there status is a field like any other."""

    async def write(self, said: GroupStatus) -> list[Reference]:
        """Say this on every PodGroup of the gang; what is there already is not written again.

        Returns the PodGroups that did not say it before. Raises the errors of a request, but for PodGroups that are
        gone and kinds that may not be written.
        """
        written: list[Reference] = []
        for kind in filter(writes, said.kinds):
            try:
                written += await self._write(kind, said)
            except errors.NotFound:
                continue
            except errors.Forbidden as error:
                if kind not in self._refused:
                    log.warning("group_status_refused", kind=kind, error=str(error), expected="get and patch")
                self._refused.add(kind)
        return written

    async def _write(self, kind: str, said: GroupStatus) -> list[Reference]:
        where = {
            "group_version": kind,
            "plural": _PLURALS[kind],
            "namespace": said.key.namespace,
            "name": said.key.name,
        }
        there = await read(self._client, where)
        changed = unwritten(there, lambda before, now: status(kind, said, before, now))
        if not changed:
            return []
        await self._patch(kind, where, {"status": changed})
        return [Reference(kind, "PodGroup", said.key.name, said.key.namespace, there.metadata.uid)]

    async def _patch(self, kind: str, where: Mapping[str, str], patch: Json) -> None:
        if kind not in self._whole:
            try:
                await self._client.patch(paths.path(**where, subresource="status"), patch, params=BY_US)
                return
            except errors.NotFound:
                pass  # no such subresource, or no such object any more
        await self._client.patch(paths.path(**where), patch, params=BY_US)
        self._whole.add(kind)
