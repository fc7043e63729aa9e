"""Changes the memory limits of running pods to what the extender has booked for them (`gangshare.io/resized`).

Each answer of the extender is carried out once, and after a start of the plugin again: then limits that are already
right are set to the same. What fails is tried again. The outcome goes to `gangshare.io/limited`, for people.
"""

import asyncio
from collections.abc import Mapping

import msgspec
import structlog

from deviceplugin.cluster import Cluster
from deviceplugin.isolation import demands
from deviceplugin.isolation.watch import Watch
from deviceplugin.limits.client import Limits
from deviceplugin.limits.protocol import Limit, LimitError
from deviceplugin.offer import Offer
from deviceplugin.record import Record
from protos.contract import codec, names, resize
from protos.contract.books import NodeBooks
from protos.contract.objects import ENDED, Pod
from protos.contract.resize import Limited, Resized
from protos.kube import errors

log = structlog.get_logger()

DONE, FAILED = "Resized", "ResizeFailed"
LOOK_S = 0.5
RETRY_S = 30.0
NO_HELPER = "this node has no helper that changes limits: add components/isolation-limits to the installation"


class _Tried(msgspec.Struct):
    """How it stands with the last answer on a pod."""

    id: str
    why: str = ""
    """Why it could not be carried out, "" if it was."""
    due: float = 0.0


class Resizing:
    """The pods of this node whose limits others want changed."""

    def __init__(self, cluster: Cluster, record: Record, offer: Offer, watch: Watch, limits: Limits | None) -> None:
        """`limits` is the helper, None where there is none."""
        self._cluster, self._record, self._offer, self._watch, self._limits = cluster, record, offer, watch, limits
        self._tried: dict[str, _Tried] = {}

    async def run(self) -> None:
        """Carry out answers for ever."""
        await self._cluster.pods_listed.wait()
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Carry out the answers that are new, or due again."""
        now = asyncio.get_running_loop().time()
        here = {pod.metadata.uid: pod for pod in self._cluster.pods.values() if pod.status.phase not in ENDED}
        self._tried = {uid: tried for uid, tried in self._tried.items() if uid in here}
        for uid, pod in here.items():
            if (answer := _answer(pod)) is None:
                continue
            tried = self._tried.get(uid)
            if tried is None or tried.id != answer.id or (tried.why and tried.due <= now):
                await self._carry_out(pod, answer, now)

    def pending(self, pod: Pod) -> bool:
        """Whether the pod has an answer that is not carried out yet, so that its limits may be those from before."""
        answer, tried = _answer(pod), self._tried.get(pod.metadata.uid)
        return answer is not None and (tried is None or tried.id != answer.id)

    async def _carry_out(self, pod: Pod, answer: Resized, now: float) -> None:
        before, why = self._tried.get(pod.metadata.uid), ""
        try:
            await self._limit(pod, self._mib(pod, answer.containers))
        except LimitError as error:
            why = str(error)
        self._tried[pod.metadata.uid] = _Tried(answer.id, why, now + RETRY_S)
        if not answer.refused and (before is None or (before.id, before.why) != (answer.id, why)):
            await self._tell(pod, answer, why)

    def _mib(self, pod: Pod, amounts: Mapping[str, int]) -> dict[str, int]:
        """The limits of these containers in MiB; raises LimitError if they are not for this pod or its GPUs."""
        inventory, limits = self._offer.inventory, self._record.limits(pod.metadata.uid)
        given = self._record.given(pod.metadata.uid)
        usable = {gpu.uuid: gpu.mem_mib for gpu in inventory.gpus}
        found = {}
        for name, amount in amounts.items():
            if name not in limits:
                raise LimitError(f"container {name} was given no memory limit that could be changed")
            if (lost := next((uuid for uuid in given.get(name, ()) if uuid not in usable), None)) is not None:
                raise LimitError(f"GPU {lost} has left the node")
            found[name] = min([amount * inventory.unit_mib, *(usable[uuid] for uuid in given.get(name, ()))])
        return found

    async def _limit(self, pod: Pod, mib: Mapping[str, int]) -> None:
        """Set these limits, and expect them from then on; raises LimitError."""
        if self._limits is None:
            raise LimitError(NO_HELPER)
        if not (setter := self._watch.setter):
            raise LimitError("this node does not limit memory now")
        uid, ledger = pod.metadata.uid, NodeBooks(self._offer.inventory)
        if setter == "helper":
            together = demands.of_pod(pod, self._record, ledger, self._offer.sharing.resources, mib)
            await self._limits.ask(Limit(pod=uid, mib=together))
        else:
            await self._limit_containers(self._limits, pod, mib)
        self._record.resize(uid, mib)

    async def _limit_containers(self, limits: Limits, pod: Pod, mib: Mapping[str, int]) -> None:
        """Limit those that run; the read-back finds others when they run."""
        uid, given = pod.metadata.uid, self._record.given(pod.metadata.uid)
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
            number = status.container_id.rpartition("//")[2]
            if status.name in mib and status.state.running and number:
                by_gpu = dict.fromkeys(given.get(status.name, ()), mib[status.name])
                await limits.ask(Limit(pod=uid, container=number, mib=by_gpu))

    async def _tell(self, pod: Pod, answer: Resized, why: str) -> None:
        limits = ", ".join(f"{name} {mib} MiB" for name, mib in self._record.limits(pod.metadata.uid).items())
        log.info("resized", pod=f"{pod.metadata.namespace}/{pod.metadata.name}", id=answer.id, why=why, limits=limits)
        told = resize.limited.encode(Limited(codec.VERSION, answer.id, why))
        try:
            if pod.metadata.annotations.get(names.LIMITED) != told:
                await self._cluster.annotate_pod(pod, {names.LIMITED: told})
        except errors.ApiError as error:
            log.warning("resize_not_told", pod=pod.metadata.name, error=str(error))
        if why:
            await self._cluster.tell(pod, FAILED, f"the memory limits of the pod were not changed: {why}", "Warning")
        else:
            await self._cluster.tell(pod, DONE, f"the memory limits of the pod on each of its GPUs are now: {limits}")


def _answer(pod: Pod) -> Resized | None:
    """The extender's answer to a resize of the pod, None if there is none or it changes no container."""
    answer = resize.of_pod(pod) if names.RESIZED in pod.metadata.annotations else None
    return answer if answer is not None and answer.containers else None
