"""The annotation with a node's cordoned GPUs."""

from __future__ import annotations

import pytest

from protos.contract import cordon
from tests.builders import an_inventory


@pytest.mark.parametrize("text", ["", ",", "0", " 0 , 1,", "GPU-n-1", "1,GPU-n-0,1"])
def test_indexes_and_uuids_of_the_nodes_gpus_are_read(text: str) -> None:
    assert cordon.unreadable(text, an_inventory(16, 16)) is None


def test_the_entries_are_divided_by_commas() -> None:
    assert cordon.marks(" 0 ,, GPU-n-1,0") == {"0", "GPU-n-1"}


@pytest.mark.parametrize(
    ("text", "named"), [("99,abc,0", "'99', 'abc'"), ("0 1", "'0 1'"), ("01", "'01'"), ("gpu-n-0", "'gpu-n-0'")]
)
def test_others_are_named_with_what_was_expected(text: str, named: str) -> None:
    reason = cordon.unreadable(text, an_inventory(16, 16))
    assert reason is not None
    expected = "expected indexes or UUIDs of GPUs: 0, 1 or their UUIDs"
    assert reason.sentence == f"gangshare.io/cordoned-gpus names {named}: {expected}"


def test_a_node_without_gpus_says_so() -> None:
    reason = cordon.unreadable("0", an_inventory())
    assert reason is not None
    assert reason.sentence.endswith("names '0': expected nothing: the node has no GPUs")


def test_an_endless_cordon_makes_a_short_sentence() -> None:
    reason = cordon.unreadable(",".join(f"{i}{'x' * 500}" for i in range(1000)), an_inventory(*[16] * 200))
    assert reason is not None
    assert len(reason.sentence) < 700
    assert "and 992 more" in reason.sentence
