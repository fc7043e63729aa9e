"""What stands on a pod may be as long as an annotation is: it is read in bounds, or refused with a sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from extender.engine.types import trust
from protos.contract import allocation, ask, codec, names, reservation
from protos.contract.bounds import CONTAINERS, GPU_INDEX, GPU_TEXT, GPUS_PER_NODE, NAME, ROOMS
from tests.builders import a_pod, an_inventory

SHARE = {"uuid": "u", "index": 0, "mem": 1}


def an_allocation(containers: Any, **fields: Any) -> str:
    return json.dumps({"v": 1, "unitMiB": 1, "slicesPerGpu": 1, "containers": containers, **fields})


def a_reservation(rooms: Any, until: str = "2026-01-01T00:00:00Z") -> str:
    return json.dumps({"v": 1, "rooms": rooms, "until": until})


@pytest.mark.parametrize(
    "text",
    [
        an_allocation({f"c{n}": [SHARE] for n in range(CONTAINERS.most + 1)}),
        an_allocation({"c": [SHARE] * (GPUS_PER_NODE.most + 1)}),
        an_allocation({"c" * (NAME.most + 1): [SHARE]}),
        an_allocation({"c": [SHARE | {"uuid": "u" * (GPU_TEXT.most + 1)}]}),
        an_allocation({"c": [SHARE | {"index": GPU_INDEX.most + 1}]}),
        an_allocation({"c": [SHARE | {"mem": 2**63}]}),
        an_allocation({"c": [SHARE | {"mem": 10**4200}]}),
        an_allocation({}, group={"key": "g" * 600, "epoch": 1, "size": 1}),
        an_allocation({}, group={"key": "g", "epoch": 2**63, "size": 1}),
        an_allocation({}, nonsense="x"),
        an_allocation({}, **{"n" * 100_000: 1}),
        an_allocation({}).replace('"v": 1', '"v": ' + "9" * 4000),
        an_allocation({}).replace('"v": 1', '"v": 1e400'),
        "[" * 100_000,
        '{"v":1,"a":' + "[" * 100_000,
        "\ud800",
        "",
        "null",
    ],
)
def test_an_allocation_past_a_bound_is_refused_in_few_words(text: str) -> None:
    with pytest.raises(codec.ContractError) as refused:
        allocation.decode(text)
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    "text",
    [
        a_reservation({f"u{n}": {"node": "n", "containers": {}} for n in range(ROOMS.most + 1)}),
        a_reservation({"u": {"node": "n" * (NAME.most + 1), "containers": {}}}),
        a_reservation({"u": {"node": "n", "containers": {f"c{n}": [] for n in range(CONTAINERS.most + 1)}}}),
        a_reservation({"u": {"node": "n", "containers": {"c": ["u"] * (GPUS_PER_NODE.most + 1)}}}),
        a_reservation({}, until="9" * 5000),
        a_reservation({}, until="2026-01-01T00:00:infZ"),
    ],
)
def test_a_reservation_past_a_bound_is_refused_in_few_words(text: str) -> None:
    with pytest.raises(codec.ContractError) as refused:
        reservation.decode(text)
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    "plan",
    [
        '{"0": [1e400]}',
        '{"0": {"' + "9" * 5000 + '": 1}}',
        '{"' + "9" * 5000 + '": {"0": 1}}',
        json.dumps({"0": {str(n): 1 for n in range(GPUS_PER_NODE.most + 1)}}),
        json.dumps({str(n): {"0": 1} for n in range(CONTAINERS.most + 1)}),
        '{"1": {"0": 1}}',
        '{"-1": {"0": 1}}',
        '{"0": 1}',
        "[]",
        "[" * 100_000,
    ],
)
def test_a_plan_of_gpushares_scheduler_that_makes_no_sense_says_nothing(plan: str) -> None:
    pod = a_pod(mem=1, annotations={names.ALIYUN_ALLOCATION: plan})
    asked = ask.parse(pod, names.Resources())
    assert asked is not None
    assert trust.from_gpushare(pod, asked, an_inventory(16)) is None


def test_a_plan_of_gpushares_scheduler_names_the_gpus() -> None:
    pod = a_pod(mem=1, annotations={names.ALIYUN_ALLOCATION: '{"0": {"1": 1}}'})
    asked = ask.parse(pod, names.Resources())
    assert asked is not None
    told = trust.from_gpushare(pod, asked, an_inventory(16, 16))
    assert told is not None
    assert [share.index for share in told.containers["main"]] == [1]


@pytest.mark.parametrize("index", ["9" * 5000, "-1", "1e400", "nan", "", "²"])
def test_an_index_of_gpushare_that_is_none_says_nothing(index: str) -> None:
    pod = a_pod(mem=1, annotations={names.ALIYUN_IDX: index})
    asked = ask.parse(pod, names.Resources())
    assert asked is not None
    assert trust.from_gpushare(pod, asked, an_inventory(16)) is None
