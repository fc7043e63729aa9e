"""Where the driver does not tell the memory of processes, the region of their container does."""

from __future__ import annotations

from pathlib import Path

import pytest

from deviceplugin.library.regions import Owner, Regions
from deviceplugin.usage import regions
from protos.contract.measured import Use
from tests.sim.standin_library import Library

GIB = 2**30
OWNER = Owner("0a1b2c3d-1111-2222-3333-444455556666", "main")


@pytest.fixture
def made(tmp_path: Path) -> Regions:
    found = Regions(tmp_path)
    found.make(OWNER)
    library = Library(found.path(OWNER), {"CUDA_DEVICE_MEMORY_LIMIT": "4g"}, ("GPU-0", "GPU-1"))
    library.load()
    library.count_gpus()
    library.begin(7, gpu1=3 * GIB)
    return found


def a_use(**more: object) -> Use:
    fields = {"container": "main", "uuid": "GPU-1", "gpu": 1, "model": "", "uid": OWNER.uid, "processes": 1}
    return Use(**{**fields, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("use", "used"),
    [
        (a_use(used=None), 3 * GIB),
        (a_use(used=5), 5),  # the driver's word goes before
        (a_use(used=None, uuid="GPU-7"), None),
        (a_use(used=None, processes=0), None),  # the GPU does not answer
        (a_use(used=None, uid=""), None),
        (a_use(used=None, container="side"), None),
        (a_use(used=None, container="../side"), None),
    ],
)
def test_an_unknown_use_is_what_the_region_tells(made: Regions, use: Use, used: int | None) -> None:
    (found,) = regions.filled([use], made)
    assert found.used == used


def test_a_region_that_cannot_be_read_tells_nothing(made: Regions) -> None:
    made.path(OWNER).write_bytes(b"no region")
    (found,) = regions.filled([a_use(used=None)], made)
    assert found.used is None
