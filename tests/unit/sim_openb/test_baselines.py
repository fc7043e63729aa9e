import math
from collections.abc import Callable

import pytest

from extender.sim.openb.baselines import SCORES, Policy, best_fit, clustering, dot_product, fgd, packing
from extender.sim.openb.cluster import Room
from extender.sim.openb.fragment import Fragmentation
from extender.sim.openb.trace import Spec
from tests.unit.sim_openb.made import a_room, a_spec

HALF, WHOLE, PAIR, NONE = a_spec(milli=500), a_spec(), a_spec(gpus=2), a_spec(gpus=0, cpu=8)
EIGHT = (1000,) * 8


@pytest.mark.parametrize(
    ("formula", "room", "spec", "score"),
    [
        (best_fit, a_room(*EIGHT, cpu=128), a_spec(cpu=0, gpus=8), 50),
        (best_fit, a_room(1000, 1000, cpu=64), a_spec(cpu=32, gpus=1), 100 - 12.5 - 6.25),
        (best_fit, a_room(1000, 1000, cpu=64), NONE, 100 - 21.875 - 12.5),
        (dot_product, a_room(*EIGHT, cpu=128), a_spec(cpu=64, gpus=4), 50),
        (dot_product, a_room(*EIGHT, cpu=128), a_spec(cpu=0, gpus=1), 100 - 6.25),
        (packing, a_room(1000, 300, 600), HALF, 100 - 6),
        (packing, a_room(1000, 300, 400), HALF, 50 - 1),
        (packing, a_room(1000, 1000, 400), PAIR, 50 - 2),
        (packing, a_room(1000, 1000), HALF, 33 - 2),
        (packing, a_room(*EIGHT), PAIR, 33 - 8),
        (packing, a_room(1000, 1000), NONE, 0),
        (clustering, a_room(1000, 500, kinds=frozenset({"share"})), HALF, 75 + 25 * 6500 // 8000),
        (clustering, a_room(1000, 500, kinds=frozenset({"share", 1})), HALF, 50 + 25 * 6500 // 8000),
        (clustering, a_room(1000, 1000), HALF, 25 + 25 * 6000 // 8000),
        (clustering, a_room(0, 1000, kinds=frozenset({1})), HALF, 25 * 7000 // 8000),
        (clustering, a_room(0, 1000, kinds=frozenset({1})), NONE, 0),
    ],
)
def test_a_score_is_the_published_formula_s(
    formula: Callable[[Room, Spec], int], room: Room, spec: Spec, score: float
) -> None:
    assert formula(room, spec) == math.floor(score)


def test_all_but_fgd_give_the_tightest_gpu_lowest_index_first() -> None:
    for policy in map(Policy, SCORES.values()):
        assert policy.gpus(a_room(1000, 700, 499, 700), HALF) == (1,)
        assert policy.gpus(a_room(999, 1000, 1000, 1000), PAIR) == (1, 2)
        assert policy.gpus(a_room(1000), NONE) == ()


def test_fgd_descends_the_fragmentation() -> None:
    policy = fgd(Fragmentation({Spec(1000, 0, 1, 500): 3, Spec(1000, 0, 1, 1000): 1}))
    room = a_room(1000, 600)
    assert policy.gpus(room, HALF) == (1,)  # 150 of fragments → 25, rather than → 275
    assert policy.score(room, HALF) == math.floor(100 / (1 + math.exp(-(150 - 100) / 1000)))


def test_fgd_sees_cpu_that_pods_without_gpus_take() -> None:
    policy = fgd(Fragmentation({Spec(60_000, 0, 1, 1000): 1}))
    assert policy.score(a_room(1000, cpu=64), a_spec(gpus=0, cpu=4)) == 50
    assert policy.score(a_room(1000, cpu=64), a_spec(gpus=0, cpu=8)) == math.floor(100 / (1 + math.exp(1)))


def test_of_equal_gpus_fgd_gives_the_first() -> None:
    policy = fgd(Fragmentation({Spec(0, 0, 1, 500): 1}))
    assert policy.gpus(a_room(300, 1000, 1000), HALF) == (1,)
    assert policy.gpus(a_room(300, 1000, 1000), PAIR) == (1, 2)
