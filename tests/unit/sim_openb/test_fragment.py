import random

import pytest

from extender.sim.openb import fragment
from extender.sim.openb.fragment import Fragmentation
from extender.sim.openb.trace import Spec
from tests.unit.sim_openb.made import a_spec, pods

WORKLOAD = {
    Spec(4000, 0, 1, 500): 6,
    Spec(8000, 0, 1, 1000): 3,
    Spec(8000, 0, 2, 1000, ("A10",)): 2,
    Spec(12000, 0, 0, 0): 1,
}


def naive(workload: dict[Spec, int], cpu: int, gpus: list[int], model: str) -> int:
    """The formula as it stands in the paper."""
    total = 0
    for spec, count in workload.items():
        allowed = not spec.models or model in spec.models
        runs = allowed and cpu >= spec.cpu_milli and sum(free >= spec.milli for free in gpus) >= spec.gpus
        small = sum(free for free in gpus if free < spec.milli)
        total += count * (small if runs and spec.milli else sum(gpus))
    return total


@pytest.mark.parametrize(
    ("cpu", "gpus", "fragments"),
    [
        (8000, (1000, 400), 6 * 400 + 3 * 400 + 2 * 1400 + 1 * 1400),
        (4000, (1000, 400), 6 * 400 + 3 * 1400 + 2 * 1400 + 1 * 1400),
        (3999, (1000, 400), 12 * 1400),
        (64000, (1000, 1000), 0 + 0 + 2 * 2000 + 1 * 2000),
        (64000, (0, 0), 0),
        (64000, (), 0),
    ],
)
def test_what_typical_pods_cannot_use_is_a_fragment(cpu: int, gpus: tuple[int, ...], fragments: int) -> None:
    assert Fragmentation(WORKLOAD).of(cpu, gpus, "T4") == fragments


def test_a_typed_pod_makes_the_model_matter() -> None:
    measured = Fragmentation(WORKLOAD)
    assert measured.of(64000, (1000, 1000), "T4") - measured.of(64000, (1000, 1000), "A10") == 2 * 2000


def test_it_is_the_paper_s_formula() -> None:
    rng = random.Random(1)
    measured = Fragmentation(WORKLOAD)
    for _ in range(2000):
        cpu = rng.choice((0, 3999, 4000, 8000, 11000, 12000, 96000))
        gpus = [rng.choice((0, 100, 499, 500, 999, 1000)) for _ in range(rng.randint(0, 8))]
        model = rng.choice(("T4", "A10"))
        assert measured.of(cpu, gpus, model) == naive(WORKLOAD, cpu, gpus, model)


def test_the_typical_specs_are_the_most_frequent_that_cover_95_percent() -> None:
    listed = pods(
        *[a_spec(milli=500, memory=memory) for memory in range(90)],
        *[a_spec(gpus=0)] * 6,
        *[a_spec(gpus=8)] * 3,
        a_spec(gpus=4),
    )
    assert list(fragment.typical(listed).items()) == [(Spec(1000, 0, 1, 500), 90), (Spec(1000, 0, 0, 0), 6)]
