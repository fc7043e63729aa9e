"""Victims in random small clusters, compared with all sets of units."""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence

import pytest

from extender.engine.planning.solver import Wanted
from extender.engine.planning.what_if import WhatIfNodes
from extender.engine.policies.preemption.reclaim import ReclaimPolicy
from extender.engine.policies.preemption.units import MayTake, Unit
from extender.engine.policies.preemption.victims import COMING, NoSolution, Search, Victims
from extender.engine.queueing.queues import Queues
from extender.engine.queueing.quota import Quota
from extender.engine.state.seats import Seat
from extender.engine.types.events import PodsListed
from extender.engine.types.sliced import Sliced
from protos.contract import idle, names
from protos.contract.ask import ContainerAsk, PodAsk
from protos.contract.timestamps import timestamp
from tests.builders import MAKER
from tests.property.without import Without, parts
from tests.unit.engine.story import owned_by
from tests.unit.engine.tenancy import Town

IDLE = idle.encode(idle.Idle(1, timestamp(0), timestamp(1e6)))
MARKED = owned_by(names.USAGE, "status", names.IDLE)
UNITS, MANY = 9, 12
"""More of them than this make too many sets, in a small town and in a large one."""
MORE = [pytest.param(seed, MANY, marks=pytest.mark.long) for seed in range(3, 100)]


def a_town(draw: random.Random, most: int) -> Town:
    """Random pods and gangs of some priorities on a few nodes: a small town, or one of `MANY` units or more.

    Some of the pods are idle.
    """
    small, lazy = most == UNITS, random.Random(draw.getstate()[1][0])
    town = Town([draw.choice([1, 2, 4]) for _ in range(draw.randint(1, 3))] if small else [4, 4, 4], idle_first_s=50.0)
    for number in range(draw.randint(2, 9) if small else 30):
        whole = draw.random() < 0.4
        item = (draw.choice([1, 1, 2]) if whole else 1, whole, 0 if whole else draw.randint(3, 10))
        gang = draw.choice(["", "", "a", "b"])
        said = {names.GROUP: gang, names.MIN_MEMBER: "2"} if gang else {}
        said |= {names.IDLE: IDLE} if lazy.random() < 0.5 else {}
        spec = {"priority": draw.randint(0, 2)}
        town.now += draw.randint(0, 30)
        node = draw.choice(sorted(town.sizes))
        town.settle(
            f"p{number}", item, node=node, movable=False, annotations=said, spec=spec, managedFields=[MAKER, *MARKED]
        )
    town.engine.step(PodsListed(), town.now)
    return town


def seats_of(draw: random.Random) -> tuple[Seat, ...]:
    kinds = draw.choice([["whole"], ["part"], ["part", "whole"]])
    found = []
    for number in range(draw.randint(1, 3)):
        if draw.choice(kinds) == "whole":
            ask = PodAsk(containers=(ContainerAsk(name="c", gpus=len(kinds), whole=names.WHOLE_GPU),))
        else:
            ask = PodAsk(containers=(ContainerAsk(name="c", gpus=1, mem=draw.choice([4, 8]) if len(kinds) > 1 else 6),))
        found.append(Seat(uid=f"w{number}", ask=ask, requests=(("pods", 1),)))
    return tuple(found)


def units_of(town: Town) -> list[Unit]:
    work = Sliced(town.engine._components.preemption._units.found(town.now, lambda _: True))
    while not work.advance():
        pass
    return work.outcome or []


def searched(town: Town, seats: tuple[Seat, ...], units: list[Unit]) -> Victims | NoSolution:
    def candidates(_: MayTake) -> Generator[int, None, list[Unit]]:
        yield 1
        return list(units)

    def draw() -> WhatIfNodes:
        return WhatIfNodes(town.engine.ledger, ())

    def anybody() -> ReclaimPolicy:
        queues = Queues()
        return ReclaimPolicy(queues, Quota(queues), ["w"], 1000)

    def allowed(*_: Sequence[Unit]) -> Generator[int, None, dict[str, str]]:
        yield 1
        return {}

    search = Search(town.engine.gangs.planner.view, draw, Wanted(seats), candidates, anybody, allowed)
    while not search.advance():
        pass
    assert search.outcome is not None
    return search.outcome


def dearness(units: Sequence[Unit], chosen: Sequence[Unit]) -> int:
    """Sets compared by their dearest unit, then by the next."""
    return sum(1 << number for number, unit in enumerate(units) if unit in chosen)


@pytest.mark.parametrize(("seed", "most"), [*((n, UNITS) for n in range(120)), *((n, MANY) for n in range(3)), *MORE])
def test_no_part_of_what_goes_would_do_and_no_cheaper_set(seed: int, most: int) -> None:
    draw = random.Random(seed)
    town, seats = a_town(draw, most), seats_of(draw)
    units = units_of(town)[:most]
    assert [(u.priority, not u.idle) for u in units] == sorted((u.priority, not u.idle) for u in units)
    found = searched(town, seats, units)
    without = Without(town.engine.gangs.planner.view, WhatIfNodes(town.engine.ledger, ()), Wanted(seats))
    will_do = [some for some in (*parts(units), tuple(units)) if without.fits(some)]
    if isinstance(found, NoSolution):
        assert will_do == [] if found is not COMING else () in will_do
        return
    assert found.units in will_do
    assert not [some for some in will_do if set(_who(some)) < set(_who(found.units))]
    assert dearness(units, found.units) == min(dearness(units, some) for some in will_do)
    assert set(found.assignments) == {seat.uid for seat in seats}


def _who(units: Sequence[Unit]) -> list[str]:
    return [unit.who for unit in units]


def test_some_of_the_units_are_idle_and_some_are_not() -> None:
    found = {unit.idle for seed in range(20) for unit in units_of(a_town(random.Random(seed), UNITS))}
    assert found == {True, False}
