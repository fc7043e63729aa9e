from collections import Counter
from collections.abc import Callable

import pytest

from extender.sim.openb import derive
from extender.sim.openb.choices import ListName
from extender.sim.openb.trace import Pod, Spec
from extender.sim.table import TraceError
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
    nodes = {(n.model, n.gpus, n.cpu_milli) for n in real_nodes()}
    for model, gpus, cpu in {(model, spec.gpus, spec.cpu_milli) for spec in typed for model in spec.models}:
        assert any(has[0] == model and has[1] >= gpus and has[2] >= cpu for has in nodes)
    named = Counter(model for spec in typed for model in spec.models)
    assert [model for model, _ in named.most_common(2)] == ["G2", "T4"]  # most GPUs are of these


def test_in_production_scarce_models_are_named_most() -> None:
    typed = [pod.spec for pod in a_list("typed33") if pod.spec.models]
    assert 100 * len(typed) / sum(bool(pod.spec.gpus) for pod in real_pods()) == pytest.approx(33, abs=0.1)
    named = Counter(spec.models for spec in typed)
    assert [models for models, _ in named.most_common(3)] == [("T4",), ("V100M16", "V100M32"), ("G2",)]
    whole_nodes = {spec.models for spec in typed if spec.gpus == 8}
    assert whole_nodes
    assert not whole_nodes & {("T4",), ("P100",)}  # which have four GPUs at most


def test_more_pods_without_gpus() -> None:
    found = a_list("cpuonly250")
    assert sum(not pod.spec.gpus for pod in found) == 2.5 * sum(not pod.spec.gpus for pod in real_pods())
    assert sum(bool(pod.spec.gpus) for pod in found) == sum(bool(pod.spec.gpus) for pod in real_pods())
    assert len({pod.name for pod in found}) == len(found)


@pytest.mark.parametrize(("name", "factor"), [("cpu125", 1.25), ("cpu200", 2.0), ("cpu250", 2.5)])
def test_gpu_pods_ask_more_cpu_but_none_more_than_a_node_has(name: ListName, factor: float) -> None:
    was = [pod.spec for pod in real_pods()]
    wanted = [min(round(spec.cpu_milli * factor), 128_000) if spec.gpus else spec.cpu_milli for spec in was]
    assert [pod.spec.cpu_milli for pod in a_list(name)] == wanted


def test_the_seed_alone_decides() -> None:
    assert a_list("gpushare40") == a_list("gpushare40") != a_list("gpushare40", 1)
    assert a_list("default") == list(real_pods())


def test_a_list_that_lacks_a_kind_cannot_be_mixed() -> None:
    with pytest.raises(TraceError, match="no pods of a kind"):
        derive.derived("gpushare40", pods(a_spec(gpus=1)), [a_node()])
