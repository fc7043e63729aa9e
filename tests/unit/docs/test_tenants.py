"""The pages about preemption and elastic jobs: their sample is read, their examples happen, their commands find it."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
import yaml

from extender.engine.types import refusals
from extender.engine.types.settings import DRAIN_TAINTS
from gangfilter.group import GroupKey
from protos.contract import names, training
from protos.contract.training import API_VERSION, JOB_KIND, PLURALS
from tests.unit.docs.pages import ROOT, blocks, ids, page, table
from tests.unit.engine.test_reclaim import a_gang, full_of, wants

PREEMPTION, ELASTIC = page("docs/preemption.md"), page("docs/elastic.md")


def shown(of: Path, verb: str) -> list[str]:
    """The lines of kubectl with this verb."""
    found = (line.strip().partition("  #")[0].rstrip() for line in of.read_text().splitlines())
    return [line for line in found if line.startswith(f"kubectl {verb} ")]


def test_the_priority_class_on_the_page_is_one() -> None:
    (block,) = blocks(PREEMPTION, "yaml")
    made = yaml.safe_load(block.text)
    assert (made["apiVersion"], made["kind"], made["value"]) == ("scheduling.k8s.io/v1", "PriorityClass", 1000)


@pytest.mark.parametrize(
    ("sizes", "size", "taken"),
    [((2, 2, 2, 2), 4, ["of2", "of3"]), ((4, 4), 3, ["of1"]), ((8,), 3, [])],
    ids=["four gangs of 2", "two of 4", "one of 8"],
)
def test_what_the_page_says_of_two_queues_of_eight_gpus_happens(
    sizes: tuple[int, ...], size: int, taken: list[str]
) -> None:
    assert wants(full_of(*sizes), a_gang("mine", size, "b")) == taken


def test_the_events_that_are_looked_for_are_told() -> None:
    (line,) = shown(PREEMPTION, "get")
    code = re.sub(".*reason=", "", line)
    assert refusals.preempted("who", 1, "unit").code == code


def test_the_scaleins_that_are_looked_for_are_ours() -> None:
    (line,) = shown(ELASTIC, "get")
    assert line == f"kubectl get {PLURALS['ScaleIn']} -l {names.MANAGED_BY}={names.EXTENDER}"


def test_the_sample_says_what_the_table_of_fields_means() -> None:
    (line,) = shown(ELASTIC, "apply")
    made = yaml.safe_load((ROOT / line.rpartition(" ")[2]).read_text())
    assert (made["apiVersion"], made["kind"]) == (API_VERSION, JOB_KIND)
    job = training.decode_job(msgspec.json.encode({**made, "metadata": {**made["metadata"], "namespace": "default"}}))
    assert (GroupKey(job.namespace, job.name), job.least, job.most) == (GroupKey("default", "elastic-mnist"), 2, 6)
    fields = {cells[0].strip("`") for cells in table(ELASTIC, "field of `spec.etReplicaSpecs.worker`", "meaning")}
    assert fields == set(made["spec"]["etReplicaSpecs"]["worker"]) - {"template"}


def test_the_taints_on_the_page_are_those_that_are_looked_for() -> None:
    told = [code for cells in table(ELASTIC, "taint", "who sets it") for code in re.findall(r"`([^`]+)`", cells[0])]
    assert sorted(told) == sorted(DRAIN_TAINTS), ids(ELASTIC)
