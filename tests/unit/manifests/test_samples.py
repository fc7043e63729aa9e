"""The samples ask what their comments say, and that is an ask that can be served. They keep apart from the demo."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.cli.demo import gang, tenants
from protos.contract import ask, names, objects
from tests.unit.manifests.conftest import MANIFESTS, Json

FOLDER = MANIFESTS / "samples"
SAMPLES, EVERY = sorted(FOLDER.glob("*.yaml")), sorted(FOLDER.rglob("*.yaml"))
GPUS = {names.GPU_MEM, names.GPU_SLICE, names.WHOLE_GPU}
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


def test_they_keep_apart_from_the_demo() -> None:
    """And from one another: that all run at once is a test of the scenarios."""
    made = [found for sample in EVERY for found in yaml.safe_load_all(sample.read_text())]
    annotated = [found["metadata"].get("annotations", {}) for found in made]
    called = {found["metadata"]["name"] for found in made}
    used = {annotations.get(key) for annotations in annotated for key in (names.GROUP, names.QUEUE, names.GPU_CLASS)}
    demo = {gang.NAME, tenants.RESEARCH, tenants.PRODUCTION, tenants.CLASS, tenants.ELASTIC, tenants.RELEASE}
    assert not demo & (called | used)


def test_their_page_has_each_of_them() -> None:
    listed = re.findall(r"^\| \[(.*?)\]\(\1\) \|", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(str(sample.relative_to(FOLDER)) for sample in EVERY)


@pytest.mark.parametrize("sample", EVERY, ids=lambda sample: sample.stem)
def test_a_pod_with_gpus_names_the_runtime_that_shows_them(sample: Path) -> None:
    for spec in specs(list(yaml.safe_load_all(sample.read_text()))):
        asked = {key for each in spec["containers"] for key in each.get("resources", {}).get("limits", {})}
        assert (spec.get("runtimeClassName") == "nvidia") == bool(asked & GPUS)


def specs(found: Any) -> Iterator[Json]:
    """The specs of pods and of their templates."""
    for each in found.values() if isinstance(found, dict) else found if isinstance(found, list) else ():
        yield from specs(each)
    if isinstance(found, dict) and "containers" in found:
        yield found


def pods(sample: Path) -> Iterator[Json]:
    for found in yaml.safe_load_all(sample.read_text()):
        if found["kind"] == "Pod":
            yield found
        elif found["kind"] == "Job":
            yield found["spec"]["template"] | {"metadata": {"name": found["metadata"]["name"]}}
