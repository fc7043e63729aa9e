"""The demo's gang: it waits with a reason, starts as one when there is room, loses a member and is whole again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from extender.cli import console, inspection
from extender.cli.demo import check, jobs, pods, story
from extender.cli.demo.story import LOOK_S, PATIENCE_S
from extender.cli.errors import CommandError
from extender.sim import podspec
from extender.sim.apiserver.store import Cursor
from extender.sim.cluster import EmbeddedCluster, WaitError
from extender.sim.podspec import Object
from extender.wire.answers import Group
from protos.contract import names

NAME = "train"
WORKERS, GPUS_EACH = 3, 2
MEMBERS = WORKERS + 1
KEY = f"{pods.NAMESPACE}/{NAME}"
LEAVE_S = 0.25
"""Seconds between two pods of the trace that leave to make room."""
INTRODUCTION = (
    f"A gang of {MEMBERS}: {WORKERS} workers with {GPUS_EACH} whole GPUs each and a launcher that asks none"
    " start together or not at all."
)


def manifests() -> list[Object]:
    """The Jobs that make the members: the workers', then the launcher's."""
    return [
        _job("worker", WORKERS, {"limits": {names.WHOLE_GPU: str(GPUS_EACH)}}),
        _job("launcher", 1, {"requests": {"cpu": "100m"}}),
    ]


def _job(role: str, count: int, resources: Object) -> Object:
    said = {names.GROUP: NAME, names.MIN_MEMBER: str(MEMBERS), names.ROLE: role, names.ON_MEMBER_LOST: "wait"}
    return jobs.job(f"{NAME}-{role}", NAME, count, said, resources)


class Story(story.Story):
    """The gang from its first member to the replacement of a lost one."""

    def __init__(self, cluster: EmbeddedCluster, speed: float, leave: Callable[[], bool]) -> None:
        """`leave` has the next pod of the trace leave; False where none is left."""
        super().__init__(cluster, speed)
        self._leave = leave
        self._bound: dict[str, float] = {}
        """When each member was bound, by UID, from the API server's own changes."""
        self._told = ""
        self._left = 0

    async def _follow(self, changes: Cursor) -> None:
        while True:
            for change in await changes.next():
                pod = change.item.obj
                if jobs.is_of(pod, NAME) and podspec.node_of(pod):
                    self._bound.setdefault(podspec.uid(pod), time.monotonic())

    async def _happen(self) -> None:
        await self._start()
        await self._lose()

    async def _start(self) -> None:
        workers, launcher = manifests()
        console.show("", INTRODUCTION)
        self._cluster.create(workers)
        await self._until(lambda gang: gang.present == WORKERS and bool(gang.numbers))
        await self._pause()
        self._cluster.create(launcher)
        gang = await self._until(lambda gang: gang.phase == "Running" or gang.code == "GangNoRoom")
        if gang.phase != "Running":
            await self._pause()
            console.show("Pods of the trace leave until it fits; whoever waits beside it is served as ever.")
            gang = await self._until(_is_whole, make_room=True)
        times = self._bound.values()
        apart = 1 + int(1000 * (max(times) - min(times)))
        room = f", after {self._left} pods have left" if self._left else ""
        console.show(f"All {len(times)} members were bound within {apart} ms{room}.")

    async def _lose(self) -> None:
        await self._pause()
        lost = next(pod for pod in self.members() if podspec.pod_requests(pod).get(names.WHOLE_GPU))
        name = lost["metadata"]["name"]
        said = "on-member-lost says wait: the others go on, and its GPUs are kept for the next."
        console.show("", f"{name} is deleted. {said}")
        before = {podspec.uid(pod) for pod in self.members()}
        self._cluster.delete_pod(*podspec.key(lost))
        await self._until(lambda gang: gang.phase == "Degraded")
        await self._until(_is_whole, make_room=True)
        (new,) = [pod for pod in self.members() if podspec.uid(pod) not in before]
        console.show(f"{new['metadata']['name']} has come in its place, on {podspec.node_of(new)}.")

    def members(self) -> list[Object]:
        """The pods of the gang that are not on their way out."""
        return [pod for pod in self._cluster.pods() if jobs.is_of(pod, NAME) and not podspec.terminating(pod)]

    async def look(self) -> Group | None:
        """The gang as the extender sees it, None while it knows of none."""
        server = self._cluster.place.status_url
        try:
            body = await asyncio.to_thread(inspection.fetch, server, f"explain/groups/{KEY}", "no such gang")
        except CommandError:
            return None
        return inspection.decode(body, Group)

    async def check(self) -> tuple[str, ...]:
        """What is wrong with it at the end."""
        gang = await self.look()
        here = list(map(check.decoded, self.members()))
        return (*self.faults, *check.gang(here, gang))

    async def _until(self, holds: Callable[[Group], bool], *, make_room: bool = False) -> Group:
        """The gang once it is so; until then each change of it is told, and pods leave where it waits for room."""
        end = time.monotonic() + PATIENCE_S
        leave_at = 0.0
        while time.monotonic() < end:
            bound = len(self._bound)
            gang = await self.look()
            if gang is not None:
                self._news(gang, bound)
                if holds(gang):
                    return gang
                if make_room and _wants_room(gang) and time.monotonic() >= leave_at:
                    self._left += self._leave()
                    leave_at = time.monotonic() + LEAVE_S / self._speed
            self._cluster.check()
            await asyncio.sleep(LOOK_S)
        raise WaitError(f"the gang {KEY} does not go on after {PATIENCE_S:g} s: {self._told.strip()}")

    def _news(self, gang: Group, bound: int) -> None:
        if gang.phase in ("Assembling", "Waiting") and gang.epoch == 0 and bound:
            self.faults.append(f"{KEY}: {bound} members were bound while it was {gang.phase}")
        why = [part for part in (gang.sentence, gang.numbers) if part]
        if gang.phase == "Waiting" and not why:
            return  # it is being planned
        told = f"  {gang.phase:<10}  {': '.join(why) or f'{gang.bound} of {MEMBERS} members bound'}"
        if told != self._told:
            self._told = told
            console.show(told)


def _is_whole(gang: Group) -> bool:
    return gang.phase == "Running" and gang.bound == MEMBERS


def _wants_room(gang: Group) -> bool:
    """Whether it is complete and has no room, as a whole or for who replaces a lost member."""
    return gang.phase in ("Waiting", "Degraded") and gang.present == MEMBERS
