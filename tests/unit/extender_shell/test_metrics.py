"""The metrics, their table, and the page made of it."""

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from extender import metrics
from extender.metrics import Metrics
from tests.unit.docs import metrics_page
from tests.unit.extender_shell import world

PAGE = Path(__file__).parents[3] / "docs/metrics.md"


def test_the_page_is_made_of_the_table() -> None:
    assert PAGE.read_text() == metrics_page.table(), "run: python -m tests.unit.docs.metrics_page > docs/metrics.md"


def test_counters_of_the_engine_are_read_when_asked() -> None:
    counters = {("conflicts", ""): 2, ("errors", "forged"): 1}
    made = Metrics(counters)
    made.errors["undecodable"] += 3
    counters["pod_requeues", ""] = 7
    value = made.registry.get_sample_value
    assert value("gangshare_conflicts_total") == 2
    assert value("gangshare_pod_requeues_total") == 7
    assert value("gangshare_errors_total", {"kind": "forged"}) == 1
    assert value("gangshare_errors_total", {"kind": "undecodable"}) == 3


def test_outcomes_that_are_known_are_counted_from_zero() -> None:
    made = Metrics({("preemptions", "done"): 2})
    value = made.registry.get_sample_value
    assert value("gangshare_preemptions_total", {"outcome": "done"}) == 2
    assert value("gangshare_preemptions_total", {"outcome": "refused"}) == 0
    assert value("gangshare_preemption_victims_total", {"kind": "spare", "by": "share"}) == 0


async def test_a_scrape_serves_every_metric_of_the_table_and_no_other() -> None:
    async with world.world() as cluster:
        world.add_node(cluster.api, "node-a", gpus=2)
        pod = world.add_pod(cluster.api, "p1")
        await cluster.ready()
        await world.until(lambda: pod["metadata"]["uid"] in cluster.extender.engine.pods, "the pod is known")
        await cluster.filter(pod, ["node-a"])
        assert await cluster.bind(pod, "node-a") == ""
        _, text = await cluster.get("/metrics")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert set(families) == {spec.name for spec in metrics.TABLE}
    assert {name: family.type for name, family in families.items()} == {s.name: s.kind for s in metrics.TABLE}
    info = families["gangshare_allocation_info"].samples[0].labels
    assert info == {
        "namespace": "default",
        "pod": "p1",
        "container": "main",
        "UUID": "GPU-node-a-0",
        "node": "node-a",
        "gpu": "0",
    }
    free = {s.labels["UUID"]: s.value / 2**30 for s in families["gangshare_gpu_memory_free_bytes"].samples}
    assert free == {"GPU-node-a-0": 12, "GPU-node-a-1": 16}
    models = {(s.labels["gpu"], s.labels["model"]) for s in families["gangshare_gpu_offered"].samples}
    assert {gpu for gpu, _ in models} == {"0", "1"}
    assert all(model for _, model in models)
    bookings = {s.labels["state"]: s.value for s in families["gangshare_bookings"].samples}
    assert bookings["bound"] + bookings["binding"] == 1
    assert families["gangshare_watching"].samples[0].value == 1


def test_names_carry_their_unit_and_labels_are_few() -> None:
    for spec in metrics.TABLE:
        assert re.fullmatch(r"gangshare_[a-z_]+", spec.name)
        assert len(spec.labels) <= 6
