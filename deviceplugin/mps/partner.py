"""The plugin's side of MPS: tells the component who holds which GPU, and waits until it has admitted a container.

The answer to an Allocate does not wait, since it follows from the component's version alone. Before it starts, a
container with a part waits until it has its limits, one with a whole GPU until MPS has left it. If that takes too long,
it does not start, and the kubelet asks again: it would run without limits, or could not use its GPU.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
import structlog

from deviceplugin.checkpoint import Entry
from deviceplugin.identify import RefusedError
from deviceplugin.mps import answers, exchange, level
from deviceplugin.mps.answers import Pipes
from deviceplugin.mps.exchange import Holder, Holders, State
from deviceplugin.mps.holding import Held
from protos.contract import codec
from protos.contract.allocation import Share
from protos.contract.inventory import Inventory
from protos.contract.objects import Pod
from protos.contract.reason import Reason
from protos.files import FileError

log = structlog.get_logger()

READY_S = 20.0
"""Longest wait for the component before a container starts. The kubelet waits 30 s, and then asks again."""
BROKEN = ("blocked", "wedged")
"""Phases in which a GPU takes no new parts."""
LOOK_S = 0.02
WRITE_S = 0.5
"""Seconds between two looks whether holders have changed."""


class Partner:
    """The holders of this node as the component gets them."""

    def __init__(
        self,
        folder: Path,
        held: Callable[[], Iterable[Held] | None],
        inventory: Callable[[], Inventory],
        wanted: Callable[[], bool],
    ) -> None:
        """`held` tells the pods that hold GPUs, None before it knows; `wanted` whether the node should have MPS."""
        self._folder, self._held, self._inventory, self._wanted = folder, held, inventory, wanted
        self._answered: dict[tuple[str, str], bool] = {}
        """The containers that were answered, by UID and name, and whether they got the pipes."""
        self._written: Holders | None = None
        self._counted: Inventory | None = None
        """The inventory by which the holders were counted."""
        self.changed = True
        """Whether pods have changed since the file was written."""

    def load(self, entries: Iterable[Entry]) -> None:
        """Take over what the kubelet's checkpoint says."""
        for entry in entries:
            key = (entry.uid, entry.container)
            self._answered[key] = self._answered.get(key, False) or answers.PIPES in entry.envs
        self.changed = True

    def forget(self, uid: str) -> None:
        """Drop a pod that left the node."""
        self._answered = {key: mps for key, mps in self._answered.items() if key[0] != uid}
        self.changed = True

    async def run(self) -> None:
        """Tell the component of changes for ever."""
        while True:
            if self.changed or self._counted is not self._inventory():
                self._write()
            await asyncio.sleep(WRITE_S)

    def admit(self, uid: str, container: str, shares: Sequence[Share]) -> Pipes | None:
        """How a container will connect to MPS, None if MPS does not serve its GPUs; raises RefusedError."""
        state, uuids = self._state(), {share.uuid for share in shares}
        whole = any(share.whole for share in shares)
        served = state is not None and not uuids.isdisjoint(state.gpus)
        if (state is None and self._wanted() and not whole) or (
            served and state and level.silent(state, exchange.now())
        ):
            raise _not_ready(level.SILENT)
        if state is None or not served or whole:
            self._note(uid, container, False)
            return None
        if len(uuids) > 1:
            raise RefusedError(Reason("MpsOneGpu", f"the container has parts of {len(uuids)} GPUs, and MPS serves one"))
        found = state.gpus[shares[0].uuid]
        if found.phase in BROKEN:
            raise _not_ready(found.why or f"it is {found.phase}")
        self._note(uid, container, True)
        holder = answers.holder(uid, container, shares[0], self._inventory(), mps=True)
        return Pipes(
            folder=str(exchange.pipes_of(self._folder, holder, state.protocol)),
            shm=str(self._folder / exchange.SHM),
            own_limits=state.protocol == 2,
            holder=holder,
        )

    async def before_start(self, pod: Pod, container: str) -> None:
        """Wait until a container with a part has its limits, or until MPS has left whole GPUs; raises RefusedError."""
        self._write()
        for holder in self._holders(self._held() or (), self._inventory()):
            if (holder.pod, holder.container) == (pod.metadata.uid, container):
                try:
                    async with asyncio.timeout(READY_S):
                        while not self._ready(holder):  # noqa: ASYNC110 - a file has no event
                            await asyncio.sleep(LOOK_S)
                except TimeoutError as error:
                    raise _not_ready(self._why(holder.gpu)) from error

    def _ready(self, holder: Holder) -> bool:
        state = self._state()
        served = state.gpus.get(holder.gpu) if state else None
        if state is None or served is None:
            return not holder.mps
        if not holder.mps:
            return served.phase in ("yielded", "blocked") and not served.processes
        return served.admitted.get(holder.key) == str(exchange.pipes_of(self._folder, holder, state.protocol))

    def _note(self, uid: str, container: str, mps: bool) -> None:
        self._answered[uid, container] = mps
        self._write()

    def _write(self) -> None:
        """Write the holders, if they have changed. Nothing is said before the pods of the node are known."""
        held = self._held()
        if held is None:
            return
        self.changed, self._counted = False, self._inventory()
        holders = Holders(v=codec.VERSION, holders=tuple(self._holders(held, self._counted)))
        if holders == self._written:
            return
        try:
            exchange.write(self._folder, holders)
        except OSError as error:
            self.changed = True
            log.warning("mps_holders_not_written", error=os.strerror(error.errno or 0))
        else:
            self._written = holders

    def _holders(self, held: Iterable[Held], inventory: Inventory) -> Iterable[Holder]:
        for pod in held:
            for container, shares in pod.shares.items():
                mps = self._answered.get((pod.uid, container))
                for share in shares if mps is not None else ():
                    found = answers.holder(pod.uid, container, share, inventory, mps=mps is True)
                    yield msgspec.structs.replace(found, ends=pod.ends)

    def _state(self) -> State | None:
        try:
            return exchange.read_state(self._folder)
        except FileError as error:
            log.warning("mps_state_not_read", error=str(error))
            return None

    def _why(self, uuid: str) -> str:
        state = self._state()
        served = state.gpus.get(uuid) if state else None
        return served.why or f"it is {served.phase}" if served else "the MPS component of this node has ended"


def _not_ready(why: str) -> RefusedError:
    return RefusedError(Reason("MpsNotReady", "MPS on this GPU is not ready", why))
