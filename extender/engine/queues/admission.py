"""Whether queues have room for who wants to start, and who of those that wait for that comes when there is some.

A queue has room while it and all above it stay within their capability with what is guaranteed to others beside, and
none of them is closed. Pods of namespaces that it does not admit start nowhere. Gangs ask for their smallest start;
pods that go singly are woken once their queue has room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from sortedcontainers import SortedKeyList

from extender.engine import refusals
from extender.engine.books.amounts import add
from extender.engine.books.ledger import PodState
from extender.engine.effects import PodRef, Wake
from extender.engine.queues.queues import Queues
from extender.engine.queues.standing import Account, Standing
from extender.engine.queues.takes import Takes
from gangfilter.gang import Gang
from gangfilter.group import GroupKey
from protos.contract.queue import shown, worded
from protos.contract.reason import Reason

MOST_WAKES = 25
"""Pods woken at once; the rest comes with the next look."""
AGAIN_S = 10.0
"""Seconds after which a pod that was woken and did not come may be woken again."""
Stamp = tuple[object, ...]
Less = Mapping[str, Mapping[str, int]]
"""By the names of queues: what of them does not count, since it is to be gone, or the pods' own."""

NOTHING: Less = MappingProxyType({})


def _turn(pod: PodState) -> tuple[int, float, PodRef]:
    """Who comes first: by priority, then by age."""
    return -pod.priority, pod.since, pod.ref


