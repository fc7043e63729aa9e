"""Pod specs and fragments of them on the pages ask what the text says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from protos.contract import ask, ask_words, gpu_class, names, objects
from protos.contract.ask import AskError, PodAsk
from protos.contract.selection import Selection
from tests.unit.docs.pages import PAGES, ROOT, blocks, page, table

SPECS = page("docs/pod-specs.md")
SAID = {
    "web": ("6 GiB on one GPU", Selection()),
    "memory": ("10 GiB on one GPU", Selection()),
    "init-container": ("4 GiB on one GPU + 10 GiB on one GPU", Selection()),
    "notebook": ("10 GiB on one GPU", Selection(models=("A100", "H100", "H200"))),
    "training": ("20 GiB and 25 slices on each of 4 GPUs", Selection(link="nvlink")),
    "worker-0": ("2 whole GPUs", Selection()),
    "server": ("2 GiB on one GPU + 2 whole GPUs", Selection()),
    "train": ("2 whole GPUs", Selection()),
    "share": ("5 GiB on one GPU", Selection()),
    "big": ("9 whole GPUs", Selection()),
    "models": ("19 GiB and 25 slices on one GPU", Selection()),
    "llm": ("8 whole GPUs", Selection()),
    "workers": ("2 whole GPUs", Selection()),
}
"""What each pod of the pages asks."""
WANTED = table(SPECS, "you want", "limits of the container", "annotations of the pod", "read as")
REFUSED = table(SPECS, "code", "limits", "annotations", "sentence")
ANNOTATIONS = table(SPECS, "annotation", "value", "meaning")
FIELDS = table(SPECS, "field of `spec`", "value", "meaning")
Json = dict[str, Any]


def parsed(pod: Json) -> PodAsk | None:
    return ask.parse(objects.decode_pod(json.dumps(pod).encode()), names.Resources())


def fragment(limits: str, annotations: str) -> Json:
    """A pod with what the cells of a row hold."""
    container = {"name": "main", "image": "busybox", "resources": {"limits": read(limits)}}
    return {
        "metadata": {"name": "p", "namespace": "default", "uid": "u", "annotations": read(annotations)},
        "spec": {"containers": [container]},
    }


def read(cell: str) -> Json:
    found: Json = {}
    for code in re.findall(r"`([^`]+)`", cell):
        found |= yaml.safe_load(code)
    return found


def pods() -> Iterator[Json]:
    """The pods in all YAML blocks, those of templates too."""
    for of in PAGES:
        for block in blocks(of, "yaml"):
            for found in yaml.safe_load_all(block.text):
                if found.get("kind") == "Pod":
                    yield found
                elif "template" in found.get("spec", {}):
                    template = found["spec"]["template"]
                    yield {**template, "metadata": {**template.get("metadata", {}), "name": found["metadata"]["name"]}}


CLASSES = [
    made
    for of in PAGES
    for block in blocks(of, "yaml")
    for made in yaml.safe_load_all(block.text)
    if made.get("kind") == gpu_class.KIND
]
PODS = {pod["metadata"]["name"]: pod for pod in pods() if parsed(pod)}
"""Those that request GPUs."""


def test_all_pods_of_the_pages_are_looked_at_here() -> None:
    assert set(PODS) == set(SAID)


@pytest.mark.parametrize("name", SAID)
def test_a_pod_asks_what_the_text_says(name: str) -> None:
    found = parsed(PODS[name])
    assert found is not None
    assert (ask_words.wanted(found), found.selection) == SAID[name]
    assert PODS[name]["spec"]["schedulerName"] == names.PROFILE
    assert PODS[name]["spec"]["runtimeClassName"] == "nvidia"


@pytest.mark.parametrize("row", WANTED, ids=lambda row: row[0])
def test_a_row_is_read_as_it_says(row: tuple[str, ...]) -> None:
    _, limits, annotations, said = row
    found = parsed(fragment(limits, annotations))
    assert found is not None
    assert ask_words.wanted(found) == said
    if annotations:
        assert found != parsed(fragment(limits, "")), "the annotation has no effect"


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: f"{row[0]} {row[2]}")
def test_a_nonsensical_ask_gets_its_sentence(row: tuple[str, ...]) -> None:
    code, limits, annotations, sentence = row
    with pytest.raises(AskError) as refused:
        parsed(fragment(limits, annotations))
    assert (refused.value.reason.code, refused.value.reason.sentence) == (code, sentence)


def test_the_table_of_annotations_holds_all_that_a_pod_may_say() -> None:
    told = {cells[0].strip("`") for cells in ANNOTATIONS}
    asked = {
        names.GPU_COUNT, names.GPU_CLASS, names.GPU_MODEL, names.GPU_UUID, names.MIN_GPU_MEMORY, names.MIN_CLOCK_MHZ,
        names.MIN_COMPUTE_CAPABILITY, names.LINK, names.MIXED_MODELS, names.PLACEMENT,
        names.ISOLATION, names.MIG_PROFILE,
    }  # fmt: skip
    assert told == asked


def test_the_class_on_the_page_is_one_and_the_table_of_its_fields_is_complete() -> None:
    (made,) = CLASSES
    found = gpu_class.decode(json.dumps(made).encode())
    assert found.problem == ""
    assert found.selection == Selection(models=("A100", "H100", "!PCIe"), min_mem_mib=70 * 1024, link="nvlink")
    told = {name for cells in FIELDS for name in re.findall(r"`(\w+)`", cells[0])}
    definition = yaml.safe_load((ROOT / "manifests/base/extender/gpuclass.yaml").read_text())
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    assert told == set(schema["spec"]["properties"])
