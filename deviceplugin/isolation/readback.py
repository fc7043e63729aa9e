"""Reads back whether running containers have the memory limits that they were given.

The plugin learns of a container by the pod's status, finds the container's control group, and asks who set its limit:
the driver, also for that of its pod if it has none, or the library. Without an answer it asks again, ever less often.
What was given comes from the record of answers, which is rebuilt from the kubelet's checkpoint, so a plugin that starts
anew goes on.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog

from deviceplugin import cgroups
from deviceplugin.cluster import Cluster
from deviceplugin.isolation import checks, demands
from deviceplugin.isolation.checks import MISMATCH, STATES, Key, Limited, Limiter, Read, State, Verdict
from deviceplugin.isolation.evict import Evictor
from deviceplugin.isolation.levels import Means
from deviceplugin.isolation.provers import Prover
from deviceplugin.isolation.watch import Watch
from deviceplugin.limits.client import Limits
from deviceplugin.limits.protocol import Limit, LimitError
from deviceplugin.record import Record
from deviceplugin.sense import Senses
from protos.contract.books import NodeBooks
from protos.contract.objects import Pod

log = structlog.get_logger()

LOOK_S = 1.0
"""Between two looks for new containers, and the first pause of a container without an answer."""
AGAIN_S = 60.0
"""Between two checks of one container, and the longest pause without an answer."""
AT_ONCE = 64
"""The most containers of one look; the others follow with the next."""
UNAPPLIED: dict[Means, str] = {
    "toolkit": "a container runs without the memory limit that it was given, so the runtime does not run the toolkit's "
    "hook: let it do so, then restart the plugin",
    "helper": "a container runs without the limit that the helper set on its pod: restart the plugin once that is "
    "mended",
    "library": "a container uses a GPU without the library that it was given: its Event names it; mend its image, then "
    "restart the plugin",
}


class _Check(msgspec.Struct):
    """How it stands with one container."""

    state: State = "unknown"
    due: float = 0.0
    pause: float = LOOK_S
    mended: bool = False
    """It had not what it was resized to, and got that."""
    doubted: bool = False
    """The last look saw it without a limit of the library: a process that ends may look so for a moment."""


class Remedies(NamedTuple):
    """What is done about a container without its limit, besides telling it."""

    evictor: Evictor | None = None
    limits: Limits | None = None
    """The helper, which limits what runs without a limit."""
    changing: Callable[[Pod], bool] = lambda _: False
    """Whether the limits of a pod are being changed: then nothing is done, or told."""


ONLY_TOLD = Remedies()


class ReadBack:
    """The checks of all running containers of this node that have limits."""

    def __init__(
        self,
        senses: Senses,
        cluster: Cluster,
        record: Record,
        watch: Watch,
        groups: Path,
        provers: Mapping[Limiter, Prover],
        remedies: Remedies = ONLY_TOLD,
    ) -> None:
        """`groups` is the root of the host's control groups."""
        self._senses, self._cluster, self._record = senses, cluster, record
        self._watch, self._groups, self._provers = watch, groups, provers
        self._evictor, self._limits, self._changing = remedies
        self._checks: dict[Key, _Check] = {}

    async def run(self) -> None:
        """Check for ever."""
        await self._cluster.pods_listed.wait()
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Check the containers that are due."""
        limited = self._limited()
        self._checks = {key: self._checks.get(key) or _Check() for key in limited}
        now = asyncio.get_running_loop().time()
        due = [key for key, check in self._checks.items() if check.due <= now][:AT_ONCE]
        if due:
            found = await self._senses.call(lambda: self._read({key: limited[key] for key in due}))
            still = self._limited()  # the limits may have been changed while they were read
            for key in due:
                if still.get(key) == limited[key]:
                    await self._take(key, limited[key], found.get(key), now)
        counts = Counter(check.state for check in self._checks.values())
        for state in STATES:
            self._senses.metrics.isolated.labels(state).set(counts[state])

    def _limited(self) -> dict[Key, Limited]:
        """The running containers that have limits, and which."""
        settled = [pod for pod in self._cluster.pods.values() if not self._changing(pod)]
        return checks.limited(settled, self._record, self._of_pods())

    def _of_pods(self) -> Callable[[Pod], Mapping[str, int]]:
        """What each whole pod is limited to, where there is a helper."""
        if self._limits is None:
            return lambda _: {}
        offer, record = self._senses.offer, self._record
        ledger = NodeBooks(offer.inventory)
        return lambda pod: demands.of_pod(pod, record, ledger, offer.sharing.resources)

    def _read(self, wanted: Mapping[Key, Limited]) -> dict[Key, dict[str, Read]]:
        """The limits of these containers, as far as they are told. Blocks."""
        directories = cgroups.containers(self._groups)
        found: dict[Key, dict[str, Read]] = {}
        for by, prover in self._provers.items():
            own = {key: given for key, given in wanted.items() if given.by == by}
            found |= prover.read(own, directories) if own else {}
        return found

    async def _take(self, key: Key, given: Limited, read: dict[str, Read] | None, now: float) -> None:
        """Note what was read of one container, and tell what is new and wrong. None is no answer."""
        indexes = {gpu.uuid: gpu.index for gpu in self._senses.offer.inventory.gpus}
        verdict, check = checks.verdict(given, read or {}, indexes), self._checks[key]
        if read is None and check.state != "unknown":
            check.due = now + AGAIN_S  # what is known holds until somebody says otherwise
            return
        before_doubt, check.doubted = check.doubted, verdict.unlimited and given.by == "library"
        if check.doubted and not before_doubt and check.state != "mismatch":
            check.due = now + LOOK_S
            return
        if read and verdict.state == "mismatch" and not verdict.unlimited and await self._mend(key, given, read):
            check.due = now
            return
        check.mended = check.mended and verdict.state != "enforced"
        if verdict.state == "unknown":
            self._wait_longer(check, given)
        else:
            check.pause = AGAIN_S
        check.due, before, check.state = now + check.pause, check.state, verdict.state
        if verdict.state != before:
            self._senses.metrics.isolation_checks.labels(verdict.state).inc()
            await self._tell(given, verdict)
        if verdict.unlimited and await self._limit(key, given, own=False):
            check.due = now  # read it back
            return
        if verdict.state == "mismatch" and self._evictor is not None:
            await self._evictor.evict(given.pod, verdict.sentence)

    def _wait_longer(self, check: _Check, given: Limited) -> None:
        before, check.pause = check.pause, min(2 * check.pause, AGAIN_S)
        if before < check.pause == AGAIN_S and given.by == "driver":  # a program need not use GPUs at once
            pod = f"{given.pod.metadata.namespace}/{given.pod.metadata.name}"
            log.warning("memory_limit_unknown", pod=pod, container=given.container, groups=str(self._groups))

    async def _tell(self, given: Limited, verdict: Verdict) -> None:
        name = f"{given.pod.metadata.namespace}/{given.pod.metadata.name}"
        if verdict.state != "mismatch":
            log.info(f"memory_limit_{verdict.state}", pod=name, container=given.container, mib=given.mib, by=given.by)
            return
        log.warning("isolation_mismatch", pod=name, container=given.container, sentence=verdict.sentence)
        means: Means = "library" if given.by == "library" else self._watch.setter or "toolkit"
        if verdict.unlimited and self._watch.refute(given.by, UNAPPLIED[means]):
            await self._senses.update()
        await self._cluster.tell(given.pod, MISMATCH, verdict.sentence, "Warning")

    async def _mend(self, key: Key, given: Limited, read: dict[str, Read]) -> bool:
        """Limit a container of a resized pod anew, once; returns whether that was done.

        The hook gives a restarted container what it requested, and knows nothing of what was changed since.
        """
        check = self._checks[key]
        if check.mended or not self._record.was_resized(key[0]):
            return False
        check.mended = True
        return await self._limit(key, given, own=any(each.own for each in read.values()))

    async def _limit(self, key: Key, given: Limited, *, own: bool) -> bool:
        """Have the helper limit a container (`own`) or its pod as it should be; returns whether it did."""
        if self._limits is None or given.by == "library":
            return False
        if own:
            wanted = Limit(pod=key[0], container=key[1], mib=dict.fromkeys(given.uuids, given.mib))
        else:
            wanted = Limit(pod=key[0], mib=dict(given.of_pod))
        try:
            await self._limits.ask(wanted)
        except LimitError as error:
            log.warning("limit_not_set", pod=given.pod.metadata.name, error=str(error))
            return False
        return True
