from collections import Counter
from collections.abc import Callable

import pytest

from extender.sim.openb import derive
from extender.sim.openb.choices import ListName
from extender.sim.openb.trace import Pod, Spec, TraceError
from tests.unit.sim_openb.made import a_node, a_spec, pods, real_nodes, real_pods


def a_list(name: ListName, seed: int = 0) -> list[Pod]:
    return derive.derived(name, real_pods(), real_nodes(), seed)


def part(found: list[Pod], chosen: Callable[[Spec], bool]) -> float:
    """Of the GPU demand, in %."""
    return 100 * sum(p.spec.gpu_milli for p in found if chosen(p.spec)) / sum(p.spec.gpu_milli for p in found)


def shares(spec: Spec) -> bool:
    return spec.milli < 1000


def several(spec: Spec) -> bool:
    return spec.gpus > 1


@pytest.mark.parametrize(
    ("name", "chosen", "percent"),
    [
        ("gpushare40", shares, 40),
        ("gpushare100", shares, 100),
        ("multigpu20", several, 20),
        ("multigpu50", several, 50),
    ],
)
def test_the_demand_is_mixed_as_the_name_says(name: ListName, chosen: Callable[[Spec], bool], percent: float) -> None:
    found = a_list(name)
    assert part(found, chosen) == pytest.approx(percent, abs=3)
    assert len(found) == len(real_pods())
    assert len({pod.name for pod in found}) == len(found)
    assert {pod.spec for pod in found} <= {pod.spec for pod in real_pods()}


@pytest.mark.parametrize(("name", "percent"), [("gpuspec10", 10), ("gpuspec33", 33)])
def test_so_many_gpu_pods_name_models_that_they_fit_on(name: ListName, percent: float) -> None:
    found = [pod.spec for pod in a_list(name) if pod.spec.gpus]
    typed = [spec for spec in found if spec.models]
    assert 100 * len(typed) / len(found) == pytest.approx(percent, abs=0.1)
    assert {len(spec.models) for spec in typed} == {1, 2}
    for spec in typed:
        for model in spec.models:
            assert any(n.model == model and n.gpus >= spec.gpus and n.cpu_milli >= spec.cpu_milli for n in real_nodes())
    named = Counter(model for spec in typed for model in spec.models)
    assert [model for model, _ in named.most_common(2)] == ["G2", "T4"]  # most GPUs are of these


@pytest.mark.parametrize(("name", "factor"), [("cpu200", 2.0), ("cpu250", 2.5)])
def test_gpu_pods_ask_more_cpu_but_none_more_than_a_node_has(name: ListName, factor: float) -> None:
    found = a_list(name)
    for was, pod in zip(real_pods(), found, strict=True):
        most = 128_000 if pod.spec.gpus else was.spec.cpu_milli
        assert pod.spec.cpu_milli == min(was.spec.cpu_milli * (factor if was.spec.gpus else 1), most)


def test_the_seed_alone_decides() -> None:
    assert a_list("gpushare40") == a_list("gpushare40") != a_list("gpushare40", 1)
    assert a_list("default") == list(real_pods())


def test_a_list_that_lacks_a_kind_cannot_be_mixed() -> None:
    with pytest.raises(TraceError, match="no pods of a kind"):
        derive.derived("gpushare40", pods(a_spec(gpus=1)), [a_node()])
