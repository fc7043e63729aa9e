"""The demo's gang: it waits with a reason, starts as one, loses a member and gets a replacement."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from extender.cli import console, inspection
from extender.cli.demo import check, manifests, story
from extender.cli.demo.story import POLL_S, TIMEOUT_S
from extender.cli.errors import CommandError
from extender.sim import podspec
from extender.sim.cluster import EmbeddedCluster, WaitError
from extender.sim.podspec import Object
from extender.wire.answers import Group
from protos.contract import names

NAME = "train"
WORKERS, GPUS_EACH = 3, 2
MEMBERS = WORKERS + 1
KEY = f"{manifests.NAMESPACE}/{NAME}"
LEAVE_S = 0.25
"""Seconds between two pods of the trace that leave for the gang."""
INTRODUCTION = (
    f"A gang of {MEMBERS} starts together or not at all:"
    f" {WORKERS} workers with {GPUS_EACH} whole GPUs each, and a launcher without GPUs."
)


def _job(role: str, count: int, resources: Object) -> Object:
    annotations = {names.GROUP: NAME, names.MIN_MEMBER: str(MEMBERS), names.ROLE: role, names.ON_MEMBER_LOST: "wait"}
    return manifests.job(f"{NAME}-{role}", NAME, count, annotations, resources)


class Story(story.Story):
    """The gang from its first member to the replacement of a lost member."""

    def __init__(self, cluster: EmbeddedCluster, speed: float, leave: Callable[[], bool]) -> None:
        """`leave` deletes the next pod of the trace, and returns False if none is left."""
        super().__init__(cluster, speed)
        self._leave = leave
        self._bound: dict[str, float] = {}
        """When each member was bound, by UID, from the API server's own changes."""
        self._shown = ""
        self._left = 0

    def _pod_changed(self, pod: Object) -> None:
        if manifests.is_of(pod, NAME) and podspec.node_of(pod):
            self._bound.setdefault(podspec.uid(pod), time.monotonic())

    async def _steps(self) -> None:
        await self._start()
        await self._lose_member()

    async def _start(self) -> None:
        console.show("", INTRODUCTION)
        self._cluster.create(_job("worker", WORKERS, {"limits": {names.WHOLE_GPU: str(GPUS_EACH)}}))
        await self._until(lambda gang: gang.present == WORKERS and bool(gang.numbers))
        await self._pause()
        self._cluster.create(_job("launcher", 1, {"requests": {"cpu": "100m"}}))
        gang = await self._until(lambda gang: gang.phase == "Running" or gang.code == "GangNoRoom")
        if gang.phase != "Running":
            await self._pause()
            console.show("Pods of the trace leave until the gang fits. Other pending pods still compete with it.")
            gang = await self._until(_is_complete, make_room=True)
        times = self._bound.values()
        apart = 1 + int(1000 * (max(times) - min(times)))
        room = f", after {self._left} pods have left" if self._left else ""
        console.show(f"All {len(times)} members were bound within {apart} ms{room}.")

    async def _lose_member(self) -> None:
        await self._pause()
        members = self.members()
        lost = next(pod for pod in members if podspec.pod_requests(pod).get(names.WHOLE_GPU))
        policy = "on-member-lost is wait: the other members keep running, and its GPUs are held for a replacement."
        console.show("", f"{lost['metadata']['name']} is deleted. {policy}")
        before = {podspec.uid(pod) for pod in members}
        self._cluster.delete_pod(*podspec.key(lost))
        await self._until(lambda gang: gang.phase == "Degraded")
        await self._until(_is_complete, make_room=True)
        (new,) = [pod for pod in self.members() if podspec.uid(pod) not in before]
        console.show(f"{new['metadata']['name']} replaces it on {podspec.node_of(new)}.")

    def members(self) -> list[Object]:
        """The pods of the gang, without those that are being deleted."""
        return [pod for pod in self._cluster.pods() if manifests.is_of(pod, NAME) and not podspec.terminating(pod)]

    async def look(self) -> Group | None:
        """The gang as the extender sees it, None if the extender does not know it."""
        server = self._cluster.place.status_url
        try:
            body = await asyncio.to_thread(inspection.fetch, server, f"explain/groups/{KEY}", "no such gang")
        except CommandError:
            return None
        return inspection.decode(body, Group)

    async def check(self) -> list[str]:
        """All faults, with those of the gang now."""
        gang = await self.look()
        return [*self.faults, *check.gang(list(map(check.decoded, self.members())), gang)]

    async def _until(self, holds: Callable[[Group], bool], *, make_room: bool = False) -> Group:
        """Show each change of the gang until it `holds`. With `make_room`, pods leave while it does not fit."""
        end = time.monotonic() + TIMEOUT_S
        leave_at = 0.0
        while time.monotonic() < end:
            bound = len(self._bound)
            gang = await self.look()
            if gang is not None:
                self._show(gang, bound)
                if holds(gang):
                    return gang
                waits = gang.phase in ("Waiting", "Degraded") and gang.present == MEMBERS
                if make_room and waits and time.monotonic() >= leave_at:
                    self._left += self._leave()
                    leave_at = time.monotonic() + LEAVE_S / self._speed
            self._cluster.check()
            await asyncio.sleep(POLL_S)
        raise WaitError(f"gang {KEY} makes no progress after {TIMEOUT_S:g} s: {self._shown.strip()}")

    def _show(self, gang: Group, bound: int) -> None:
        if gang.phase in ("Assembling", "Waiting") and gang.epoch == 0 and bound:
            self.faults.append(f"{KEY}: {bound} members were bound while it was {gang.phase}")
        why = [part for part in (gang.sentence, gang.numbers) if part]
        if gang.phase == "Waiting" and not why:
            return  # it is being planned
        line = f"  {gang.phase:<10}  {': '.join(why) or f'{gang.bound} of {MEMBERS} members bound'}"
        if line != self._shown:
            self._shown = line
            console.show(line)


def _is_complete(gang: Group) -> bool:
    return gang.phase == "Running" and gang.bound == MEMBERS
