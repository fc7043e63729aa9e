"""One GPU that is given over to MPS: looks at it, decides, and does it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import msgspec
import structlog

from deviceplugin.mps import ending, processes
from deviceplugin.mps.checks import Checks
from deviceplugin.mps.control import ControlError
from deviceplugin.mps.daemon import Daemon
from deviceplugin.mps.decide import Facts, Step, Verdict, decide
from deviceplugin.mps.exchange import Holder, Served
from deviceplugin.mps.gpus import Gpu, GpuError

log = structlog.get_logger()

LOOK_S = 0.2
CHECK_S = 5.0
"""Seconds between two checks of the daemon; a second check follows a failed one at once."""
END_LOOK_S = 1.0
"""Seconds between two looks at the clients of pods that are being deleted."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 60.0
"""After a start that failed; the pause doubles."""


class Unit:
    """Keeps one GPU as it should be. `served` is what to publish."""

    def __init__(
        self,
        uuid: str,
        daemon: Daemon,
        checks: Checks,
        look: Callable[[], tuple[Gpu | None, Sequence[Holder] | None]],
        make_exclusive: Callable[[bool], Awaitable[None]],
        pod_of: ending.PodOf,
        margin: float,
    ) -> None:
        """`look` tells the GPU and its holders as last seen; `margin` is when clients are ended before their pod is."""
        self.uuid, self.daemon, self.checks, self._look = uuid, daemon, checks, look
        self._make_exclusive, self._pod_of, self._margin = make_exclusive, pod_of, margin
        self.served = Served(phase="starting")
        self._checked = self._ended = 0.0
        self._pause, self._not_before = FIRST_PAUSE_S, 0.0
        self._told: Verdict | None = None
        self._admitted_for: Sequence[Holder] | None = None
        self._terminated: set[int] = set()
        self._checking: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await self.step()
            await asyncio.sleep(LOOK_S)

    async def step(self) -> None:
        """Look once, and do one thing."""
        now = asyncio.get_running_loop().time()
        gpu, holders = self._look()
        if self.daemon.made and not self.daemon.ended:
            self._start_check(now)
            if any(holder.ends for holder in holders or ()) and now - self._ended >= END_LOOK_S:
                await self._end_clients(holders or ())
                self._ended = asyncio.get_running_loop().time()
        verdict = decide(self._facts(gpu, holders, now))
        self._tell(verdict)
        if verdict.step is Step.STOP:
            await self._stop()
        await self._set_mode(gpu, holders)
        if verdict.step is Step.START:
            await self._start()
        elif verdict.phase == "serving":
            await self._admit(tuple(holder for holder in holders or () if holder.mps))
        else:
            self._publish(verdict, {})

    async def close(self) -> None:
        """End the daemon, and give the GPU back to everybody."""
        await self._stop()
        with suppress(GpuError):
            await self._make_exclusive(False)

    def _facts(self, gpu: Gpu | None, holders: Sequence[Holder] | None, now: float) -> Facts:
        ours = {holder.pod for holder in holders or () if holder.mps}
        made, ended = self.daemon.made, self.daemon.ended
        return Facts(
            present=gpu is not None,
            mig=gpu is not None and gpu.mig,
            strangers=gpu is not None
            and any(processes.of(pid) is not None and self._pod_of(pid) not in ours for pid in gpu.pids),
            holders=holders,
            daemon="ended" if ended else "running" if made else "none",
            lingering=self.daemon.lingers(),
            servers=made and self.daemon.servers_alive(),
            trouble=self.checks.trouble,
            pause=now < self._not_before,
        )

    async def _set_mode(self, gpu: Gpu | None, holders: Sequence[Holder] | None) -> None:
        """While MPS serves the GPU, or containers expect it, no other process may use the GPU."""
        if gpu is None or gpu.mig or holders is None:
            return
        wanted = self.daemon.made or any(holder.mps for holder in holders)
        if gpu.exclusive != wanted:
            await self._exclude(wanted)

    async def _exclude(self, exclusive: bool) -> bool:
        try:
            await self._make_exclusive(exclusive)
        except GpuError as error:
            log.warning("compute_mode_not_set", gpu=self.uuid, exclusive=exclusive, error=str(error))
            return False
        return True

    async def _start(self) -> None:
        self._publish(Verdict(Step.START, "starting"), {})
        try:
            if not await self._exclude(True):
                raise ControlError("the compute mode cannot be set")
            await self.daemon.start()
        except ControlError as error:
            self._not_before = asyncio.get_running_loop().time() + self._pause
            log.warning("mps_not_started", gpu=self.uuid, error=str(error), again_in_s=self._pause)
            self._pause = min(2 * self._pause, LONGEST_PAUSE_S)
        else:
            self._pause = FIRST_PAUSE_S
            log.info("mps_started", gpu=self.uuid, processes=[process.pid for process in self.daemon.processes])

    def _start_check(self, now: float) -> None:
        """Check the daemon from time to time. Holders do not wait for it: a check may take long."""
        if self._checking is not None:
            if not self._checking.done():
                return
            self._checking.result()
            self._checking = None
            self.daemon.note(self.checks.servers)
            self.daemon.trim()
            self._checked = now
        if now - self._checked >= CHECK_S or (self.checks.failing and not self.checks.trouble):
            self._checking = asyncio.ensure_future(self.checks.run())

    async def _stop(self) -> None:
        """End the daemon, and forget what was known of it."""
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.wait([self._checking])
            self._checking = None
        await self.daemon.stop()
        self.checks.reset()
        self._admitted_for = None
        self._terminated.clear()

    async def _end_clients(self, holders: Sequence[Holder]) -> None:
        """End the clients of pods that are killed soon."""
        try:
            clients = await self.daemon.commands.clients(self.checks.servers)
            for client in ending.due(clients, holders, self._pod_of, time.time(), self._margin):
                if client.pid not in self._terminated:
                    await self.daemon.commands.terminate(client)
                    self._terminated.add(client.pid)
                    log.info("mps_client_ended", gpu=self.uuid, pid=client.pid)
            self._terminated &= {client.pid for client in clients}
        except ControlError as error:
            log.warning("mps_clients_not_ended", gpu=self.uuid, error=str(error))

    async def _admit(self, holders: tuple[Holder, ...]) -> None:
        """Set the limits of these holders, and publish that they are admitted."""
        if holders == self._admitted_for and self.served.phase == "serving":
            return
        limits = tuple(msgspec.structs.replace(holder, ends=0.0) for holder in holders)
        try:
            admitted = await self.daemon.commands.admit(limits)
        except ControlError as error:
            log.warning("mps_holders_not_admitted", gpu=self.uuid, error=str(error))
            self._publish(Verdict(Step.NOTHING, "serving"), {})
            self._admitted_for = None
            return
        self._admitted_for = holders if len(admitted) == len(holders) else None
        self._publish(Verdict(Step.NOTHING, "serving"), admitted)

    def _publish(self, verdict: Verdict, admitted: dict[str, str]) -> None:
        self.served = Served(
            phase=verdict.phase, why=verdict.why[:256], admitted=admitted, processes=self.daemon.processes
        )

    def _tell(self, verdict: Verdict) -> None:
        """Log a verdict that differs from the last."""
        if self._told is None or (verdict.phase, verdict.why) != (self._told.phase, self._told.why):
            level = log.warning if verdict.phase in ("blocked", "wedged") else log.info
            level("mps", gpu=self.uuid, phase=verdict.phase, why=verdict.why)
        self._told = verdict
