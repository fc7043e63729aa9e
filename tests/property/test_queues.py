"""What is due to queues, and what they have, against naive twins; no queue ever past its capability."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.engine.queues.queues import Queues
from extender.engine.queues.shares import Claim, divide
from protos.contract.objects import Pod
from protos.contract.queue import GPU, GPUS, Queue
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import GangStory, members
from tests.unit.engine.test_queues import a_queue, in_queue

AMOUNTS = st.integers(0, 40)
CLAIMS = st.lists(
    st.builds(
        lambda asked, weight, priority, guarantee, more: Claim(asked, weight, priority, guarantee, guarantee + more),
        AMOUNTS, st.integers(1, 5), st.integers(0, 2), st.integers(0, 6), st.integers(0, 10),
    ),
    min_size=1, max_size=6,
)  # fmt: skip
NEAR = 1e-6


def naive(amount: float, claims: Sequence[Claim]) -> list[float]:
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
def test_a_division_is_that_of_its_twin(amount: int, claims: list[Claim]) -> None:
    assert divide(amount, claims) == pytest.approx(naive(amount, claims), abs=1e-4)


@given(AMOUNTS, CLAIMS)
def test_all_is_given_that_is_asked_and_there_and_nobody_gets_more_than_it_asks(
    amount: int, claims: list[Claim]
) -> None:
    due = divide(amount, claims)
    assert sum(due) == pytest.approx(min(amount, sum(claim.asked for claim in claims)), abs=NEAR)
    assert all(-NEAR <= had <= claim.asked + NEAR for had, claim in zip(due, claims, strict=True))
    if sum(claim.guarantee for claim in claims) <= amount:
        assert all(had >= min(claim.asked, claim.guarantee) - NEAR for had, claim in zip(due, claims, strict=True)), (
            "guarantees are kept"
        )


@given(AMOUNTS, CLAIMS, st.integers(1, 5))
def test_more_weight_never_means_less(amount: int, claims: list[Claim], more: int) -> None:
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
                pods[uid] = name, draw.randrange(1, 9), draw.random() < 0.5
                queues.see(uid, name, "ns", ((GPUS, pods[uid][1]),), placed=pods[uid][2])
        if step % 3 == 0:
            queues.reckon({GPUS: 30})
            _agrees(queues, pods)


def _agrees(queues: Queues, pods: dict[str, tuple[str, int, bool]]) -> None:
    """With a sum over all pods."""
    for standing in (*queues.standings.values(), queues.root):
        inside = [
            pods[uid]
            for uid in pods
            if (account := queues.of(uid)) and standing in (*queues.at(account).path, queues.root)
        ]
        assert standing.requested.get(GPUS, 0) == sum(amount for _, amount, _ in inside)
        assert standing.allocated.get(GPUS, 0) == sum(amount for _, amount, placed in inside if placed)
        assert (standing.running, standing.waiting) == (
            sum(placed for *_, placed in inside),
            sum(not placed for *_, placed in inside),
        )
        unmet = [below.unmet(GPUS) for below in standing.below]
        assert standing.idle.get(GPUS, 0) == sum(unmet)


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
        standings = story.engine.tenancy.queues.standings
        for name, count in most.items():
            assert standings[name].allocated.get(GPUS, 0) <= count * GPU
        story.later()
        for known in story.engine.gangs.known.values():
            assert not known.parked or story.engine.gangs.starts.withheld(known.gang) is not None


def _drawn(draw: random.Random, name: str, queue: str) -> list[Pod]:
    said = in_queue(queue)
    if draw.random() < 0.5:
        return [a_pod(name, mem=draw.choice((4, 8, 16)), annotations=said)]
    count = draw.randrange(2, 5)
    least = draw.randint(1, count)
    return members(count, gang=name, prefix=f"{name}-", mem=0, whole=1, least=least, annotations=said)
