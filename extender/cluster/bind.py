"""Writes the Binding of a placement and finds out what became of it.

A write without an answer may have happened. So a Binding ends in one of two ways only: `bound` (the pod is on our node
with our allocation) or `lost` (it is not, and this write will not put it there). There is no outcome until a read of
the pod shows which. Binding again is harmless: UID, node and annotations are the same.
Source: registry/core/pod/storage assignPod (409 once a node is set), kube-apiserver --request-timeout.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec
import structlog

from extender.cluster.hand_over import LANDING_S
from extender.cluster.leadership import Permission
from extender.engine.types.effects import PostBinding
from protos.contract import names, ownership
from protos.contract.objects import Pod
from protos.kube import binding, errors, paths
from protos.kube.client import ApiClient

PATIENCE_S = 3.0
"""Seconds for which a Binding that surely did not arrive is tried again."""
PAUSE_S, PAUSE_MOST_S = 0.05, 2.0

log = structlog.get_logger(__name__)
_pods = msgspec.json.Decoder(Pod)


class Outcome(NamedTuple):
    """What became of a Binding; `sentence` says why it is lost."""

    kind: Literal["bound", "lost"]
    sentence: str = ""


BOUND = Outcome("bound")


class Binder:
    """Writes Bindings."""

    def __init__(self, client: ApiClient, permission: Permission, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._permission, self._clock = client, permission, clock
        self.under_way = 0
        """Bindings whose outcome is not known yet."""

    def expect(self, binds: int) -> None:
        """Prepare for so many held binds, which may be released at once."""
        self._client.expect(binds)

    async def bind(self, place: PostBinding) -> Outcome:
        """Bind the pod; returns once the outcome is known."""
        self.under_way += 1
        try:
            await self._permission.settled()
            return await self._decided(place)
        except asyncio.CancelledError:
            self.under_way += 1  # nobody learns its outcome any more
            raise
        finally:
            self.under_way -= 1

    async def _decided(self, place: PostBinding) -> Outcome:
        started, in_doubt_until, pause = self._clock(), 0.0, PAUSE_S
        while True:
            refusal = await self._post(place)
            if refusal is None:
                return BOUND
            if isinstance(refusal, errors.Unavailable) and refusal.outcome_unknown:
                in_doubt_until = self._clock() + LANDING_S
                log.warning("bind_unknown", pod=str(place.pod), node=place.node, error=str(refusal))
            doubt = self._clock() < in_doubt_until
            if in_doubt_until or isinstance(refusal, errors.Conflict):
                try:
                    outcome = await self._read(place)
                except errors.ApiError as error:
                    log.warning("bind_unread", pod=str(place.pod), node=place.node, error=str(error))
                    doubt, outcome = True, None
                if outcome is not None:
                    return outcome
            if not (doubt or (isinstance(refusal, errors.Unavailable) and self._clock() - started < PATIENCE_S)):
                return Outcome("lost", refusal.message or str(refusal))
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_MOST_S)

    async def _post(self, place: PostBinding) -> errors.ApiError | None:
        """Send the Binding; None once it is carried out."""
        pod = place.pod
        try:
            await binding.bind(
                self._client,
                namespace=pod.namespace,
                name=pod.name,
                uid=pod.uid,
                node=place.node,
                annotations=place.annotations,
            )
        except errors.ApiError as error:
            return error
        return None

    async def _read(self, place: PostBinding) -> Outcome | None:
        """The outcome by a consistent read of the pod; None if it is still unbound."""
        try:
            pod = await self._client.fetch(paths.pod(place.pod.namespace, place.pod.name), _pods)
        except errors.NotFound:
            return Outcome("lost", "the pod is gone")
        return judge(place, pod)


def judge(place: PostBinding, pod: Pod) -> Outcome | None:
    """The outcome of a Binding by the pod as it is now; None if it is still unbound.

    On our node an allocation that the plugin or an extender corrected later is as good as that of the Binding: the pod
    is bound there, and its GPUs are read from the pod itself.
    """
    if pod.metadata.uid != place.pod.uid:
        return Outcome("lost", "the pod was replaced by another of the same name")
    node = pod.spec.node_name
    if not node:
        return None
    if node != place.node:
        return Outcome("lost", f"the pod is already assigned to node {node}")
    wanted = place.annotations.get(names.ALLOCATION)
    shown = pod.metadata.annotations.get(names.ALLOCATION)
    if wanted is not None and shown != wanted and not (shown and ownership.allocation_by_us(pod)):
        return Outcome("lost", f"the pod is already assigned to node {node}, with another allocation")
    return BOUND
