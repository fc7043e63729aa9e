"""When a region proves that a container is held to its limit, and what a container shows that has none."""

from __future__ import annotations

import pytest

from deviceplugin.isolation import checks
from deviceplugin.isolation.checks import Limited, Read
from deviceplugin.library import proof
from deviceplugin.library.region import Device, Region
from deviceplugin.machine import MemoryLimit
from tests.unit.deviceplugin.isolation.test_checks import running

MIB = 2**20
FOUR = 4096 * MIB
STARTED = 1_000_000.0
GIVEN = Limited(running(), "main", ("GPU-0", "GPU-1"), 4096, "library", STARTED)
NAMED = Region((Device("GPU-0", FOUR, 0), Device("GPU-1", FOUR, 0)), FOUR, 1)
UNNAMED = Region((), FOUR, 1)
BOTH = {"GPU-0": MemoryLimit(FOUR), "GPU-1": MemoryLimit(FOUR)}


@pytest.mark.parametrize(
    ("region", "written", "users", "found"),
    [
        (NAMED, STARTED, {"GPU-0"}, BOTH),
        (NAMED, STARTED + 99, set(), BOTH),
        (NAMED, STARTED, None, BOTH),  # the driver does not tell who uses GPUs: the region does
        (UNNAMED, STARTED, {"GPU-0"}, BOTH),
        (NAMED._replace(live=0), STARTED, set(), BOTH),  # all programs have ended
        (None, 0.0, set(), {}),  # no program has begun
        (None, 0.0, None, {}),
        (None, 0.0, {"GPU-1"}, {"GPU-1": None}),
        (NAMED, STARTED - 1, set(), {}),  # left by the container before its restart
        (NAMED, STARTED - 1, {"GPU-0"}, {"GPU-0": None}),
        (NAMED._replace(live=0), STARTED, {"GPU-0"}, {"GPU-0": None}),  # who uses it has no slot
        (NAMED._replace(devices=NAMED.devices[:1]), STARTED, set(), {"GPU-0": MemoryLimit(FOUR)}),
        (NAMED._replace(devices=NAMED.devices[:1]), STARTED, {"GPU-1"}, {"GPU-0": MemoryLimit(FOUR), "GPU-1": None}),
    ],
)
def test_a_region_proves_what_it_shows_of_this_start_of_the_container(
    region: Region | None, written: float, users: set[str] | None, found: dict[str, MemoryLimit | None]
) -> None:
    assert proof.limits(GIVEN, region, written, users) == found


@pytest.mark.parametrize(
    ("read", "state", "sentence"),
    [
        (BOTH, "enforced", ""),
        ({}, "unknown", ""),
        ({"GPU-0": MemoryLimit(FOUR)}, "unknown", ""),
        (
            {"GPU-1": None},
            "mismatch",
            "container main uses GPU 1 without the library: it was given 4096 MiB",
        ),
        (
            {**BOTH, "GPU-0": MemoryLimit(0)},
            "mismatch",
            "container main has a memory limit of 0 MiB on GPU 0: it was given 4096 MiB",
        ),
    ],
)
def test_what_it_means(read: dict[str, MemoryLimit | None], state: str, sentence: str) -> None:
    verdict = checks.verdict(GIVEN, {uuid: Read(limit) for uuid, limit in read.items()}, {"GPU-0": 0, "GPU-1": 1})
    assert (verdict.state, verdict.sentence) == (state, sentence)
    assert verdict.unlimited == ("without the library" in sentence), "a limit that was changed shows that it is loaded"
