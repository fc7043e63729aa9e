"""What is due to queues, and what they have, against naive twins; no queue ever past its capability."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import nullcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.engine.queueing.queues import Queues
from extender.engine.queueing.shares import QueueDemand, divide
from protos.contract.objects import Pod
from protos.contract.queue import GPU, GPUS, NOBODY, Queue
from protos.contract.selector import Selector
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import GangStory, members
from tests.unit.engine.test_queues import a_queue, in_queue

AMOUNTS = st.integers(0, 40)
CLAIMS = st.lists(
    st.builds(
        lambda asked, weight, priority, sure, more: QueueDemand(asked, weight, priority, sure, sure + more),
        AMOUNTS, st.integers(1, 5), st.integers(0, 2), st.integers(0, 6), st.integers(0, 10),
    ),
    min_size=1, max_size=6,
)  # fmt: skip
NEAR = 1e-6


def naive(amount: float, claims: Sequence[QueueDemand]) -> list[float]:
    """The same by giving a little at a time to those who want more, as the sources iterate it."""
    due = [0.0] * len(claims)

    def pour(upto: list[float], weights: Sequence[float], who: list[int]) -> None:
        nonlocal amount
        while amount > NEAR / 100:
            want = [i for i in who if upto[i] - due[i] > NEAR / 100]
            if not want:
                return
            total = sum(weights[i] for i in want)
            most = min(amount, *((upto[i] - due[i]) * total / weights[i] for i in want))
            for i in want:
                due[i] += most * weights[i] / total
            amount -= most

    everyone = list(range(len(claims)))
    for promised in ([c.guarantee for c in claims], [max(c.guarantee, c.deserved) for c in claims]):
        pour([min(c.asked, p) for c, p in zip(claims, promised, strict=True)], promised, everyone)
    for priority in sorted({c.priority for c in claims}, reverse=True):
        tier = [i for i in everyone if claims[i].priority == priority]
        pour([c.asked for c in claims], [c.weight for c in claims], tier)
    return due


@given(AMOUNTS, CLAIMS)
def test_a_division_is_that_of_its_twin(amount: int, claims: list[QueueDemand]) -> None:
    assert divide(amount, claims) == pytest.approx(naive(amount, claims), abs=1e-4)


@given(AMOUNTS, CLAIMS)
def test_all_is_given_that_is_asked_and_there_and_nobody_gets_more_than_it_asks(
    amount: int, claims: list[QueueDemand]
) -> None:
    due = divide(amount, claims)
    assert sum(due) == pytest.approx(min(amount, sum(claim.asked for claim in claims)), abs=NEAR)
    assert all(-NEAR <= had <= claim.asked + NEAR for had, claim in zip(due, claims, strict=True))
    if sum(claim.guarantee for claim in claims) <= amount:
        assert all(had >= min(claim.asked, claim.guarantee) - NEAR for had, claim in zip(due, claims, strict=True)), (
            "guarantees are kept"
        )


@given(AMOUNTS, CLAIMS, st.integers(1, 5))
def test_more_weight_never_means_less(amount: int, claims: list[QueueDemand], more: int) -> None:
    heavier = [claims[0]._replace(weight=claims[0].weight + more), *claims[1:]]
    assert divide(amount, heavier)[0] >= divide(amount, claims)[0] - NEAR


PARENTS = ("", "a", "b", "c", "nobody")


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_what_queues_have_is_what_their_pods_take_whatever_happens(seed: int) -> None:
    draw = random.Random(seed)
    queues, pods = Queues(), dict[str, tuple[str, int, bool]]()
    for step in range(60):
        name, uid = draw.choice("abcd"), f"p{draw.randrange(12)}"
        match draw.randrange(6):
            case 0:
                guarantee = {GPUS: draw.randrange(3)}
                queues.put(Queue(name=name, parent=draw.choice(PARENTS), guarantee=guarantee))
            case 1:
                queues.drop("gangshare.io/v1alpha1", name)
            case 2:
                queues.forget(uid)
                pods.pop(uid, None)
            case _:
                with queues.batched() if draw.random() < 0.5 else nullcontext():
                    for each in (uid, *draw.sample(sorted(pods), min(3, len(pods)))):
                        pods[each] = name, draw.randrange(1, 3), draw.random() < 0.5
                        queues.see(each, name, "ns", ((GPUS, pods[each][1]),), placed=pods[each][2])
        if step % 3 == 0:
            queues.reckon({GPUS: 30})
            _agrees(queues, pods)


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_queues_whose_amounts_change_stand_as_in_a_new_process(seed: int) -> None:
    draw = random.Random(seed)
    parents = {name: draw.choice(PARENTS) for name in "abcd"}
    queues, known, pods = Queues(), dict[str, Queue](), dict[str, tuple[str, int, bool]]()
    for _ in range(40):
        name, uid = draw.choice("abcd"), f"p{draw.randrange(12)}"
        if draw.random() < 0.5:
            known[name] = Queue(
                name=name,
                parent=parents[name],
                weight=draw.randrange(1, 4),
                guarantee={draw.choice((GPUS, "cpu")): draw.randrange(9)},
                deserved={GPUS: draw.randrange(9)},
                capability={GPUS: draw.randrange(9)},
            )
            queues.put(known[name])
        else:
            pods[uid] = name, draw.randrange(1, 9), draw.random() < 0.5
            queues.see(uid, name, "ns", ((GPUS, pods[uid][1]),), placed=pods[uid][2])
        queues.reckon({GPUS: 30})
        anew = Queues()
        for each in known.values():
            anew.put(each)
        for other, (named, takes, placed) in pods.items():
            anew.see(other, named, "ns", ((GPUS, takes),), placed=placed)
        anew.reckon({GPUS: 30})
        assert queues.fair == anew.fair
        assert _stand(queues) == _stand(anew)
        assert queues.root.idle == anew.root.idle
    assert queues.epoch < len(known) + 4, "the tree is built anew only for queues that are new"


def _stand(queues: Queues) -> object:
    return {
        name: (s.queue, s.idle, s.due, s.rank, s.contested, s.lacks, s.own_due)
        for name, s in queues.queue_nodes.items()
    }


SELECTORS = (None, Selector(), Selector({"team": "x"}), Selector({"team": "y"}), NOBODY)


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_pods_are_in_the_queue_that_admits_their_namespace_and_a_new_process_finds_the_same(seed: int) -> None:
    draw = random.Random(seed)
    queues, pods = Queues(), dict[str, tuple[str, str, bool]]()
    known, labels = dict[str, Queue](), dict[str, dict[str, str]]()
    for step in range(60):
        name, namespace, uid = draw.choice("abc"), draw.choice(("ns-0", "ns-1", "ns-2")), f"p{draw.randrange(12)}"
        match draw.randrange(7):
            case 0:
                listed = tuple(ns for ns in ("ns-0", "ns-1") if draw.random() < 0.2)
                known[name] = Queue(name=name, namespace_selector=draw.choice(SELECTORS), namespaces=listed)
                queues.put(known[name])
            case 1:
                known.pop(name, None)
                queues.drop("gangshare.io/v1alpha1", name)
            case 2 | 3:
                labels[namespace] = draw.choice(({}, {"team": "x"}, {"team": "y"}))
                queues.namespace(namespace, labels[namespace])
            case 4:
                labels.pop(namespace, None)
                queues.namespace(namespace, None)
            case _:
                pods[uid] = draw.choice(("", name)), namespace, draw.random() < 0.5
                queues.see(uid, *pods[uid][:2], ((GPUS, 1),), placed=pods[uid][2])
        if step % 3 == 0:
            anew = Queues()
            for one in sorted(known):
                anew.put(known[one])
            for one, had in labels.items():
                anew.namespace(one, had)
            for one, (named, where, placed) in pods.items():
                anew.see(one, named, where, ((GPUS, 1),), placed=placed)
            for one, (named, where, _) in pods.items():
                account, again = queues.of(one), anew.of(one)
                assert account
                assert again
                found = queues.at(account).name, account.refused
                assert found == (anew.at(again).name, again.refused) == _meant(known, labels, named, where)
            _agrees(queues, {uid: (named, 1, placed) for uid, (named, _, placed) in pods.items()})


def _meant(known: dict[str, Queue], labels: dict[str, dict[str, str]], named: str, namespace: str) -> tuple[str, str]:
    """The queue of a pod, and the one that did not admit it, by the words of the page."""
    listing = [name for name in sorted(known) if namespace in known[name].namespaces]
    wanted = [*([named] if named in known else []), *listing[:1], "default"]

    def admits(name: str) -> bool:
        selector = known[name].namespace_selector if name in known else None
        if selector is None or selector == Selector():
            return True
        return namespace in labels and selector.selects(labels[namespace])

    at = next(name for name in wanted if admits(name))
    return at, "" if at == wanted[0] else wanted[0]


def _agrees(queues: Queues, pods: dict[str, tuple[str, int, bool]]) -> None:
    """With a sum over all pods."""
    for queue_node in (*queues.queue_nodes.values(), queues.root):
        inside = [
            pods[uid]
            for uid in pods
            if (account := queues.of(uid)) and queue_node in (*queues.at(account).path, queues.root)
        ]
        assert queue_node.requested.get(GPUS, 0) == sum(amount for _, amount, _ in inside)
        assert queue_node.allocated.get(GPUS, 0) == sum(amount for _, amount, placed in inside if placed)
        assert (queue_node.running, queue_node.waiting) == (
            sum(placed for *_, placed in inside),
            sum(not placed for *_, placed in inside),
        )
        unmet = [below.unmet(GPUS) for below in queue_node.below]
        assert queue_node.idle.get(GPUS, 0) == sum(unmet)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32))
def test_no_queue_is_ever_past_its_capability_and_nobody_is_left_alone_who_has_room(seed: int) -> None:
    draw = random.Random(seed)
    story = GangStory(a_node("n1", *[16] * 4), a_node("n2", *[16] * 4))
    most = {name: draw.randrange(1, 7) for name in ("a", "b", "c")}
    story.tell(*(a_queue(name, gpus=count, parent="a" if name == "b" else "") for name, count in most.items()))
    alive: list[list[str]] = []
    for turn in range(14):
        if alive and draw.random() < 0.4:
            story.delete(*alive.pop(draw.randrange(len(alive))))
        else:
            pods = _drawn(draw, f"g{turn}", draw.choice("abc"))
            story.create(*pods)
            alive.append([pod.metadata.name for pod in pods])
        story.later(draw.choice((0.3, 2)))
        waiting = [name for each in alive for name in each if not story.pods[name].spec.node_name]
        story.come(*waiting)
        story.land()
        standings = story.engine.tenancy.queues.queue_nodes
        for name, count in most.items():
            assert standings[name].allocated.get(GPUS, 0) <= count * GPU
        story.later()
        for known in story.engine.gangs.roster.known.values():
            assert not known.parked or story.engine.gangs.planner.withheld(known.gang) is not None


def _drawn(draw: random.Random, name: str, queue: str) -> list[Pod]:
    said = in_queue(queue)
    if draw.random() < 0.5:
        return [a_pod(name, mem=draw.choice((4, 8, 16)), annotations=said)]
    count = draw.randrange(2, 5)
    least = draw.randint(1, count)
    return members(count, gang=name, prefix=f"{name}-", mem=0, whole=1, least=least, annotations=said)
