"""The queues as a tree, which pods are in which, and what they take: kept up to date pod by pod.

Pods that name the same queue in the same namespace share an account; an account is in one queue, so that a queue that
comes, goes or moves costs by accounts and not by pods. What a pod takes is added to its queue and to all above it.
Queues whose parent is missing, or that are their own ancestors, hang below the root.

A queue may select the namespaces that it admits. Pods of another one that name it start nowhere; those that run count
where they would be if they named none. So nobody moves what it has into the queue of somebody else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from extender.engine.books.amounts import add
from extender.engine.queues import shares
from extender.engine.queues.shares import Claim
from extender.engine.queues.standing import ALWAYS, Account, Standing
from extender.engine.queues.takes import Takes
from protos.contract.bounds import QUEUE_DEPTH, QUEUE_DIVIDED
from protos.contract.queue import DEFAULT, GPUS, SOURCES, Queue
from protos.contract.selector import Selector

SWEEP = 1024
"""Accounts without pods are dropped when there are twice as many as were in use, and so many more."""
SAME = 0.5
"""Amounts that differ by less are the same: the smallest there are is 1."""

_RANK = {source.api_version: place for place, source in enumerate(SOURCES)}


class Queues:
    """All queues."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Queue]] = {}
        """By name and source."""
        self._accounts: dict[tuple[str, str], Account] = {}
        self._pods: dict[str, tuple[Account, Takes, bool]] = {}
        self.promised: dict[str, tuple[Account, Takes]] = {}
        """The pods (UIDs) that wait, and for whom room is kept: nobody else gets that room in their queues before."""
        self._nodes: dict[str, dict[str, int]] = {}
        self.total: dict[str, int] = {}
        """What all nodes have."""
        self._grown = False
        self._root = Standing(Queue(name="", source=""))
        self._standings: dict[str, Standing] = {}
        self._downwards: Sequence[Standing] = ()
        """The root and all queues, each before those below it."""
        self._of_namespace: dict[str, Standing] = {}
        self._namespaces: dict[str, Mapping[str, str]] = {}
        """Their labels."""
        self._peopled: set[str] = set()
        """Namespaces of which there are accounts or queues."""
        self._sweep_at = SWEEP
        """So many accounts are too many."""
        self._nameable = False
        self._fair: frozenset[str] = frozenset()
        self._stale = False
        self._also: Mapping[str, int] = {}
        self._epoch = self._gains = self._revalued = 0
        self._batch: Counter[tuple[Account, Takes]] | None = None
        self.moved: Callable[[str], None] = lambda _: None
        """Told of each pod (its UID) that comes to another account."""
        self.prices = 0
        """Counts how often what a pod that waits would take turned out to be something else."""
        self.dues = 0
        """Counts how often something else was due to somebody."""
        self.touched: dict[str, None] = {}
        """Queues of which something changed since that was told."""

    # -- the world

    def put(self, queue: Queue) -> None:
        """The queue is there, or another one now.

        One that cannot be read stays what it was, with its problem; nothing starts in it if it never could be read.
        """
        known = self._known.setdefault(queue.name, {})
        before = known.get(queue.source)
        if queue.problem:
            former = before if before is not None else msgspec.structs.replace(queue, closed=True)
            selector = queue.namespace_selector or former.namespace_selector
            queue = msgspec.structs.replace(former, problem=queue.problem, namespace_selector=selector)
        if queue != before:
            known[queue.source] = queue
            standing = self._standings.get(queue.name) if self._grown else None
            if before is not None and standing is not None and standing.queue is before and _alike(before, queue):
                self._revalue(standing, queue)
            else:
                self._grown = False
            self.touched[queue.name] = None

    def _revalue(self, standing: Standing, queue: Queue) -> None:
        """The queue may have more now, or less; the tree stays as it is."""
        standing.revalue(queue)
        self._revalued += 1
        self._divided()
        self._stale = True
        self._gains += 1
        self._root.gains += 1

    def drop(self, source: str, name: str) -> None:
        """The queue is gone."""
        known = self._known.get(name, {})
        if known.pop(source, None) is not None:
            self._grown = False
            self.touched.pop(name, None)
            if not known:
                del self._known[name]

    def namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """The namespace has these labels now; None if it is gone, or they cannot be read."""
        before = self._namespaces.pop(name, None)
        if labels is not None:
            self._namespaces[name] = labels
        if not self._grown or labels == before or name not in self._peopled:
            return
        selectors = [s.queue.namespace_selector for s in self._standings.values()]
        if any(_selects(each, labels) != _selects(each, before) for each in selectors):
            self._grown = False

    def node(self, name: str, has: Mapping[str, int]) -> None:
        """The node has so much for pods; nothing if it is gone."""
        before, now = self._nodes.pop(name, {}), dict(has)
        if now:
            self._nodes[name] = now
        if now != before:
            add(self.total, before.items(), -1)
            add(self.total, now.items())
            self._stale = True
            self._gains += 1
            self._root.gains += 1

    def see(self, uid: str, named: str, namespace: str, takes: Takes, *, placed: bool) -> None:
        """The pod names this queue ("" for none), takes so much, and is `placed` or waits."""
        account = self.account(named, namespace)
        before, now = self._pods.get(uid), (account, takes, placed)
        if now == before:
            return
        self._pods[uid] = now
        if uid in self.promised:
            self.promise(uid, not placed)
        if before is None:
            self._ask(account, takes, 1)
            self._place(account, takes, placed, 1)
        elif before[:2] == now[:2]:
            self._place(account, takes, placed=True, sign=1 if placed else -1)
        else:
            self.prices += before[1] != takes and not (before[2] or placed)
            self._leave(*before)
            self._ask(account, takes, 1)
            self._place(account, takes, placed, 1)
            if before[0] is not account:
                self.moved(uid)

    @contextmanager
    def batched(self) -> Iterator[None]:
        """Meanwhile nobody asks: pods that get a place, or lose theirs, are added up and counted at the end.

        The members of a gang are alike, so that costs little more than one of them.
        """
        batch = self._batch = Counter()
        try:
            yield
        finally:
            self._batch = None
            for (account, takes), count in batch.items():
                self._count(account, takes, count)

    def forget(self, uid: str) -> None:
        """The pod is over."""
        before = self._pods.pop(uid, None)
        if before is not None:
            self._leave(*before)
        self.promise(uid, False)

    def promise(self, uid: str, yes: bool) -> None:
        """Whether room is kept for this pod."""
        before, known = self.promised.pop(uid, None), self._pods.get(uid)
        if before is not None:
            self._promise(*before, -1)
        if yes and known is not None and not known[2]:
            self.promised[uid] = known[:2]
            self._promise(*known[:2], 1)

    def _promise(self, account: Account, takes: Takes, sign: int) -> None:
        for standing in (*account.at.path, self._root) if self._grown else ():
            standing.promise(takes, sign)
            self._gains += sign < 0

    def _leave(self, account: Account, takes: Takes, placed: bool) -> None:
        self._place(account, takes, placed, -1)
        self._ask(account, takes, -1)

    def _ask(self, account: Account, takes: Takes, sign: int) -> None:
        """One more pod that waits (or less) is in it."""
        add(account.requested, takes, sign)
        account.waiting += sign
        if self._grown:
            add(account.at.own, takes, sign)
            for standing in (*account.at.path, self._root):
                standing.ask(takes, sign)
                standing.count(0, sign)
                self.touched[standing.name] = None
            self._stale = True

    def _place(self, account: Account, takes: Takes, placed: bool, sign: int) -> None:
        """If it is placed: one that waits in it has (or has no more) what it asks."""
        if not placed:
            return
        if self._batch is not None:
            self._batch[account, takes] += sign
        else:
            self._count(account, takes, sign)

    def _count(self, account: Account, takes: Takes, pods: int) -> None:
        """So many more pods that take so much (or less) have a place."""
        add(account.allocated, takes, pods)
        account.running, account.waiting = account.running + pods, account.waiting - pods
        if self._grown:
            for standing in (*account.at.path, self._root):
                standing.place(takes, pods)
                standing.count(pods, -pods)
                self.touched[standing.name] = None
            self._stale = True
            self._gains += pods < 0

    def recount(self) -> None:
        """Count anew what is in each account, and build the tree anew: an error may have left a pod counted by half."""
        for account in self._accounts.values():
            account.allocated, account.requested, account.running, account.waiting = {}, {}, 0, 0
        self._grown = False
        for account, takes, placed in self._pods.values():
            self._ask(account, takes, 1)
            self._place(account, takes, placed, 1)

    # -- who is where

    def account(self, named: str, namespace: str) -> Account:
        """The account of pods of this namespace that name this queue."""
        named = "" if named == DEFAULT else named
        account = self._accounts.get((named, namespace))
        if account is None:
            if len(self._accounts) >= self._sweep_at:
                self._grown = False
            account = self._accounts[named, namespace] = Account(named, namespace)
            if self._grown:
                self._settle(account)
        return account

    def of(self, uid: str) -> Account | None:
        """The account of a pod, None if it is in none."""
        found = self._pods.get(uid)
        return found[0] if found is not None else None

    def shared(self, uid: str, other: str) -> bool:
        """Whether two pods are in the same queue, as far as both count in any."""
        account, another = self.of(uid), self.of(other)
        return account is None or another is None or self.at(account) is self.at(another)

    def takes(self, uid: str) -> Takes:
        """What a pod takes, or would take."""
        found = self._pods.get(uid)
        return found[1] if found is not None else ()

    def home(self, uid: str) -> Standing:
        """The queue that a pod is in; the root if it is in none."""
        account = self.of(uid)
        return self.at(account) if account is not None else self.root

    @property
    def root(self) -> Standing:
        """What is above all queues."""
        self._grow()
        return self._root

    @property
    def standings(self) -> Mapping[str, Standing]:
        """All queues by name, as they stand."""
        self._grow()
        return self._standings

    @property
    def epoch(self) -> int:
        """Counts how often the tree changed."""
        self._grow()
        return self._epoch

    @property
    def terms(self) -> int:
        """Counts how often the tree changed, or what any of them may have."""
        return self.epoch + self._revalued

    @property
    def gains(self) -> int:
        """Counts how often there may have come room for somebody."""
        self._grow()
        return self._gains

    def at(self, account: Account) -> Standing:
        """The queue that these pods are in, also if there are none yet."""
        self._grow()
        if account.epoch != self._epoch:
            self._settle(account)
        return account.at

    def _grow(self) -> None:
        """Build the tree anew, if that changed."""
        if self._grown:
            return
        self._grown, self._stale = True, True
        self._epoch += 1
        self._gains += 1
        dues = {name: standing.due for name, standing in self._standings.items()}
        best = [self._known[name][min(self._known[name], key=_RANK.__getitem__)] for name in sorted(self._known)]
        self._standings = {queue.name: Standing(queue) for queue in best}
        self._standings.setdefault(DEFAULT, Standing(ALWAYS))
        self._root = Standing(self._root.queue)
        self._nameable = any("/" not in name for name in self._known)
        self._hang()
        for name, standing in self._standings.items():
            standing.due = dues.get(name, {})
            self.touched[name] = None
        self._divided()
        self._accounts = {key: a for key, a in self._accounts.items() if a.waiting or a.running}
        self._sweep_at = 2 * len(self._accounts) + SWEEP
        self._peopled = {_namespace(standing) for standing in self._standings.values()}
        for account in self._accounts.values():
            self._settle(account)
            self._refill(account)
        for account, takes in self.promised.values():
            self._promise(account, takes, 1)

    def _divided(self) -> None:
        """Find out which resources are divided."""
        queues = [standing.queue for standing in self._standings.values()]
        fair = sorted({GPUS}.union(*((*queue.guarantee, *queue.deserved) for queue in queues)), key=_divided_first)
        self._fair = frozenset(fair[: QUEUE_DIVIDED.most])

    def _hang(self) -> None:
        """Every queue below another, or the root."""
        for standing in self._standings.values():
            standing.above = self._parent(standing) or self._root
            standing.above.below.append(standing)
            add(standing.above.idle, standing.queue.guarantee.items())
        downwards = [self._root]
        for standing in downwards:
            downwards += standing.below
        self._downwards = downwards
        last = sorted(self._standings.values(), key=lambda s: (_RANK.get(s.queue.source, 0), s.name), reverse=True)
        self._of_namespace = {namespace: s for s in last for namespace in s.queue.namespaces}

    def _parent(self, standing: Standing) -> Standing | None:
        """The one above it, None if that is the root; says why it is that though another is named."""
        named = standing.queue.parent
        if not named:
            return None
        above = at = self._find(named, _namespace(standing))
        if at is None:
            standing.misplaced = f"its parent {named} does not exist: it hangs below the root"
        seen: set[str] = set()
        while at is not None and at is not standing and at.name not in seen and len(seen) < QUEUE_DEPTH.most:
            seen.add(at.name)
            at = self._find(at.queue.parent, _namespace(at)) if at.queue.parent else None
        if at is standing:
            standing.misplaced = f"its parent {named} hangs below it: it hangs below the root"
        elif len(seen) == QUEUE_DEPTH.most:
            standing.misplaced = f"{QUEUE_DEPTH.most} queues or more are above it: it hangs below the root"
        elif above is not None and (own := _namespace(standing)) and not self._admits(above, own):
            standing.misplaced = f"its parent {named} does not admit namespace {own}: it hangs below the root"
        return None if standing.misplaced else above

    def _find(self, name: str, namespace: str) -> Standing | None:
        """The queue that is meant by a name in a namespace: one of that name, else the namespace's ElasticQuota."""
        return self._standings.get(name) or self._standings.get(f"{namespace}/{name}")

    def _settle(self, account: Account) -> None:
        """Find the queue of an account: that which is named, else that of its namespace, else `default`.

        The first of these is where its pods want to be, the first that admits their namespace where they are. One that
        is named and does not exist is missed where there are queues that can be named.
        """
        account.epoch = self._epoch
        self._peopled.add(account.namespace)
        found = self._find(account.named, account.namespace) if account.named else None
        account.missing = found is None and bool(account.named) and self._nameable
        default = self._standings[DEFAULT]
        wanted = [each for each in (found, self._of_namespace.get(account.namespace), default) if each is not None]
        admitting = (each for each in wanted if self._admits(each, account.namespace))
        at = next(admitting, None)
        account.at, account.refused = at or default, "" if at is wanted[0] else wanted[0].name
        if account.refused:
            wanted[0].strangers.append(account)

    def _admits(self, standing: Standing, namespace: str) -> bool:
        """Whether pods of this namespace may use the queue; an ElasticQuota is for those of its own."""
        own = _namespace(standing)
        if own:
            return own == namespace
        return _selects(standing.queue.namespace_selector, self._namespaces.get(namespace))

    def _refill(self, account: Account) -> None:
        """Add all its pods to the queues that it is in."""
        allocated, requested = tuple(account.allocated.items()), tuple(account.requested.items())
        add(account.at.own, requested)
        for standing in (*account.at.path, self._root):
            standing.ask(requested, 1)
            standing.place(allocated, 1)
            standing.count(account.running, account.waiting)

    # -- what is due

    def reckon(self, also: Mapping[str, int]) -> bool:
        """Reckon anew what is due to each, if anything changed; returns whether it did.

        `also` is what there is of resources that no node tells, like GPUs of a class.
        """
        self._grow()
        if not self._stale and also == self._also:
            return False
        self._stale, self._also = False, dict(also)
        due: dict[str, dict[str, float]] = {name: {} for name in self._standings}
        for standing in self._downwards:
            standing.contested, standing.own_due = frozenset(), {}
        for resource in sorted(self._fair):
            self._divide(resource, also.get(resource, self.total.get(resource, 0)), due)
        for name, standing in self._standings.items():
            if standing.due != due[name]:
                standing.due, standing.known_part = due[name], None
                self.touched[name] = None
                self.dues += 1
        return True

    @property
    def fair(self) -> frozenset[str]:
        """The resources that are divided: GPUs, and whatever a queue is guaranteed or deserves."""
        self._grow()
        return self._fair

    def _divide(self, resource: str, amount: float, due: Mapping[str, dict[str, float]]) -> None:
        """Divide what is due to each queue among those below it; its own pods count as one of weight 1."""
        asked: dict[str, float] = {}
        for standing in reversed(self._downwards):
            in_all = standing.own.get(resource, 0) + sum(asked[below.name] for below in standing.below)
            asked[standing.name] = min(in_all, standing.queue.capability.get(resource, in_all))
        for above in self._downwards:
            if above.below:
                claims = [_claim(standing.queue, resource, asked[standing.name]) for standing in above.below]
                there = amount if above is self._root else due[above.name][resource]
                claims.append(Claim(above.own.get(resource, 0)))
                parts = shares.divide(there, claims)
                for standing, part in zip(above.below, parts, strict=False):
                    due[standing.name][resource] = part
                above.own_due[resource] = parts[-1]
                if sum(parts) < sum(claim.asked for claim in claims) - SAME:
                    above.contested |= {resource}

    # -- for those who reclaim

    def share(self, name: str) -> float:
        """How much of its due the queue has, 1 for all of it; KeyError if there is no such queue."""
        return self.standings[name].part

    def deserved(self, name: str) -> Mapping[str, float]:
        """What is due to the queue, by resource; KeyError if there is no such queue."""
        return self.standings[name].due

    def over_by(self, name: str) -> dict[str, float]:
        """What the queue has beyond its due, by resource; KeyError if there is no such queue."""
        standing = self.standings[name]
        over = {resource: standing.allocated.get(resource, 0) - due for resource, due in standing.due.items()}
        return {resource: amount for resource, amount in over.items() if amount > 0}


def _alike(one: Queue, other: Queue) -> bool:
    """Whether these are the same but for how much they may have, and when."""
    return (
        msgspec.structs.replace(
            one,
            weight=other.weight,
            priority=other.priority,
            guarantee=other.guarantee,
            deserved=other.deserved,
            capability=other.capability,
        )
        == other
    )


def _claim(queue: Queue, resource: str, asked: float) -> Claim:
    guarantee, deserved = queue.guarantee.get(resource, 0), queue.deserved.get(resource, 0)
    return Claim(asked, queue.weight, queue.priority, guarantee, deserved)


def _divided_first(resource: str) -> tuple[bool, str]:
    return resource != GPUS, resource


def _selects(selector: Selector | None, labels: Mapping[str, str] | None) -> bool:
    """Whether a namespace with these labels is selected; None: nobody knows them."""
    if selector is None or not (selector.match_labels or selector.match_expressions):
        return True
    return labels is not None and selector.selects(labels)


def _namespace(standing: Standing) -> str:
    """Of an ElasticQuota, "" of other queues."""
    return standing.name.rpartition("/")[0]
