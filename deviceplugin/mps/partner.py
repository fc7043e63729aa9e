"""The plugin's side of MPS: tells the component who holds which GPU, and waits until it has admitted a container.

An Allocate for a part waits until the container has its limits, one for a whole GPU until MPS has left it. If that
takes too long, the pod is refused: it would run without limits, or could not use its GPU.
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
from deviceplugin.mps.exchange import Holder, Holders, Served, State
from deviceplugin.mps.holding import Held
from protos.contract import codec
from protos.contract.allocation import Share
from protos.contract.inventory import Inventory
from protos.contract.reason import Reason
from protos.files import FileError

log = structlog.get_logger()

ADMIT_S = 6.0
"""Longest wait for the component."""
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

    async def admit(self, uid: str, container: str, shares: Sequence[Share]) -> Pipes | None:
        """How the container connects to MPS, None if MPS does not serve its GPUs; raises RefusedError."""
        state, uuids = self._state(), {share.uuid for share in shares}
        whole = any(share.whole for share in shares)
        served = state is not None and not uuids.isdisjoint(state.gpus)
        if (state is None and self._wanted() and not whole) or (
            served and state and level.silent(state, exchange.now())
        ):
            raise _not_ready(level.SILENT)
        if not served:
            self._note(uid, container, False)
            return None
        if not whole and len(uuids) > 1:
            raise RefusedError(Reason("MpsOneGpu", f"the container has parts of {len(uuids)} GPUs, and MPS serves one"))
        before = self._answered.get((uid, container))
        self._note(uid, container, not whole)
        try:
            async with asyncio.timeout(ADMIT_S):
                if whole:
                    await self._left(uuids)
                    return None
                return await self._admitted(uid, container, shares[0])
        except TimeoutError as error:
            if before is None:
                del self._answered[uid, container]
            self._write()
            raise _not_ready(self._why(uuids)) from error

    async def _admitted(self, uid: str, container: str, share: Share) -> Pipes:
        key = f"{uid}/{container}"
        while True:
            state = self._state()
            folder = state.gpus[share.uuid].admitted.get(key) if state and share.uuid in state.gpus else None
            if state and folder and answers.below(folder, exchange.folder_of(self._folder, share.uuid)):
                return Pipes(
                    folder=folder,
                    shm=str(self._folder / exchange.SHM),
                    own_limits=state.protocol == 2,
                    holder=answers.holder(uid, container, share, self._inventory(), mps=True),
                )
            await asyncio.sleep(LOOK_S)

    async def _left(self, uuids: Iterable[str]) -> None:
        """Wait until MPS has left these GPUs."""
        while True:
            state = self._state()
            gpus = state.gpus if state else {}
            if all(_off(gpus[uuid]) for uuid in uuids if uuid in gpus):
                return
            await asyncio.sleep(LOOK_S)

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

    def _why(self, uuids: Iterable[str]) -> str:
        state = self._state()
        served = next((state.gpus[uuid] for uuid in uuids if uuid in state.gpus), None) if state else None
        return served.why or f"it is {served.phase}" if served else "the MPS component of this node has ended"


def _off(served: Served) -> bool:
    return served.phase in ("yielded", "blocked") and not served.processes


def _not_ready(why: str) -> RefusedError:
    return RefusedError(Reason("MpsNotReady", f"MPS on this GPU is not ready in {ADMIT_S:g} s", why))
