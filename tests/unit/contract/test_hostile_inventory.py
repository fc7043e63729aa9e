"""A node's annotation may say anything: it is read in time and in bounds, or refused with a sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from extender.engine.types.events import NodeSeen
from protos.contract import codec, inventory, links, names, selection
from protos.contract.bounds import GPU_AMOUNT, GPU_INDEX, GPU_TEXT, GPUS_PER_NODE, LINK_KIND, LINKS_PER_NODE
from tests.builders import a_node, a_pod
from tests.unit.engine.story import Story


def a_gpu(index: int = 0, **fields: Any) -> dict[str, Any]:
    return {"index": index, "uuid": f"GPU-{index}", "mem": 8, **fields}


def written(*gpus: dict[str, Any], **fields: Any) -> str:
    return json.dumps({"v": 1, "unitMiB": 1024, "slicesPerGpu": 100, "gpus": gpus, **fields})


HOSTILE = {
    "more GPUs than any machine has": written(*map(a_gpu, range(GPUS_PER_NODE.most + 1))),
    "4,000 GPUs": written(*map(a_gpu, range(4000))),
    "a link kind of 4,400 digits": written(a_gpu(0), a_gpu(1), links=[[0, 1, "NV" + "9" * 4400]]),
    "a link kind that is too long": written(a_gpu(0), a_gpu(1), links=[[0, 1, "N" * (LINK_KIND.most + 1)]]),
    "more links than pairs": written(a_gpu(0), a_gpu(1), links=[[0, 1, "SYS"]] * (LINKS_PER_NODE.most + 1)),
    "a capability of 4,400 digits": written(a_gpu(cc="9" * 4400 + ".0")),
    "an index past the bound": written(a_gpu(GPU_INDEX.most + 1)),
    "a minor past the bound": written(a_gpu(minor=GPU_INDEX.most + 1)),
    "a negative link": written(a_gpu(), links=[[-1, 0, "SYS"]]),
    "an amount past the bound": written(a_gpu(mem=GPU_AMOUNT.most + 1)),
    "an amount past int64": written(a_gpu(memMiB=2**63)),
    "an amount of 400 digits": written(a_gpu(clockMHz=10**400)),
    "an amount that is infinite": written(a_gpu()).replace('"mem": 8', '"mem": 1e400'),
    "a negative amount": written(a_gpu(mem=-1)),
    "a long model": written(a_gpu(model="m" * (GPU_TEXT.most + 1))),
    "a long UUID": written(a_gpu(uuid="u" * (GPU_TEXT.most + 1))),
    "a NUMA node past the bound": written(a_gpu(numa=2**40)),
    "a NUMA node far below nothing": written(a_gpu(numa=-(2**40))),
    "many names of replicas": written(a_gpu(), replicas={f"a/{n}": 2 for n in range(17)}),
    "slices past the bound": written(a_gpu(), slicesPerGpu=10**12),
    "an instance of a GPU that takes pods": written(a_gpu(0), a_gpu(256, mig="1g.10gb")),
    "an instance with the index of a GPU": written(a_gpu(0, mig="1g.10gb")),
    "an instance past the last index of instances": written(a_gpu(256 + 256 * 16, mig="1g.10gb")),
    "an instance without a profile's name": written(a_gpu(256, mig="")),
    "an instance with another name": written(a_gpu(256, mig="../1g.10gb")),
    "an instance with a long name": written(a_gpu(256, mig="1g.10gb+" + "x" * 4000)),
    "an instance with 4,400 digits": written(a_gpu(256, mig="1g." + "9" * 4400 + "gb")),
    "another strategy": written(a_gpu(), migStrategy="mixed"),
    "lone surrogates": written(a_gpu(model="\udc80")),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_is_past_a_bound_is_refused_with_a_sentence_and_the_node_has_no_gpus(text: str) -> None:
    with pytest.raises(codec.ContractError) as refused:
        inventory.decode(text)
    assert len(str(refused.value)) < 1000
    story = Story(a_node("good", 16))
    story.tell(NodeSeen(a_node("bad", annotations={names.GPUS: text})))
    assert story.filter(a_pod("p", mem=4)) == ["good"]
    assert story.engine.check() == []


def test_too_many_gpus_are_told_with_both_numbers() -> None:
    with pytest.raises(codec.ContractError, match="GPUs of a node: 4000, expected at most 256"):
        inventory.decode(HOSTILE["4,000 GPUs"])


@pytest.mark.parametrize("kind", ["NV" + "9" * 5000, "NV٣", "NV²", "NV-1", "NV1.5", "NV"])
def test_a_kind_of_link_that_is_no_number_weighs_nothing(kind: str) -> None:
    assert links.weight(kind) == links.UNKNOWN_WEIGHT


@pytest.mark.parametrize("cc", ["9" * 5000 + ".0", "8." + "9" * 5000, "²", "٣.0", "8.0.1", "-8.0", "8.", "."])
def test_a_capability_that_is_none_is_unknown(cc: str) -> None:
    assert selection.capability(inventory.Gpu(index=0, uuid="u", mem=1, cc=cc)) == (0, 0)


@pytest.mark.parametrize(
    ("mem", "count"),
    [("9" * 5000, "1"), ("8", "9" * 5000), (10**400, 1), (2**63 - 1, 1), ("1e30", "1"), ("64", "257"), ("-8", "2")],
)
def test_gpushares_capacity_is_held_against_the_same_bounds(mem: Any, count: Any) -> None:
    assert inventory.from_gpushare({names.ALIYUN_MEM: mem, names.ALIYUN_COUNT: count}, 1024, 100) is None


def test_the_largest_node_is_read_and_used() -> None:
    most = GPUS_PER_NODE.most
    node = a_node("big", *[16] * most, links=[(a, a + 1, "NV4") for a in range(most - 1)])
    story = Story(node)
    assert story.run(a_pod("p", mem=4)).startswith("big:")
    assert story.filter(a_pod("q", whole=8)) == ["big"]
