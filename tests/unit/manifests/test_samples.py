"""The samples ask what their comments say, and that is an ask that can be served."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from protos.contract import ask, names, objects
from tests.unit.manifests.conftest import MANIFESTS, Json

SAMPLES = sorted((MANIFESTS / "samples").glob("*.yaml"))
ASKS = {
    "01-memory": {"main": (1, 10, 0, False)},
    "02-slices": {"main": (1, 20, 25, False)},
    "03-several-gpus": {"main": (2, 20, 0, False)},
    "04-whole-gpus": {"main": (2, 0, 0, True)},
    "05-init-container": {"warm-up": (1, 4, 0, False), "main": (1, 10, 0, False)},
    "06-job": {"main": (1, 16, 0, False)},
    "07-nvlink-pair": {"main": (2, 0, 0, True)},
    "08-quota": {},
    "09-gpu-class": {"main": (1, 40, 0, False)},
    "10-queues": {"main": (1, 8, 0, False)},
}


def test_they_are_numbered_without_a_gap() -> None:
    assert [sample.name[:3] for sample in SAMPLES] == [f"{number:02d}-" for number in range(1, len(SAMPLES) + 1)]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
def test_a_sample_asks_what_it_says(sample: Path) -> None:
    asked: dict[str, tuple[int, int, int, bool]] = {}
    for pod in pods(sample):
        parsed = ask.parse(objects.decode_pod(json.dumps(pod).encode()), names.Resources())
        assert parsed is not None
        assert pod["spec"]["schedulerName"] == names.PROFILE
        asked |= {found.name: (found.gpus, found.mem, found.slices, bool(found.whole)) for found in parsed.containers}
    assert asked == ASKS[sample.stem]


def pods(sample: Path) -> Iterator[Json]:
    for found in yaml.safe_load_all(sample.read_text()):
        if found["kind"] == "Pod":
            yield found
        elif found["kind"] == "Job":
            yield found["spec"]["template"] | {"metadata": {"name": found["metadata"]["name"]}}
