"""What people ask is worked out in slices behind kube-scheduler's questions, once for all who ask alike."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from extender.server import desk
from extender.server.desk import Desk, Refusal, Traffic
from extender.steps import Steps

STEP_S = 0.0003


class Clock:
    """Time that passes only where a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(desk, "time", made)
    return made


class Work:
    """A long answer: each piece takes a while, and is noted with the turn of the event loop in which it was made."""

    def __init__(self, clock: Clock, pieces: int) -> None:
        self._clock, self._pieces = clock, pieces
        self.begun, self.turn, self.made_in = 0, 0, list[int]()

    def __call__(self) -> Iterator[bytes]:
        self.begun += 1
        for number in range(self._pieces):
            self._clock.now += STEP_S
            self.made_in.append(self.turn)
            yield b"%d " % number

    async def turns(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)


async def test_equal_questions_are_worked_out_once_and_in_short_slices(clock: Clock) -> None:
    table, work = Desk(Traffic(Steps()), 4, "busy"), Work(clock, 1000)
    turning = asyncio.create_task(work.turns())
    answers = await asyncio.gather(*(table.ask("inspect", work) for _ in range(300)))
    turning.cancel()
    assert work.begun == 1
    assert {id(answer) for answer in answers} == {id(answers[0])}
    assert b"".join(answers[0].parts).split()[-1] == b"999"
    in_one_turn = [work.made_in.count(turn) for turn in set(work.made_in)]
    assert max(in_one_turn) * STEP_S <= desk.SLICE_S + STEP_S


async def test_different_questions_share_the_slices_too(clock: Clock) -> None:
    traffic = Traffic(Steps())
    work = Work(clock, 300)
    turning = asyncio.create_task(work.turns())
    desks = [Desk(traffic, 8, "busy") for _ in range(3)]
    await asyncio.gather(*(table.ask(f"{number}", work) for table in desks for number in range(5)))
    turning.cancel()
    assert work.begun == 15
    assert max(work.made_in.count(turn) for turn in set(work.made_in)) * STEP_S <= desk.SLICE_S + STEP_S


async def test_an_answer_is_not_older_than_its_question(clock: Clock) -> None:
    table, work = Desk(Traffic(Steps()), 4, "busy"), Work(clock, 50)
    first = asyncio.create_task(table.ask("inspect", work))
    while not work.begun:  # noqa: ASYNC110  # it is begun in this loop
        await asyncio.sleep(0)
    second, third = (asyncio.create_task(table.ask("inspect", work)) for _ in range(2))
    assert await first is not await second
    assert await second is await third
    assert work.begun == 2


async def test_nothing_is_worked_out_while_kube_scheduler_waits(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """And right after its question; but not for ever, where questions never cease."""
    monkeypatch.setattr(desk, "PATIENCE_S", 5.0)
    traffic = Traffic(Steps())
    table, work = Desk(traffic, 4, "busy"), Work(clock, 2)
    traffic.begin(holds=False)
    asking = asyncio.create_task(table.ask("inspect", work))
    await asyncio.sleep(0.05)
    assert not work.made_in
    traffic.end(holds=False)
    await asyncio.sleep(0.05)
    assert not work.made_in, "no time has passed since"
    clock.now += 2 * desk.QUIET_S
    await asyncio.wait_for(asking, 10)
    traffic.begin(holds=False)
    asking = asyncio.create_task(table.ask("inspect", work))
    await asyncio.sleep(0.05)
    clock.now += 10.0
    await asyncio.wait_for(asking, 10)


async def test_a_bind_that_is_held_holds_nobody_up(clock: Clock) -> None:
    traffic = Traffic(Steps())
    traffic.begin(holds=True)
    clock.now += 2 * desk.QUIET_S
    await asyncio.wait_for(Desk(traffic, 4, "busy").ask("inspect", Work(clock, 5)), 10)


async def test_too_many_different_questions_are_refused_and_there_is_room_again(clock: Clock) -> None:
    table, work = Desk(Traffic(Steps()), 2, "try again"), Work(clock, 5)
    asked = await asyncio.gather(*(table.ask(f"{n}", work) for n in range(5)), return_exceptions=True)
    refused = [answer for answer in asked if isinstance(answer, Refusal)]
    assert [(r.status, r.sentence) for r in refused] == [(HTTPStatus.SERVICE_UNAVAILABLE, "try again")] * 3
    await table.ask("5", work)


async def test_answers_that_are_read_slowly_are_bounded(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "MOST_OUT", 10)
    table, work = Desk(Traffic(Steps()), 4, "try again"), Work(clock, 50)
    answer = await table.ask("inspect", work)
    with table.reading(answer), table.reading(answer), pytest.raises(Refusal):
        await table.ask("inspect", work)
    await table.ask("inspect", work)


async def test_parts_are_sent_one_in_each_turn_of_the_loop(clock: Clock) -> None:
    traffic, turns, sent = Traffic(Steps()), Work(clock, 0), list[int]()

    async def send() -> None:
        sent.append(turns.turn)

    turning = asyncio.create_task(turns.turns())
    await asyncio.gather(*(traffic.part(send()) for _ in range(60)))
    turning.cancel()
    assert len(set(sent)) == len(sent) == 60


async def test_a_question_that_breaks_is_answered_with_500_and_the_next_one_as_ever(clock: Clock) -> None:
    def broken() -> Iterator[bytes]:
        yield b"{"
        raise KeyError("gone")

    table = Desk(Traffic(Steps()), 4, "busy")
    with pytest.raises(Refusal, match="this question failed") as refused:
        await table.ask("inspect", broken)
    assert refused.value.status == HTTPStatus.INTERNAL_SERVER_ERROR
    await table.ask("inspect", Work(clock, 5))


async def test_who_leaves_takes_no_answer_away_from_others(clock: Clock) -> None:
    table, work = Desk(Traffic(Steps()), 4, "busy"), Work(clock, 500)
    leaving, staying = (asyncio.create_task(table.ask("inspect", work)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    assert (await staying).size


async def test_garbage_is_looked_for_after_each_slice(clock: Clock) -> None:
    looks: list[int] = []
    work = Work(clock, 1000)
    steps = Steps()
    steps.tidy = lambda: looks.append(len(work.made_in))
    table = Desk(Traffic(steps), 4, "busy")
    await table.ask("inspect", work)
    assert max(after - before for before, after in itertools.pairwise([0, *looks])) <= 1 + desk.SLICE_S / STEP_S
    assert looks[-1] == 1000
