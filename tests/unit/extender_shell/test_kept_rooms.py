"""The room of a lost member of a gang, as the status port shows it."""

from __future__ import annotations

import msgspec
from prometheus_client import CollectorRegistry

from extender.server import explain, exposition, inspect
from gangfilter.group import GroupKey
from tests.builders import a_node
from tests.unit.engine.gang_story import GangStory, members

KEY = GroupKey("default", "g")


def a_gang_that_lost_one() -> GangStory:
    world = GangStory(a_node("n1", 16, 16))
    world.start(*members(2, mem=10, role="worker"))
    world.delete("m1")
    world.later(20)
    return world


def test_the_gang_shows_what_is_kept_for_it_and_for_how_long() -> None:
    world = a_gang_that_lost_one()
    told = msgspec.json.decode(b"".join(explain.group(world.engine, KEY, world.now)))
    assert told["slots"] == [{"name": "m1", "role": "worker", "node": "n1", "gpus": [1], "seconds": 280.0}]


def test_the_gpu_shows_for_whom_it_is_booked() -> None:
    world = a_gang_that_lost_one()
    gpus = msgspec.to_builtins(inspect.node(world.engine, world.engine.nodes["n1"]))["gpus"]
    assert [(pod["name"], pod.get("kept", False)) for gpu in gpus for pod in gpu["pods"]] == [
        ("m0", False),
        ("m1", True),
    ]
    assert [gpu["memUsed"] for gpu in gpus] == [10, 10]


def test_prometheus_counts_it_among_the_bookings() -> None:
    world = a_gang_that_lost_one()
    text = b"".join(exposition.pieces(world.engine, CollectorRegistry(), tenants=False)).decode()
    assert 'gangshare_bookings{state="kept"} 1' in text
    assert 'gangshare_bookings{state="bound"} 1' in text
