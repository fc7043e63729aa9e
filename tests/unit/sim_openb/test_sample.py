from collections import Counter

from extender.sim.openb import replay, trace, workload
from extender.sim.openb.cluster import Assignment, Cluster
from extender.sim.openb.ours import Gangshare
from extender.sim.openb.replay import Run
from extender.sim.openb.trace import Node
from tests.bench.sample import PART, Told, needless, sample
from tests.unit.sim_openb.made import a_node, a_spec, pods, real_nodes, some_world


def kinds(nodes: list[Node]) -> Counter[tuple[str, int, int, int]]:
    return Counter((node.model, node.gpus, node.cpu_milli, node.memory_mib) for node in nodes)


def test_a_sample_has_one_node_in_eight_of_each_type() -> None:
    for seed in range(42, 52):
        drawn = sample(real_nodes(), seed)
        found = kinds(drawn)
        assert 151 <= len(drawn) <= 152
        assert all(abs(found[kind] - count / PART) < 1 for kind, count in kinds(list(real_nodes())).items())
        assert abs(trace.capacity(drawn) * PART / trace.capacity(real_nodes()) - 1) < 0.01


def test_a_sample_is_drawn_by_the_seed_alone() -> None:
    assert sample(real_nodes(), 42) == sample(real_nodes()[::-1], 42)
    assert len({tuple(sample(real_nodes(), seed)) for seed in range(42, 52)}) > 1


def test_a_placement_that_is_told_again_gives_the_same_curve() -> None:
    nodes, listed = some_world(1)
    run = Run(nodes, listed)
    cluster, assignments = Cluster(nodes), []
    placer = Gangshare(cluster)
    for pod in workload.arrivals(listed, nodes, run.seed, run.inflate):
        assignments.append(placer.choose(pod))
        if assignments[-1] is not None:
            cluster.take(assignments[-1], pod.spec)
    assert replay.replay(run, Told(assignments)) == replay.replay(run)


def test_only_those_who_would_have_fitted_were_refused_needlessly() -> None:
    nodes = [a_node(gpus=1)]
    specs = [pod.spec for pod in pods(a_spec(milli=600), a_spec(milli=500), a_spec(milli=400))]
    assert needless(nodes, specs, [Assignment(0, (0,)), None, None]) == 1
    assert needless(nodes, specs, [Assignment(0, (0,)), None, Assignment(0, (0,))]) == 0
