from typing import get_args

import pytest

from extender.sim.openb import baselines, fragment, plot, replay, workload
from extender.sim.openb.baselines import Policy
from extender.sim.openb.choices import Policy as Name
from extender.sim.openb.cluster import Assignment, Cluster, PlacementError
from extender.sim.openb.fragment import Fragmentation
from extender.sim.openb.ranking import Ranked
from extender.sim.openb.replay import Row, Run
from extender.sim.openb.trace import Pod
from tests.unit.sim_openb.made import a_node, a_spec, pods, real_nodes, real_pods, some_world

NAMES: tuple[Name, ...] = get_args(Name)


def naive(cluster: Cluster, policy: Policy, pod: Pod) -> Assignment | None:
    """Every node is scored for every pod."""
    fitting = [i for i, room in enumerate(cluster.rooms) if room.takes(pod.spec)]
    if not fitting:
        return None
    best = min(fitting, key=lambda i: (-policy.score(cluster.rooms[i], pod.spec), cluster.nodes[i].name))
    return Assignment(best, policy.gpus(cluster.rooms[best], pod.spec))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", ["bestfit", "dotprod", "packing", "clustering", "fgd"])
def test_kept_scores_place_as_scoring_every_node_anew_does(name: str, seed: int) -> None:
    nodes, listed = some_world(seed)
    fragmentation = Fragmentation(fragment.typical(listed))
    policy = baselines.fgd(fragmentation) if name == "fgd" else Policy(baselines.SCORES[name])
    cluster = Cluster(nodes)
    ranked = Ranked(cluster, policy)
    for pod in workload.arrivals(listed, nodes, seed, 150):
        assignment = ranked.choose(pod)
        assert assignment == naive(cluster, policy, pod)
        if assignment:
            cluster.take(assignment, pod.spec)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", NAMES)
def test_no_policy_drops_a_pod_that_fits_or_places_one_that_does_not(name: Name, seed: int) -> None:
    """The cluster refuses what does not fit; and what is allocated shows what was dropped."""
    nodes, listed = some_world(seed)
    for row in replay.replay(Run(nodes, listed, name, seed)):
        assert 0 <= row.allocated <= min(100.0, row.arrived + 0.5)
        assert -1e-9 <= row.fragments <= 100.0 + 1e-9


def test_a_short_list_by_hand() -> None:
    """Two nodes of one GPU each; 0.6, 0.6, 0.4, 0.5 arrive: the first two take a GPU each, the last fits nowhere."""
    nodes = [a_node("a", gpus=1), a_node("b", gpus=1)]
    cluster = Cluster(nodes)
    ranked = Ranked(cluster, Policy(baselines.best_fit))
    where = []
    for pod in pods(a_spec(milli=600), a_spec(milli=600), a_spec(milli=400), a_spec(milli=500), a_spec(gpus=0)):
        assignment = ranked.choose(pod)
        where.append(assignment)
        if assignment:
            cluster.take(assignment, pod.spec)
    assert where == [Assignment(0, (0,)), Assignment(1, (0,)), Assignment(0, (0,)), None, Assignment(0, ())]


def test_the_curve_has_the_mean_over_the_arrivals_that_round_to_a_column() -> None:
    rows = replay.replay(Run([a_node(gpus=2)], pods(a_spec(milli=500), a_spec(gpus=0)), "bestfit", 42, 75))
    assert [row.arrived for row in rows] == list(range(76))
    assert rows[24].allocated == rows[0].allocated == 0.0
    assert (rows[25].allocated, rows[49].allocated, rows[50].allocated, rows[75].allocated) == (25, 25, 50, 75)
    assert rows[75].fragments == pytest.approx(50.0)  # half of the pods ask no GPU: to them all that is idle is lost
    assert replay.at(rows, (50, 75, 100)) == {50: 50.0, 75: 75.0, 100: None}


def test_a_refused_pod_counts_as_arrived() -> None:
    rows = replay.replay(Run([a_node(gpus=1)], pods(a_spec(gpus=2), a_spec()), "fgd", 42, 300))
    assert rows[-1].arrived >= 300
    assert rows[-1].allocated == 100


def test_a_placement_that_does_not_fit_is_an_error() -> None:
    cluster = Cluster([a_node(gpus=2, cpu=2)])
    cluster.take(Assignment(0, (0,)), a_spec(milli=600))
    for assignment, spec in (
        (Assignment(0, (0,)), a_spec(milli=500)),
        (Assignment(0, (1, 1)), a_spec(gpus=2)),
        (Assignment(0, ()), a_spec()),
        (Assignment(0, (1,)), a_spec(cpu=2)),
    ):
        with pytest.raises(PlacementError, match="does not fit on GPUs"):
            cluster.take(assignment, spec)


@pytest.mark.parametrize(("name", "told"), [("bestfit", "BestFit"), ("dotprod", "DotProd"), ("fgd", "FGD")])
def test_a_baseline_comes_out_as_published(name: Name, told: str) -> None:
    """One seed, which may be half a point from the mean of ten; `make bench` holds the means against each other."""
    mean = plot.published()[told]
    rows = replay.replay(Run(real_nodes(), real_pods(), name, 43))
    assert [row.arrived for row in rows] == [row.arrived for row in mean]
    for column in (50, 80, 95, 100, 130):
        assert rows[column].allocated == pytest.approx(mean[column].allocated, abs=0.5)
    for column in (50, 80, 90):
        assert rows[column].fragments == pytest.approx(mean[column].fragments, abs=4.0)


def test_equal_runs_are_equal_and_the_published_rows_are_whole() -> None:
    nodes, listed = some_world(3)
    for name in NAMES:
        assert replay.replay(Run(nodes, listed, name)) == replay.replay(Run(nodes, listed, name))
    assert {len(rows) for rows in plot.published().values()} == {131}
    assert plot.published()["FGD"][130] == Row(130, 95.391, 99.10)
