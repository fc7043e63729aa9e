"""The page about queues shows queues that can be read, all their fields, and a division as it is made."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from extender.engine.queueing.shares import QueueDemand, divide
from protos.contract import queue_sources
from protos.contract.queue import GPU, GPUS
from protos.contract.queue_sources import OWN
from protos.contract.selector import Selector
from tests.unit.docs.pages import ROOT, blocks, page, table

QUEUES = page("docs/queues.md")


def test_the_queues_on_the_page_can_be_read() -> None:
    made = [found for block in blocks(QUEUES, "yaml") for found in yaml.safe_load_all(block.text)]
    research, vision, selecting = (queue_sources.decode(OWN, json.dumps(found).encode()) for found in made)
    assert (research.problem, vision.problem, selecting.problem) == ("", "", "")
    assert selecting.namespace_selector == Selector({"team": "research"})
    assert research.capability == {GPUS: 32 * GPU, "nvidia.com/gpu": 24, "class/large": 8 * GPU}
    assert (vision.parent, vision.namespaces) == ("research", ("vision", "vision-dev"))


def test_the_table_of_fields_is_complete() -> None:
    told = {
        name
        for cells in table(QUEUES, "field of `spec`", "value", "meaning")
        for name in re.findall(r"`(\w+)`", cells[0])
    }
    definition = yaml.safe_load((ROOT / "manifests/base/extender/queue.yaml").read_text())
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    assert told == set(schema["spec"]["properties"])


@pytest.mark.parametrize(
    ("claims", "due"),
    [
        ([QueueDemand(12, 2), QueueDemand(12, 1)], [8, 4]),
        ([QueueDemand(12, 2, deserved=6), QueueDemand(12, 1)], [10, 2]),
        ([QueueDemand(5, 2), QueueDemand(12, 1)], [5, 7]),
    ],
)
def test_the_examples_are_reckoned_as_the_page_says(claims: list[QueueDemand], due: list[float]) -> None:
    assert divide(12, claims) == pytest.approx(due)
