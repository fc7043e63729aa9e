"""Finds out which container a call of the kubelet is for; the rule is in `candidates`.

One List of PodResources serves a preference and the Allocate after it. An Allocate is answered within about a second,
or within ten while the API server does not answer, since the kubelet does nothing else meanwhile.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

import structlog

from deviceplugin.candidates import Candidate, Candidates, Listed, Name, candidates
from deviceplugin.cluster import Cluster
from deviceplugin.podresources import PodResources, PodResourcesError
from deviceplugin.record import Record
from protos.contract.objects import Pod
from protos.contract.reason import Reason
from protos.kube import errors

log = structlog.get_logger()

PATIENCE_S = 1.0
SILENCE_S = 8.0
"""Patience while the API server does not answer; the timeout of the last read makes it ten."""
ROUND_S = 0.03
REREAD_S = 0.25
"""Within one call, pods in doubt are read again after this time: a node may have a hundred of them."""
KEEP_S = 0.25
"""How long the List of a preference is good for the Allocate after it."""
Meant = tuple[Candidate, tuple[Listed, ...]]
"""The container that is meant, and the List that shows it."""


class RefusedError(Exception):
    """An Allocate that is refused, with the reason for the user."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


class _Read(NamedTuple):
    """The pods that one call has read, None for a pod that does not exist, and when."""

    pods: dict[Name, Pod | None]
    at: dict[Name, float]


class Identifier:
    """Joins the kubelet's List, the pods of the API server and the record of answers."""

    def __init__(self, kubelet: PodResources, cluster: Cluster, record: Record) -> None:
        self.kubelet, self.cluster, self.record = kubelet, cluster, record
        self._kept: tuple[str, float, tuple[Listed, ...]] | None = None
        """The resource of the last preference, when its List came, and that List."""

    async def guess(self, resource: str, amount: int) -> Meant | None:
        """The container that is probably meant, at the cost of one List; None in doubt."""
        try:
            listed = await self.kubelet.list()
        except PodResourcesError as error:
            log.warning("preference_left_open", resource=resource, error=str(error))
            return None
        self._kept = resource, asyncio.get_running_loop().time(), listed
        found = self._candidates(resource, amount, listed, {}).found
        return (found[0], listed) if len(found) == 1 else None

    async def exactly(self, resource: str, amount: int) -> Meant:
        """The one container that is meant; raises RefusedError if it is not found in time."""
        clock = asyncio.get_running_loop().time
        start, silent, listed, read = clock(), False, self._take(resource), _Read({}, {})
        while True:
            try:
                listed = await self.kubelet.list() if listed is None else listed
                found = await self._settle(resource, amount, listed, read)
                if len(found) == 1:
                    return found[0], listed
                silent, trouble = False, "no pod of this node waits for it (a static pod cannot have GPUs)"
                if found:
                    trouble = f"{len(found)} containers of this node may be asking"
            except PodResourcesError as error:
                trouble = str(error)
            except errors.ApiError as error:
                silent, trouble = True, f"the API server does not answer ({error})"
            if clock() - start > (SILENCE_S if silent else PATIENCE_S):
                sentence = f"cannot tell which container asks for {amount} of {resource}"
                raise RefusedError(Reason("PodUnknown", sentence, trouble))
            listed = None
            await asyncio.sleep(ROUND_S)

    async def _settle(
        self, resource: str, amount: int, listed: tuple[Listed, ...], read: _Read
    ) -> tuple[Candidate, ...]:
        """The candidates in this List, once every pod in doubt was read from the API server. Raises ApiError.

        While the watch of the pods is down, a single candidate is in doubt too: another pod may have its name by now.
        So is a candidate that an earlier read of this call found.
        """
        found, unknown = self._candidates(resource, amount, listed, {})
        sure = len(found) == 1 and not unknown
        if sure and self.cluster.followed:
            return found
        try:
            if sure:
                return self._candidates(resource, amount, listed, await self._refresh(_names(found), read)).found
            now = asyncio.get_running_loop().time()
            bare = [entry.name for entry in listed if not entry.any(resource)]
            stale = [name for name in unknown or bare if now - read.at.get(name, -inf) >= REREAD_S]
            await self._refresh(stale, read)
            found = self._candidates(resource, amount, listed, read.pods).found
            if len(found) == 1 and _names(found)[0] not in stale:
                await self._refresh(_names(found), read)
                found = self._candidates(resource, amount, listed, read.pods).found
            return found
        except errors.ApiError:
            if sure:
                return found
            raise

    async def _refresh(self, wanted: Sequence[Name], read: _Read) -> dict[Name, Pod | None]:
        now = asyncio.get_running_loop().time()
        found = await self.cluster.refresh(wanted) if wanted else {}
        read.pods.update(found)
        read.at.update(dict.fromkeys(found, now))
        return found

    def _candidates(
        self, resource: str, amount: int, listed: Sequence[Listed], read: Mapping[Name, Pod | None]
    ) -> Candidates:
        return candidates(resource, amount, listed, {**self.cluster.pods, **read}, self.record)

    def _take(self, resource: str) -> tuple[Listed, ...] | None:
        """The List of a preference for this resource, if it is recent; each List is used once."""
        (wanted, at, listed), self._kept = self._kept or ("", -inf, ()), None
        return listed if wanted == resource and asyncio.get_running_loop().time() - at < KEEP_S else None


def _names(found: Iterable[Candidate]) -> list[Name]:
    return [(candidate.pod.metadata.namespace, candidate.pod.metadata.name) for candidate in found]
