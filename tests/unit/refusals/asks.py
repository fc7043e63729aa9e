"""Requests that are asked wrong: amounts, keys and values on the pod itself."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from protos.contract import bounds, names
from protos.contract.objects import Pod
from tests.builders import a_container, a_pod
from tests.unit.refusals.case import Case, Section, on_one_node

ALL = {"name": names.VISIBLE_DEVICES, "value": "all"}
MOUNT = {"name": "null", "mountPath": f"{names.DEVICE_MOUNTS}/all"}
PREFIX = {"prefix": "NVIDIA_", "configMapRef": {"name": "mine"}}


def _wrong(code: str, sentence: str, pod: Pod) -> Case:
    return Case(code, sentence, partial(on_one_node, pod))


def _asking(**fields: Any) -> Pod:
    """A pod whose one container has these limits, or these fields."""
    limits = {names.GPU_MEM: "4"} if not fields.keys() & {"limits", "whole", "mem"} else fields.pop("limits", {})
    return a_pod(containers=[a_container("main", limits=limits, **fields)])


def _limits(**limits: str) -> Pod:
    return _asking(limits={f"{names.DOMAIN}/{name.replace('_', '-')}": value for name, value in limits.items()})


def _said(annotations: Mapping[str, str], **fields: Any) -> Pod:
    return a_pod(mem=4, annotations=annotations, **fields)


def _value(key: str, value: str, expected: str) -> Case:
    """An annotation with a value that cannot be read."""
    return _wrong("AskMalformed", f"{key} is <value>: expected {expected}", _said({key: value}))


def _many(count: int) -> list[dict[str, Any]]:
    return [a_container(f"c{number}", mem=1) for number in range(count)]


AMOUNTS = [
    _wrong(
        "AskUneven",
        "<resource> <amount> does not divide by gangshare.io/gpu-count <count>: <amounts> would",
        a_pod(mem=5, annotations={names.GPU_COUNT: "2"}),
    ),
    _wrong(
        "AskMixed",
        "container <name> asks <resource> and <resource>: whole GPUs or parts, not both",
        a_pod(mem=4, whole=1),
    ),
    _wrong(
        "AskMixed",
        "container <name> asks <resource> <amount>, and gangshare.io/gpu-count <count> is for parts of GPUs: write "
        "<resource>: <amount> without gangshare.io/gpu-count",
        a_pod(whole=1, annotations={names.GPU_COUNT: "2"}),
    ),
    _wrong(
        "AskMixed",
        "container <name> asks <resource> and <resource>: whole GPUs, parts or MIG instances of one profile",
        _asking(limits={"nvidia.com/mig-1g.10gb": "1", "nvidia.com/mig-2g.20gb": "1"}),
    ),
    _wrong(
        "AskMixed",
        "container <name> asks <resource>, and gangshare.io/mig-profile is <profile>: name one of them",
        a_pod(
            containers=[a_container("main", limits={"nvidia.com/mig-2g.20gb": "1"})],
            annotations={names.MIG_PROFILE: "1g.10gb"},
        ),
    ),
    _wrong(
        "AskTooLarge",
        "container <name> asks <resource> <amount> of an instance <profile>, which has less: ask less than <amount>, "
        "or take a larger profile",
        a_pod(mem=20, annotations={names.MIG_PROFILE: "1g.10gb"}),
    ),
    _wrong(
        "AskMalformed",
        "container <name> asks <resource>: expected a MIG profile, like nvidia.com/mig-1g.10gb",
        _asking(limits={"nvidia.com/mig-foo": "1"}),
    ),
    _wrong(
        "AskUnit",
        "container <name>: <resource> is <value>: expected a number of <unit>: write <resource>: <amount>",
        _limits(gpu_mem="10Gi"),
    ),
    _wrong(
        "AskZero",
        "container <name> asks <resource> 0, which is no GPU: ask one or more, or leave it out",
        _limits(gpu_mem="0"),
    ),
    _wrong(
        "AskZero",
        "annotation <key> selects GPUs, and no container asks for any: write limit <resource>, <resource> or "
        "<resource> of a container, or leave it out",
        a_pod(annotations={names.GPU_MODEL: "H200"}),
    ),
    _wrong(
        "AskMalformed",
        "container <name>: <resource> is <value>: expected a whole number",
        _limits(gpu_mem="1500m"),
    ),
    _wrong("AskMalformed", "container <name>: <resource> is <value>: expected zero or more", _limits(gpu_mem="-1")),
    _wrong("AskTooMany", "<count> containers ask for GPUs: expected at most 64", a_pod(containers=_many(65))),
    _wrong(
        "AskTooMany",
        "resources that a pod requests: <count>, expected at most 64",
        _asking(limits={names.GPU_MEM: "4", **{f"example.com/r{number}": "1" for number in range(64)}}),
    ),
]
VALUES = [
    _value(names.GPU_COUNT, "0", "a whole number from 1 to 1024"),
    _value(names.GPU_CLASS, "A100", "the name of a GpuClass"),
    _value(names.GPU_MODEL, ",", "names or globs, separated by commas"),
    _value(names.GPU_MODEL, "!=T4", "names or globs, separated by commas, with one ! before each that excludes"),
    _value(names.GPU_UUID, "0", "UUIDs like GPU-5f0a or globs, separated by commas"),
    _value(names.GPU_UUID, "GPU-" * 99, f"at most {bounds.GLOBS.most} globs of at most {bounds.GLOB.most} characters"),
    _value(names.MIN_GPU_MEMORY, "40 GB", "an amount like 40Gi"),
    _value(names.MIN_GPU_MEMORY, "-1Gi", "an amount like 40Gi, zero or more"),
    _value(names.MIN_GPU_MEMORY, "40Mi", "an amount like 40Gi, at least 1G"),
    _value(names.MIN_GPU_MEMORY, "70", "an amount with its unit: write <amount>"),
    _value(names.MIN_CLOCK_MHZ, "1400MHz", "a clock in MHz, like 1400"),
    _value(names.MIN_COMPUTE_CAPABILITY, "new", "a compute capability like 8.0"),
    _value(names.ISOLATION, "mps", "any, memory, compute"),
    _value(names.LINK, "nvswitch", "any, nvlink, prefer"),
    _value(names.MIG_PROFILE, "small", "a MIG profile like 1g.10gb"),
    _value(names.PLACEMENT, "wide", "pack, spread"),
    _value(names.MIXED_MODELS, "yes", "deny, allow"),
    _value(names.RESTARTABLE, "yes", "true or false"),
    _value(names.CHECKPOINT, "now", "a time like 2026-01-31T12:00:00Z"),
]
DEVICES = [
    _wrong(
        "AskOwnDevices",
        "container <name> sets NVIDIA_VISIBLE_DEVICES itself: leave it out, we set it",
        _asking(env=[ALL]),
    ),
    _wrong(
        "AskOwnDevices",
        "container <name> has envFrom with a prefix that NVIDIA_VISIBLE_DEVICES begins with: take another prefix, or "
        "none",
        _asking(envFrom=[PREFIX]),
    ),
    _wrong(
        "AskOwnDevices",
        "container <name> mounts a volume at /var/run/nvidia-container-devices: leave it out, we choose the GPUs",
        _asking(volumeMounts=[MOUNT]),
    ),
    _wrong(
        "AskOwnDevices",
        "container <name> sets CUDA_VISIBLE_DEVICES to <index>, which hides its GPUs: they are <indexes> inside the "
        "container, whichever we choose",
        _asking(env=[{"name": "CUDA_VISIBLE_DEVICES", "value": "3"}]),
    ),
    _wrong(
        "AskOwnDevices",
        "the pod has annotations cdi.k8s.io/*: leave them out, we choose the devices",
        _said({"cdi.k8s.io/mine": "nvidia.com/gpu=all"}),
    ),
    _wrong(
        "AskOwnLimits",
        "container <name> sets <variable> itself: leave it out, Gangshare sets it",
        _asking(env=[{"name": names.MEMORY_LIMIT, "value": "99999"}]),
    ),
    _wrong(
        "AskOwnLimits",
        "container <name> has envFrom with a prefix that variables of its limits begin with: take another prefix, or "
        "none",
        _asking(envFrom=[{"prefix": "CUDA_", "configMapRef": {"name": "mine"}}]),
    ),
]
KEYS = [
    _wrong(
        "UnknownKey",
        "<place> <key> is not known to Gangshare: did you mean <key>?",
        _said({"gangshare.io/gpu-modle": "T4"}),
    ),
    _wrong(
        "UnknownKey",
        "<place> <key> is not known to Gangshare: write <key>",
        _said({"gangshare.com/gpu-model": "T4"}),
    ),
    _wrong(
        "UnknownKey",
        "<place> <key> is not known to Gangshare: write it as annotation <key>",
        _said({}, labels={names.GPU_MODEL: "T4"}),
    ),
    _wrong(
        "UnknownKey",
        "<place> <key> is not known to Gangshare: write it as limit <resource> of a container",
        _said({names.GPU_SLICE: "50"}),
    ),
    _wrong(
        "UnknownKey",
        "<place> <key> is not known to Gangshare: no known key is like it",
        _said({"gangshare.io/zzz": "1"}),
    ),
    _wrong("UnknownKey", "<key> is not known to Gangshare: write annotation <key>", _said({"gpu-model": "T4"})),
    _wrong(
        "UnknownKey",
        "<key> is not known to Gangshare: write it as limit <resource> of a container",
        _said({"gpu-mem": "10"}),
    ),
    _wrong(
        "ForeignKey",
        "<place> <key> is of <product>, and Gangshare does not read it: write limit <resource>: <amount>",
        _asking(limits={names.WHOLE_GPU: "1", "nvidia.com/gpumem": "3000"}),
    ),
    _wrong(
        "ForeignKey",
        "<place> <key> is of <product>, and Gangshare does not read it: write annotation <key>: <value>",
        _said({"nvidia.com/use-gputype": "A100"}),
    ),
    _wrong(
        "ForeignKey",
        "<place> <key> is of <product>, and Gangshare does not read it",
        _said({"gpu-fraction": "much"}),
    ),
]
SECTION = Section(
    "Requests that are asked wrong",
    "A pod stays pending with one of these until it is created again. `kubectl apply` warns of most of them "
    "([events](events.md#mistakes-at-kubectl-apply)).",
    [*AMOUNTS, *VALUES, *DEVICES, *KEYS],
)
