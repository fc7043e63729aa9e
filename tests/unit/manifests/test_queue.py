"""The definition of Queue says what is read of it, and has a place for all that is written to it."""

from __future__ import annotations

import re

import msgspec
import pytest
import yaml

from protos.contract import queue
from protos.contract.bounds import QUEUE_PRIORITY, WEIGHT
from protos.contract.quantity import milli
from protos.contract.queue_sources import OWN, _Spec, decode
from tests.unit.manifests.conftest import MANIFESTS, Json, undescribed

DEFINITION = f"{queue.PLURAL}.gangshare.io"
LIMITS = ("guarantee", "deserved", "capability")


def test_it_is_the_kind_that_is_watched_and_its_status_is_apart(definition: Json) -> None:
    (version,) = definition["versions"]
    assert f"{definition['group']}/{version['name']}" == queue.API_VERSION
    assert (definition["names"]["plural"], definition["names"]["kind"]) == (queue.PLURAL, queue.KIND)
    assert definition["scope"] == "Cluster"
    assert version["subresources"] == {"status": {}}


def test_every_field_that_is_read_is_there_and_no_other(schema: Json) -> None:
    read = {field.encode_name for field in msgspec.structs.fields(_Spec)}
    assert set(schema["spec"]["properties"]) == read
    weight, priority = (schema["spec"]["properties"][field] for field in ("weight", "priority"))
    assert (weight["minimum"], weight["maximum"]) == (1, WEIGHT.most)
    assert (priority["minimum"], priority["maximum"]) == (-QUEUE_PRIORITY.most, QUEUE_PRIORITY.most)


@pytest.mark.parametrize("amount", ["4", "0.5", "2500m", "1e3", "64Gi"])
def test_an_amount_that_the_definition_lets_through_is_one(schema: Json, amount: str) -> None:
    for field in LIMITS:
        assert re.search(schema["spec"]["properties"][field]["additionalProperties"]["pattern"], amount)
    assert milli(amount) >= 0


@pytest.mark.parametrize("amount", ["much", "-1", "4 GPUs", ""])
def test_nonsense_is_refused_where_it_is_written(schema: Json, amount: str) -> None:
    assert not re.search(schema["spec"]["properties"]["capability"]["additionalProperties"]["pattern"], amount)


def test_every_field_is_described(schema: Json) -> None:
    assert [path for part in ("spec", "status") for path in undescribed(part, schema[part])] == []


def test_the_sample_can_be_read() -> None:
    made = list(yaml.safe_load_all((MANIFESTS / "samples/10-queues.yaml").read_text()))
    queues = [decode(OWN, msgspec.json.encode(found)) for found in made if found["kind"] == queue.KIND]
    assert [(found.name, found.parent, found.weight, found.problem) for found in queues] == [
        ("sample-research", "", 1, ""),
        ("sample-vision", "sample-research", 2, ""),
        ("sample-speech", "sample-research", 1, ""),
    ]
