"""Writes a gang's phase into the status of its PodGroups, in the words of each kind of PodGroup.

Operators wait for these words: Volcano's, and Kubeflow's with Volcano, create no pods before the phase is `Inqueue`. No
word says that a gang runs while fewer members run than its minimum. Sources: Volcano pkg/apis/scheduling, kube-batch
pkg/apis/scheduling, scheduler-plugins apis/scheduling and pkg/controllers.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import structlog

from extender.cluster.status import BY_US, Condition, Json, conditions, unwritten
from extender.engine.types.effects import GroupStatus
from gangfilter import podgroups
from gangfilter.table import Phase as P
from protos.contract import names
from protos.kube import errors, paths
from protos.kube.client import ApiClient
from protos.kube.events import Reference

log = structlog.get_logger(__name__)
Form = Callable[[GroupStatus, P, Mapping[str, Any], str], Json]
"""From what is said, the phase to show, the status as it is and the time (RFC 3339): the fields of the status."""
LOST = "GangMemberLost"
"""The code of a gang that runs with fewer members than its minimum because members are gone."""


class Words(NamedTuple):
    """A phase in the words of each dialect."""

    own: str
    volcano: str
    unschedulable: str
    """The reason of Volcano's condition Unschedulable, "" if that is not true."""
    coscheduling: str


WORDS = {
    P.ASSEMBLING: Words("Assembling", "Inqueue", "NotEnoughTasks", "Pending"),
    P.WAITING: Words("Waiting", "Inqueue", "NotEnoughResources", "Scheduling"),
    P.STARTING: Words("Starting", "Inqueue", "", "Scheduling"),
    P.BINDING: Words("Starting", "Inqueue", "", "Scheduling"),
    P.RUNNING: Words("Running", "Running", "", "Running"),
    P.DEGRADED: Words("Degraded", "Unknown", "NotEnoughResources", "Unknown"),
    P.UNDOING: Words("Degraded", "Unknown", "PodDeleted", "Unknown"),
    P.COMPLETED: Words("Completed", "Completed", "", "Finished"),
    P.FAILED: Words("Failed", "Inqueue", "NotEnoughResources", "Failed"),
}
"""Volcano has no word for a failed gang; with `Pending` an operator would never create pods for another try."""
_OWN = tuple(dict.fromkeys(WORDS[phase].own for phase in P))


def writes(kind: str) -> bool:
    """Whether we write the status of this API group and version; that of other kinds is left to their schedulers."""
    return _group(kind) in _FORMS


def status(kind: str, said: GroupStatus, before: Mapping[str, Any], now: str) -> Json:
    """The fields of a PodGroup's status.

    `kind` is the API group and version, `before` the status as it is, `now` the time (RFC 3339). A gang with fewer
    bound members than its minimum is shown as degraded, even if it was announced as running.
    """
    whole = said.bound + said.succeeded >= said.min_member
    phase = P.DEGRADED if said.phase is P.RUNNING and not whole else said.phase
    return _FORMS[_group(kind)](said, phase, before, now)


def _group(kind: str) -> str:
    return kind.partition("/")[0]


def _own(said: GroupStatus, phase: P, before: Mapping[str, Any], now: str) -> Json:
    """Each phase that the gang was in has a condition; the condition of the current phase is true."""
    word = WORDS[phase].own
    code, message = (said.reason.code, str(said.reason)) if said.reason else (word, _bound(said))
    past = [Condition(other, False, word, "") for other in _OWN if other != word]
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
    why = "PodDeleted" if said.reason is not None and said.reason.code == LOST else WORDS[phase].unschedulable
    unschedulable = Condition("Unschedulable", bool(why), why, str(said.reason or _bound(said)) if why else "")
    wanted = [unschedulable, Condition("Scheduled", scheduled, "", _bound(said))]
    return {"phase": WORDS[phase].volcano, **_counts(said), "conditions": conditions(wanted, before, now)}


def _coscheduling(said: GroupStatus, phase: P, before: Mapping[str, Any], now: str) -> Json:
    word = WORDS[phase].coscheduling
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
_PLURALS = {kind.api_version: kind.plural for kind in podgroups.KINDS}


class StatusWriter:
    """Writes the status of PodGroups."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._refused: set[str] = set()
        self._no_subresource: set[str] = set()
        """Kinds whose definition has no status subresource: there status is a field like any other."""

    async def write(self, said: GroupStatus) -> list[Reference]:
        """Write the status of every PodGroup of the gang; returns the PodGroups that it changed.

        Raises the errors of a request, except for PodGroups that are gone and kinds that may not be written.
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
        namespace, name = said.key.namespace, said.key.name
        where = {"group_version": kind, "plural": _PLURALS[kind], "namespace": namespace, "name": name}
        uid, changed = await unwritten(self._client, where, lambda before, now: status(kind, said, before, now))
        if not changed:
            return []
        await self._patch(kind, where, {"status": changed})
        return [Reference(kind, "PodGroup", name, namespace, uid)]

    async def _patch(self, kind: str, where: Mapping[str, str], patch: Json) -> None:
        if kind not in self._no_subresource:
            try:
                await self._client.patch(paths.path(**where, subresource="status"), patch, params=BY_US)
                return
            except errors.NotFound:
                pass  # the subresource does not exist, or the object is gone
        await self._client.patch(paths.path(**where), patch, params=BY_US)
        self._no_subresource.add(kind)
