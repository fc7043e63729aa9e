"""What a GpuClass accepts, and what is left of that when a pod narrows it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protos.contract import gpu_class, names
from protos.contract.ask import parse
from protos.contract.gpu_class import GpuClass
from protos.contract.inventory import Gpu
from protos.contract.selection import Selection, suits
from tests.builders import a_pod

WIDE = Selection(models=("*A100*",), min_mem_mib=40960, min_cc=(8, 0), link="nvlink", numa_local=True)
A100 = Gpu(index=0, uuid="GPU-a", mem=79, mem_mib=81559, model="NVIDIA A100-SXM4-80GB", clock_mhz=1410, cc="8.0")


def a_class(**spec: Any) -> GpuClass:
    return gpu_class.decode(msgspec.json.encode({"metadata": {"name": "large"}, "spec": spec}))


def asked(wide: Selection, annotations: dict[str, str]) -> Selection:
    found = parse(a_pod(mem=1, annotations={names.GPU_CLASS: "large", **annotations}), names.Resources(), wide)
    assert found is not None
    return found.selection


def test_every_field_is_read() -> None:
    found = a_class(
        models=["*A100*", "!*PCIE*"],
        minMemory="40Gi",
        maxMemory="80Gi",
        minClockMHz=1400,
        minComputeCapability="8.0",
        link="nvlink",
        numaLocal=True,
        migProfile="1g.10gb",
        isolation="memory",
        description="for training",
    )
    assert found == GpuClass(
        name="large",
        description="for training",
        selection=Selection(
            models=("*A100*", "!*PCIE*"),
            min_mem_mib=40 * 1024,
            max_mem_mib=80 * 1024,
            min_clock_mhz=1400,
            min_cc=(8, 0),
            link="nvlink",
            numa_local=True,
            profile="1g.10gb",
            isolation="memory",
        ),
    )


def test_a_class_that_says_nothing_accepts_everything() -> None:
    assert a_class() == a_class(models=[]) == GpuClass(name="large")
    assert not a_class().selection.selective


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"models": "A100"}, "$.models"),
        ({"models": ["!"]}, "expected names or globs"),
        (
            {"models": ["!=A100", "T4"]},
            "models is '!=A100,T4': expected names or globs, separated by commas, with one ! before each that excludes",
        ),
        ({"minMemory": "40Mi"}, "minMemory is '40Mi': expected an amount like 40Gi, at least 1G"),
        ({"minMemory": "much"}, "minMemory is 'much': expected an amount like 40Gi"),
        ({"maxMemory": 0}, "more than zero"),
        ({"minMemory": "80Gi", "maxMemory": "40Gi"}, "maxMemory is '40Gi': expected no less than minMemory"),
        ({"minClockMHz": -1}, "minClockMHz is '-1'"),
        ({"minComputeCapability": "new"}, "expected a compute capability like 8.0"),
        ({"link": "fast"}, "link is 'fast': expected any, nvlink, prefer"),
        ({"numaLocal": "yes"}, "$.numaLocal"),
    ],
)
def test_a_spec_that_makes_no_sense_is_a_problem_and_selects_nothing(spec: dict[str, Any], words: str) -> None:
    found = a_class(**spec)
    assert words in found.problem
    assert found.selection == Selection()


@pytest.mark.parametrize(
    ("selection", "accepted"),
    [
        (Selection(max_mem_mib=81559), True),
        (Selection(max_mem_mib=81558), False),
        (Selection(models=("*SXM*",), also=("*A100*",)), True),
        (Selection(models=("*SXM*",), also=("*H100*",)), False),
        (Selection(models=("!*SXM*",)), False),
        (Selection(models=("sxm4",), also=("A100",)), True),
        (Selection(models=("A100",), also=("H100",)), False),
        (Selection(models=("A100", "!sxm4")), False),
        (Selection(models=("A100*",)), True),
        (Selection(models=("!A100*",)), False),
        (Selection(models=("NVIDIA*",)), True),
        (Selection(models=("SXM4*",)), False),
    ],
)
def test_both_lists_of_models_and_both_ends_of_memory_must_agree(selection: Selection, accepted: bool) -> None:
    assert suits(selection, A100) is accepted


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, WIDE),
        ({names.MIN_GPU_MEMORY: "80Gi"}, msgspec.structs.replace(WIDE, min_mem_mib=81920)),
        ({names.MIN_GPU_MEMORY: "20Gi", names.MIN_COMPUTE_CAPABILITY: "7.0"}, WIDE),
        ({names.LINK: "any"}, WIDE),
        ({names.GPU_MODEL: "*A100*"}, WIDE),
        ({names.GPU_MODEL: "*SXM*"}, msgspec.structs.replace(WIDE, models=("*SXM*",), also=("*A100*",))),
        ({names.PLACEMENT: "spread"}, msgspec.structs.replace(WIDE, spread=True)),
        ({names.GPU_UUID: "GPU-1"}, msgspec.structs.replace(WIDE, uuids=("GPU-1",))),
    ],
)
def test_a_pod_narrows_its_class_and_never_widens_it(annotations: dict[str, str], expected: Selection) -> None:
    assert asked(WIDE, annotations) == expected


def test_where_a_class_promises_no_link_the_pods_own_wish_holds() -> None:
    assert asked(Selection(link="prefer"), {names.LINK: "any"}).link == "any"
    assert asked(Selection(link="any"), {}).link == "any"
    assert asked(Selection(link="any"), {names.LINK: "nvlink"}).link == "nvlink"


def test_a_pod_that_says_what_a_class_says_is_of_the_same_shape() -> None:
    said = parse(a_pod(mem=1, annotations={names.GPU_MODEL: "*A100*", names.MIN_GPU_MEMORY: "40Gi"}), names.Resources())
    assert said is not None
    assert asked(Selection(models=("*A100*",), min_mem_mib=40960), {}) == said.selection


@pytest.mark.parametrize(
    ("selection", "selective"),
    [
        (Selection(spread=True), False),
        (Selection(link="any"), False),
        (Selection(link="nvlink"), True),
        (Selection(uuids=("GPU-1",)), True),
        (Selection(numa_local=True), True),
        (Selection(min_clock_mhz=1), True),
    ],
)
def test_wishes_alone_rule_nothing_out(selection: Selection, selective: bool) -> None:
    assert selection.selective is selective
