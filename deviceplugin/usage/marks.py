"""Tells the extender which pods use none of their GPUs, by the pod annotation `gangshare.io/idle`.

It is written when a pod has been idle for so long, and taken away in the look in which it works again. It holds until a
deadline, which is moved on in time. So a pod costs one write for each beginning and end, and one each few minutes.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import structlog

from protos.contract import codec, idle, names
from protos.contract.measured import Use
from protos.contract.objects import Pod
from protos.contract.timestamps import epoch_seconds, timestamp
from protos.kube import errors, paths
from protos.kube.client import STRATEGIC_PATCH, ApiClient

log = structlog.get_logger()

HOLDS_S = 900.0
"""Seconds for which a mark is believed."""
MOVED_ON_S = HOLDS_S / 2
"""Seconds before its end when it is moved on."""
AT_ONCE = 10
"""Writes of one look; the others come with the next."""
SLACK_S = 5.0
"""By so much the two times of one idleness may differ: marks have whole seconds, and looks take a moment."""


class Write(NamedTuple):
    """A pod, and its mark; None takes the mark away."""

    pod: Pod
    mark: idle.Idle | None


def idle_s(uses: Iterable[Use]) -> dict[str, float]:
    """For how long pods have used none of their GPUs, by UID; pods of which that is unknown are left out."""
    found: dict[str, float | None] = {}
    for use in uses:
        if not use.uid or not use.asks:
            continue
        before = found.get(use.uid, use.idle)
        found[use.uid] = None if before is None or use.idle is None else min(before, use.idle)
    promised = {use.uid for use in uses if use.promised}
    return {uid: seconds for uid, seconds in found.items() if seconds is not None and uid in promised}


def due(pods: Iterable[Pod], idle_for: Mapping[str, float], least: float, now: float) -> list[Write]:
    """The marks to write now, at this time since 1970; first those that are true no more."""
    taken, written = [], []
    for pod in pods:
        seconds, said = idle_for.get(pod.metadata.uid, 0.0), idle.of(pod)
        if seconds < least:
            taken += [Write(pod, None)] if said else []
        elif said is None or not _holds(said, now - seconds, now):
            since, until = timestamp(now - seconds), timestamp(now + HOLDS_S)
            written.append(Write(pod, idle.Idle(codec.VERSION, since, until)))
    return taken + written


def _holds(said: idle.Idle, since: float, now: float) -> bool:
    return abs(epoch_seconds(said.since) - since) <= SLACK_S and epoch_seconds(said.until) - now > MOVED_ON_S


class Marks:
    """Writes them, unless the API server refuses."""

    def __init__(self, client: ApiClient, least: float) -> None:
        """`least`: seconds of idleness from which a pod is marked."""
        self._client, self._least = client, least
        self._trouble = ""

    async def write(self, pods: Iterable[Pod], uses: tuple[Use, ...], now: float) -> None:
        """Write what is due; after an error the rest waits for the next look."""
        for pod, mark in due(pods, idle_s(uses), self._least, now)[:AT_ONCE]:
            trouble = await self._write(pod, mark)
            if trouble and trouble != self._trouble:
                log.warning("idle_not_written", error=trouble)
            self._trouble = trouble
            if trouble:
                return

    async def _write(self, pod: Pod, mark: idle.Idle | None) -> str:
        """Why it was not written, "" if it was, or if the pod has gone."""
        meta = pod.metadata
        text = None if mark is None else idle.encode(mark)
        body = {"metadata": {"uid": meta.uid, "annotations": {names.IDLE: text}}}
        path = paths.pod(meta.namespace, meta.name, "status")
        try:
            await self._client.patch(path, body, content_type=STRATEGIC_PATCH, params={"fieldManager": names.USAGE})
        except (errors.NotFound, errors.Conflict):
            return ""
        except errors.ApiError as error:
            return str(error)
        return ""
