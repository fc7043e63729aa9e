"""The wire form of the annotations is fixed: these files may only change together with the version."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from protos.contract import allocation, codec, inventory

GOLDEN = Path(__file__).parent / "golden"


def test_an_inventory_is_written_as_the_golden_file_says() -> None:
    text = (GOLDEN / "inventory.json").read_text().strip()
    read = inventory.decode(text)
    assert read is not None
    assert inventory.encode(read) == text
    assert read.gpus[1].health == "sick:xid 79"


def test_an_allocation_is_written_as_the_golden_file_says() -> None:
    text = (GOLDEN / "allocation.json").read_text().strip()
    read = allocation.decode(text)
    assert read is not None
    assert allocation.encode(read) == text
    assert read.group == allocation.Group("ns/name", 7, 4)


def test_absent_is_none() -> None:
    assert inventory.decode(None) is None
    assert allocation.decode(None) is None


@pytest.mark.parametrize(
    "text",
    [
        "", "null", "[]", "{}", "nonsense", '{"v":"1"}', '{"v":0}', '{"v":1}', "\ud800", '{"v":1,"x":' + "[" * 5000,
        '{"v":1,"unitMiB":0,"slicesPerGpu":100,"containers":{}}',
        '{"v":1,"unitMiB":1024,"slicesPerGpu":100,"containers":{"c":[{"uuid":"","index":0,"mem":1}]}}',
        '{"v":1,"unitMiB":1024,"slicesPerGpu":100,"containers":{"c":[{"uuid":"a","index":0,"mem":-1}]}}',
        '{"v":1,"unitMiB":1024,"slicesPerGpu":100,"containers":{"c":[{"uuid":"a","index":0,"mem":1.5}]}}',
        '{"v":1,"unitMiB":1024,"slicesPerGpu":100,"containers":{},"more":1}',
    ],
)  # fmt: skip
def test_garbage_is_malformed_and_the_error_names_the_key(text: str) -> None:
    with pytest.raises(codec.MalformedError, match=r"gangshare\.io/allocation"):
        allocation.decode(text)


def test_a_newer_version_is_told_apart() -> None:
    with pytest.raises(codec.NewerVersionError, match="expected version 1 or older"):
        allocation.decode('{"v":2,"whatever":[]}')


def test_an_inventory_with_two_gpus_of_one_uuid_is_malformed() -> None:
    read = inventory.decode((GOLDEN / "inventory.json").read_text())
    assert read is not None
    twice = msgspec.json.encode(msgspec.to_builtins(read)).replace(b"GPU-b", b"GPU-a").decode()
    with pytest.raises(codec.MalformedError, match="same uuid"):
        inventory.decode(twice)
