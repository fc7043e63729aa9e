"""All who show a node show its level of isolation in the same words, and nothing where none is published."""

from __future__ import annotations

from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from extender.cli import console, explain_places, top
from extender.server import exposition, inspect, places
from extender.server.visibility import items, resources
from extender.server.visibility.items import Sight, View
from extender.wire.answers import GpuPage, Inspection, NodePage
from protos.contract.isolation import Isolation
from tests.builders import a_node
from tests.unit.engine.story import Story
from tests.unit.engine.test_isolation import demanding
from tests.unit.extender_shell.test_explain import read, waiting

WORDS, WHY = "memory enforced (driver), compute promised", "no MPS"
DRIVER = Isolation(memory="driver", why=WHY)


def a_story() -> Story:
    return Story(a_node("plain", 16), a_node("driver", 16, isolation=DRIVER))


def page(story: Story) -> Inspection:
    return msgspec.json.decode(b"".join(inspect.cluster(story.engine, story.now)), type=Inspection)


def test_the_books_tell_the_level_and_why_not_better() -> None:
    told = {node.name: (node.isolation, node.isolation_why) for node in page(a_story()).nodes}
    assert told == {"driver": (WORDS, WHY), "plain": ("", "")}


def test_top_has_a_column_only_where_a_node_publishes_a_level() -> None:
    driver, plain = console.page(*top.render(page(a_story()))).splitlines()[-2:]
    assert driver.endswith(WORDS)
    assert plain.endswith("memory promised, compute promised")
    assert "ISOLATION" not in console.page(*top.render(page(Story(a_node("plain", 16)))))
    assert "ISOLATION" not in console.page(*top.render(page(a_story()), top.View(by="model")))


def test_a_node_and_its_gpus_are_explained_with_the_level() -> None:
    engine = a_story().engine
    line = f"  isolation of parts: {WORDS} ({WHY})"
    node = msgspec.convert(read(places.node(engine, "driver")), NodePage)
    assert line in console.page(*explain_places.node(node)).splitlines()
    gpu = msgspec.convert(read(places.gpu(engine, "GPU-driver-0")), GpuPage)
    assert line in console.page(*explain_places.gpu(gpu)).splitlines()
    plain = msgspec.convert(read(places.node(engine, "plain")), NodePage)
    assert "isolation" not in console.page(*explain_places.node(plain))


def test_the_aggregated_api_shows_it_of_nodes_and_gpus() -> None:
    story = a_story()
    view = View(story.engine, story.now, Sight(()))
    for listing in (items.node(view, "", "driver"), items.gpu(view, "", "driver-0")):
        (status,) = (item.status for item in listing if item is not None)
        told: dict[str, Any] = msgspec.to_builtins(status)
        assert (told["isolation"], told["isolationWhy"]) == (WORDS, WHY)
    columns = {resource.plural: [column.name for column in resource.columns] for resource in resources.RESOURCES}
    assert "Isolation" in columns["gpunodes"]


def test_a_metric_has_one_series_for_each_node_that_publishes_a_level() -> None:
    text = b"".join(exposition.pieces(a_story().engine, CollectorRegistry(), tenants=False)).decode()
    series = [line for line in text.splitlines() if line.startswith("gangshare_node_isolation{")]
    assert series == ['gangshare_node_isolation{node="driver",memory="enforced (driver)",compute="promised"} 1']


def test_nodes_that_do_not_isolate_are_counted_by_what_they_say_of_it() -> None:
    old = Isolation(why="driver 580 is older than 615")
    story = Story(
        a_node("a", 16),
        a_node("b", 16, isolation=old),
        a_node("c", 16, isolation=old),
        a_node("d", 8, isolation=DRIVER),
    )
    pod = demanding(mem=12)
    told = waiting(story, mem=12, annotations=pod.metadata.annotations)
    lack = "its memory limits are promised, not enforced"
    assert told["verdict"]["headline"] == "can never run on these nodes (NoIsolation)"
    assert [(each["nodes"], each["why"]) for each in told["nodes"]] == [
        (2, f"{lack}: driver 580 is older than 615"),
        (1, "GPUs too small"),
        (1, lack),
    ]
