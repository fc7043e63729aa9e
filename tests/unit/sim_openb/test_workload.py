import pytest

from extender.sim.openb import workload
from extender.sim.openb.trace import Node, Pod
from extender.sim.table import TraceError
from tests.unit.sim_openb.made import a_node, a_spec, pods, real_nodes, real_pods

NODES = [a_node(f"n{i}", gpus=8) for i in range(5)]
LIST = pods(*[a_spec(gpus=1)] * 5, *[a_spec(gpus=8)] * 2, *[a_spec(gpus=1, milli=500)] * 6, *[a_spec(gpus=0)] * 4)
"""24 of 40 GPUs."""


def asked(found: list[Pod]) -> int:
    return sum(pod.spec.gpu_milli for pod in found)


def test_the_whole_list_comes_first_then_draws_from_it_up_to_the_target() -> None:
    found = workload.arrivals(LIST, NODES, 42, 130)
    assert sorted(pod.name for pod in found[: len(LIST)]) == [pod.name for pod in LIST]
    assert [pod.name for pod in found[: len(LIST)]] != [pod.name for pod in LIST]
    last = found[-1].spec
    assert asked(found) - last.gpu_milli + last.milli <= 52_000
    assert asked(found) > 51_000 - 1000


def test_the_test_before_a_draw_adds_the_part_of_one_gpu_only() -> None:
    """Eight-GPU pods may thus pass the target: so it was published."""
    found = workload.arrivals(pods(a_spec(gpus=8)), [a_node(gpus=10)], 42, 100)
    assert asked(found) == 16_000


def test_a_list_that_hardly_requests_anything_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "MOST_ARRIVALS", 1000)
    with pytest.raises(TraceError, match="1000 pods of the list request 8 % of the GPUs that are to be requested"):
        workload.arrivals(pods(a_spec(gpus=1, milli=1)), [a_node(gpus=10)], 42, 130)


def test_a_list_above_the_target_is_thinned_and_keeps_its_order() -> None:
    full = workload.arrivals(LIST, NODES, 42, 60)
    thinned = workload.arrivals(LIST, NODES, 42, 30)
    assert asked(thinned) <= 12_000
    names = [pod.name for pod in full]
    assert [names.index(pod.name) for pod in thinned] == sorted(names.index(pod.name) for pod in thinned)


def test_the_seed_alone_decides() -> None:
    again = workload.arrivals(LIST[::-1], NODES, 42, 130)
    assert workload.arrivals(LIST, NODES, 42, 130) == again
    assert workload.arrivals(LIST, NODES, 43, 130) != again


def test_the_real_list_is_inflated_to_130_percent() -> None:
    found = workload.arrivals(real_pods(), real_nodes(), 42, 130)
    assert asked(found) == pytest.approx(1.3 * 6_212_000, rel=0.001)
    assert 10_700 < len(found) < 10_950


def test_renamed_nodes_are_the_same_nodes_under_the_same_names() -> None:
    renamed = workload.renamed(real_nodes(), 42)

    def nameless(nodes: list[Node]) -> list[tuple[object, ...]]:
        return [(n.cpu_milli, n.memory_mib, n.gpus, n.model) for n in nodes]

    assert nameless(renamed) == nameless(list(real_nodes()))
    assert sorted(n.name for n in renamed) == sorted(n.name for n in real_nodes())
    assert renamed != list(real_nodes())
    assert renamed == workload.renamed(real_nodes(), 42) != workload.renamed(real_nodes(), 43)