class Admission:
    """Who may start by what its queue may have."""

    def __init__(self, queues: Queues) -> None:
        self._queues, self.batched = queues, queues.batched
        self._asked: dict[GroupKey, tuple[Stamp, tuple[str, ...], Takes]] = {}
        """What the smallest start of a gang takes, and of what that was made."""
        self._told: dict[GroupKey, tuple[Stamp, Reason | None]] = {}
        self._parked: dict[Account, dict[GroupKey, None]] = {}
        self._looked: dict[Account, int] = {}
        """The room when they were looked at."""
        self._seen = (-1, -1, -1)
        """The tree, the prices and the gains when any were looked at."""
        self._blocked: dict[Account, SortedKeyList[PodState]] = {}
        self._of: dict[str, tuple[Account, PodState]] = {}
        self._woken: dict[str, float] = {}
        """Until when those that were woken are not woken again."""
        self._gains = -1

    # -- gangs

    def account(self, gang: Gang) -> Account:
        """The account that the gang's members are in."""
        return self._queues.account(gang.terms.queue, gang.key.namespace)

    def withheld(self, gang: Gang, least: Callable[[], Iterable[str]]) -> Reason | None:
        """Why a gang may not start; `least`: the members that its smallest start needs besides those that run."""
        account = self.account(gang)
        limits = tuple(s.version for s in self._limiting(account))
        made_of = self._queues.epoch, self._queues.prices, gang.turnover, gang.terms
        stamp = (made_of, limits)
        told = self._told.get(gang.key)
        if told is None or told[0] != stamp:
            why = self._short_of_least(gang, account, made_of, least) if limits else self._barred(account)
            told = self._told[gang.key] = stamp, why
        return told[1]

    def _short_of_least(
        self, gang: Gang, account: Account, made_of: Stamp, least: Callable[[], Iterable[str]]
    ) -> Reason | None:
        """Why there is no room for the smallest start, but for what is promised to those of it."""
        asked = self._asked.get(gang.key)
        if asked is None or asked[0] != made_of:
            uids = tuple(least())
            asked = self._asked[gang.key] = made_of, uids, self.together(uids)
        return self.shortage(account, asked[2], self._own(account, asked[1]))

    def together(self, uids: Iterable[str]) -> Takes:
        """What these pods take."""
        total: dict[str, int] = {}
        for uid in uids:
            add(total, self._queues.takes(uid))
        return tuple(sorted(total.items()))

    def admits(self, gang: Gang, uids: Iterable[str]) -> Reason | None:
        """Why the queue of a gang has no room for all these members, None if it has."""
        account, asking = self.account(gang), list(uids)
        return self.shortage(account, self.together(asking), self._own(account, asking))

    def _own(self, account: Account, uids: Iterable[str]) -> Less:
        """What is promised to pods of this account."""
        promised = [self._queues.promised[uid][1] for uid in uids if uid in self._queues.promised]
        total: dict[str, int] = {}
        for takes in promised:
            add(total, takes)
        return dict.fromkeys([s.name for s in self._above(account)], total) if promised else {}

    def drop(self, key: GroupKey) -> None:
        """The gang does not wait any more."""
        self._told.pop(key, None)
        self._asked.pop(key, None)
        for account, keys in list(self._parked.items()):
            keys.pop(key, None)
            if not keys:
                self._leave(account)

    def park(self, gang: Gang) -> None:
        """The gang waits for nothing but room in its queue."""
        account = self.account(gang)
        self._parked.setdefault(account, {})[gang.key] = None
        self._looked.setdefault(account, self._room(account))

    def unparked(self) -> list[GroupKey]:
        """The parked gangs that may have room by now, told once: each alone, whatever the others take."""
        seen, self._seen = self._seen, (self._queues.epoch, self._queues.prices, self._queues.gains)
        if not self._parked or seen == self._seen:
            return []
        anew, found = seen[:2] != self._seen[:2], list[GroupKey]()
        for account, keys in list(self._parked.items()):
            room = self._room(account)
            if not anew and room == self._looked[account]:
                continue
            self._looked[account] = room
            ready = list(keys if anew else self._fitting(account, keys))
            for key in ready:
                del keys[key]
            found += ready
            if not keys:
                self._leave(account)
        return sorted(found)

    def _leave(self, account: Account) -> None:
        """None of the account is parked any more."""
        del self._parked[account], self._looked[account]

    def _room(self, account: Account) -> int:
        """Changes when there may have come room for pods of this account."""
        return sum(standing.gains for standing in self._limiting(account))

    def _fitting(self, account: Account, keys: Iterable[GroupKey]) -> Iterator[GroupKey]:
        """Those of these gangs that have room; many ask the same."""
        known: dict[Takes, bool] = {}
        for key in keys:
            takes = self._asked[key][2] if key in self._asked else ()
            if takes not in known:
                promised = {standing.name: standing.promised for standing in self._above(account)}
                known[takes] = self.shortage(account, takes, promised) is None
            if known[takes]:
                yield key

    def standing(self, account: Account) -> tuple[tuple[int, float], ...]:
        """Whose turn it is among queues, least first."""
        return self._queues.at(account).rank

    # -- room

    def shortage(self, account: Account, takes: Takes, less: Less = NOTHING) -> Reason | None:
        """Why pods of this account may not take so much more, None if they may."""
        barred = self._barred(account)
        if barred is not None:
            return barred
        below: Standing | None = None
        for standing in self._above(account):
            limits = standing.queue.capability or standing.idle
            why = self._beyond(standing, below, takes, less) if limits else None
            if why is not None:
                return why
            below = standing
        return None

    def _barred(self, account: Account) -> Reason | None:
        at = self._queues.at(account)
        if account.missing:
            return refusals.queue_missing(account.named)
        if account.refused:
            return refusals.queue_forbidden(account.refused)
        for standing in at.path:
            if standing.queue.closed and standing.queue.problem:
                return refusals.queue_unreadable(standing.name, standing.queue.problem)
            if standing.queue.closed:
                return refusals.queue_closed(standing.name)
        return None

    def _limiting(self, account: Account) -> Iterator[Standing]:
        for standing in self._above(account):
            if standing.queue.capability or standing.idle:
                yield standing

    def _above(self, account: Account) -> Iterator[Standing]:
        """The queue of these pods, all above it, and the root."""
        yield from self._queues.at(account).path
        yield self._queues.root

    def _beyond(self, standing: Standing, below: Standing | None, takes: Takes, less: Less) -> Reason | None:
        """Why so much more is too much for one queue; `below` is the one under it that it is for, if there is one.

        What is guaranteed to that comes before what is kept for others: more may be guaranteed than there is.
        """
        for resource, asked in takes:
            if asked <= 0:
                continue
            had = standing.allocated.get(resource, 0) + _promised(standing, resource, less)
            unmet = below.unmet(resource) if below is not None else 0
            owed = below is not None and asked + max(0, _promised(below, resource, less)) <= unmet
            kept = 0 if owed else standing.idle.get(resource, 0) - unmet
            most = standing.queue.capability.get(resource)
            if most is None and standing.above is None and kept > 0:
                most = self._queues.total.get(resource, 0)
            if most is not None and had + max(0, kept) + asked > most:
                return _too_much(standing, resource, most, had, kept, asked)
        return None

    # -- pods that go singly

    def single(self, pod: PodState) -> Reason | None:
        """Why the pod's queue has no room for it, None if it has."""
        uid = pod.ref.uid
        account = self._queues.of(uid)
        if account is None:
            return None
        return self.shortage(account, self._queues.takes(uid), self._own(account, (uid,)))

    def keeps(self, uid: str, *, making: bool) -> Reason | None:
        """Why no room may be kept for a pod, None if it may.

        `making`: others are evicted for it, maybe of its own queue. So what its queues have does not count, but what
        they have been promised in the same way does.
        """
        account = self._queues.of(uid)
        if account is None:
            return None
        less = {name: dict(amounts) for name, amounts in self._own(account, (uid,)).items()}
        for standing in self._above(account) if making else ():
            add(less.setdefault(standing.name, {}), standing.allocated.items())
        return self.shortage(account, self._queues.takes(uid), less)

    def block(self, pod: PodState) -> None:
        """The pod waits for room in its queue."""
        self.forget(pod.ref.uid)
        account = self._queues.of(pod.ref.uid)
        if account is not None:
            self._of[pod.ref.uid] = account, pod
            self._blocked.setdefault(account, SortedKeyList(key=_turn)).add(pod)

    def forget(self, uid: str) -> None:
        """The pod does not wait for that any more."""
        self._woken.pop(uid, None)
        found = self._of.pop(uid, None)
        if found is not None:
            account, pod = found
            self._blocked[account].remove(pod)
            if not self._blocked[account]:
                del self._blocked[account]

    def due(self, now: float) -> list[Wake]:
        """The pods to wake now: of each account in turn, no more than there is room for.

        Where nothing starts those are woken that were told another reason for that.
        """
        if not self._blocked or self._gains == self._queues.gains:
            return []
        wakes: list[Wake] = []
        for account in sorted(self._blocked, key=self.standing):
            wakes += self._due(account, MOST_WAKES - len(wakes), now)
        if len(wakes) < MOST_WAKES:
            self._gains = self._queues.gains
        return wakes

    def _due(self, account: Account, most: int, now: float) -> list[Wake]:
        given: dict[str, int] = {}
        too_much: set[Takes] = set()
        wakes: list[Wake] = []
        barred = self._barred(account)
        for pod in self._blocked[account]:
            if barred is not None and (pod.refusal is None or pod.refusal.sentence == barred.sentence):
                continue
            takes, own = self._queues.takes(pod.ref.uid), self._own(account, (pod.ref.uid,))
            if len(wakes) == most:
                break
            if takes in too_much and not own:
                continue
            if barred is None:
                both = dict(given)
                add(both, takes)
                if self.shortage(account, tuple(both.items()), own) is not None:
                    too_much.add(takes)
                    continue
                given = both
            if now >= self._woken.get(pod.ref.uid, now):
                self._woken[pod.ref.uid] = now + AGAIN_S
                wakes.append(Wake(pod.ref))
        return wakes


def _promised(standing: Standing, resource: str, less: Less) -> int:
    """What is promised to pods in it, without what does not count; less than nothing if more of it is to be gone."""
    return standing.promised.get(resource, 0) - less.get(standing.name, {}).get(resource, 0)


def _too_much(standing: Standing, resource: str, most: int, had: int, kept: int, asked: int) -> Reason:
    in_use = f"{shown(resource, had)} are in use"
    beside = f", {shown(resource, kept)} are guaranteed to others" if kept > 0 else ""
    numbers = f"{worded(resource, most)}: {in_use}{beside}, this asks {shown(resource, asked)}"
    if standing.above is None:
        return refusals.queue_reserved(f"the cluster has {numbers}")
    return refusals.queue_full(standing.name, f"queue {standing.name} may have {numbers}")
