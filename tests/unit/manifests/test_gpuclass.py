"""The definition of GpuClass says what is read of it, and has a place for all that is written to it."""

from __future__ import annotations

import re

import msgspec
import pytest
import yaml

from protos.contract import gpu_class, selection
from protos.contract.bounds import GLOB, GLOBS
from protos.contract.quantity import mebibytes
from tests.unit.manifests.conftest import MANIFESTS, Json, undescribed

DEFINITION = f"{gpu_class.PLURAL}.gangshare.io"


def test_it_is_the_kind_that_is_watched_and_its_status_is_apart(definition: Json) -> None:
    (version,) = definition["versions"]
    assert f"{definition['group']}/{version['name']}" == gpu_class.API_VERSION
    assert (definition["names"]["plural"], definition["names"]["kind"]) == (gpu_class.PLURAL, gpu_class.KIND)
    assert definition["scope"] == "Cluster"
    assert version["subresources"] == {"status": {}}


def test_every_field_that_is_read_is_there_and_no_other(schema: Json) -> None:
    read = {field.encode_name for field in msgspec.structs.fields(gpu_class._Spec)}
    assert set(schema["spec"]["properties"]) == read
    assert set(schema["spec"]["properties"]["link"]["enum"]) == set(selection.LINKS)
    models = schema["spec"]["properties"]["models"]
    assert (models["maxItems"], models["items"]["maxLength"]) == (GLOBS.most, GLOB.most)


@pytest.mark.parametrize("amount", ["40Gi", "1e3", "80000Mi", ".5Gi", "7"])
def test_an_amount_that_the_definition_lets_through_is_one(schema: Json, amount: str) -> None:
    for field in ("minMemory", "maxMemory"):
        assert re.search(schema["spec"]["properties"][field]["pattern"], amount)
        assert mebibytes(amount) >= 0


@pytest.mark.parametrize("amount", ["much", "40 Gi", "-1Gi", "40GB", ""])
def test_nonsense_is_refused_where_it_is_written(schema: Json, amount: str) -> None:
    assert not re.search(schema["spec"]["properties"]["minMemory"]["pattern"], amount)


def test_every_field_is_described(schema: Json) -> None:
    assert [path for part in ("spec", "status") for path in undescribed(part, schema[part])] == []


def test_the_sample_can_be_read() -> None:
    made = next(yaml.safe_load_all((MANIFESTS / "samples/09-gpu-class.yaml").read_text()))
    found = gpu_class.decode(msgspec.json.encode(made))
    assert (found.name, found.problem) == ("sample-large", "")
    assert found.selection.models == ("A100", "H100", "H200")
