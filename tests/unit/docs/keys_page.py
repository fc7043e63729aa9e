"""The page of all keys, made of `protos/contract/names.py`: `python -m tests.unit.docs.keys_page > docs/keys.md`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from protos.contract import names

INTRODUCTION = """# Keys

All resources, annotations, labels and variables that Gangshare reads or writes. Keys of gangs that other products made:
[gangs](gangs.md#name-a-gang).
"""


class Key(NamedTuple):
    """One row."""

    name: str
    meaning: str
    see: str
    """The page that explains it, by its path below docs, and its fragment."""


class Section(NamedTuple):
    """One table."""

    title: str
    text: str
    keys: tuple[Key, ...]


SECTIONS = (
    Section(
        "Resources of containers",
        "Options like `--resource-mem` give the first four another name.",
        (
            Key(names.GPU_MEM, "memory of a GPU, in units of `--memory-unit`", "pod-specs.md#resources"),
            Key(names.GPU_SLICE, "time slices of a GPU, of `--slices-per-gpu`", "pod-specs.md#resources"),
            Key(names.WHOLE_GPU, "whole GPUs", "pod-specs.md#resources"),
            Key(names.SHARED_GPU, "replicas of a GPU, under NVIDIA's other name", "nvidia-plugin.md#time-slicing"),
            Key("nvidia.com/mig-PROFILE", "MIG instances of a profile", "mig.md"),
            Key(names.ALIYUN_MEM, "gpushare's name for memory, with `--gpushare`", "gpushare.md"),
        ),
    ),
    Section(
        "Annotations of pods",
        "Users set these, on the pod or in a pod template.",
        (
            Key(names.GPU_COUNT, "number of GPUs over which memory and slices are spread", "pod-specs.md#annotations"),
            Key(names.GPU_CLASS, "a GpuClass", "pod-specs.md#gpu-classes"),
            Key(names.GPU_MODEL, "models", "pod-specs.md#models"),
            Key(names.GPU_UUID, "single GPUs", "pod-specs.md#annotations"),
            Key(names.MIN_GPU_MEMORY, "least memory of the GPU", "pod-specs.md#annotations"),
            Key(names.MIN_CLOCK_MHZ, "least clock of the GPU", "pod-specs.md#annotations"),
            Key(names.MIN_COMPUTE_CAPABILITY, "least compute capability of the GPU", "pod-specs.md#annotations"),
            Key(names.LINK, "links between several GPUs", "pod-specs.md#annotations"),
            Key(names.MIXED_MODELS, "whether GPUs may be of several models", "pod-specs.md#annotations"),
            Key(names.MIG_PROFILE, "MIG instances only", "mig.md"),
            Key(names.ISOLATION, "what the node must enforce", "isolation.md#what-a-pod-demands"),
            Key(names.PLACEMENT, "packed or spread", "pod-specs.md#annotations"),
            Key(names.RESTARTABLE, "the pod may be moved", "defragmentation.md#let-a-pod-be-moved"),
            Key(names.CHECKPOINT, "until when work is saved", "preemption.md#how-victims-are-chosen"),
            Key(names.RESIZE, "new memory; `gangshare resize` writes it", "isolation.md#resize-a-running-pod"),
        ),
    ),
    Section(
        "Gangs and queues",
        "Annotations or labels of pods. All but group and role also count as annotations of a PodGroup.",
        (
            Key(names.GROUP, "the gang's name", "gangs.md#name-a-gang"),
            Key(names.MIN_MEMBER, "the gang's minimum", "gangs.md#name-a-gang"),
            Key(names.ROLE, "the role of the pod", "gangs.md#name-a-gang"),
            Key(names.MIN_MEMBER_BY_ROLE, "the minimum by role", "gangs.md#name-a-gang"),
            Key(names.ON_MEMBER_LOST, "what happens to the rest", "gangs.md#when-a-member-is-lost"),
            Key(names.ON_COMPLETION, "the role that ends the gang", "gangs.md#name-a-gang"),
            Key(names.ELASTIC, "surplus members may be preempted", "elastic.md#plain-gangs"),
            Key(names.SCHEDULE_TIMEOUT_SECONDS, "how long the gang may wait", "gangs.md#name-a-gang"),
            Key(names.EXPECTED_RUNTIME, "how long pod or gang will run", "queues.md#order-of-pending-workloads"),
            Key(names.QUEUE, "the queue", "queues.md#the-queue-of-a-workload"),
            Key(names.PLAN_GATE, "scheduling gate of members that wait", "gangs.md#waiting-behind-a-gate"),
        ),
    ),
    Section(
        "What Gangshare writes on pods",
        "Leave these annotations alone.",
        (
            Key(names.ALLOCATION, "the GPUs of each container", "trust.md"),
            Key(names.RESERVATION, "GPUs that are reserved for a pending pod", "defragmentation.md"),
            Key(names.WAKE, "changed to requeue a pending pod", "trust.md"),
            Key(names.RESIZED, "what is booked after a resize", "isolation.md#resize-a-running-pod"),
            Key(names.LIMITED, "the memory limit that was set", "isolation.md#resize-a-running-pod"),
            Key(names.GPU_MEM_WRITTEN, "memory with its unit, as the pod wrote it", "pod-specs.md#memory-with-a-unit"),
            Key(names.IDLE, "since when the pod uses no GPU", "measuring.md#idle-pods-give-way-first"),
        ),
    ),
    Section(
        "Nodes",
        "",
        (
            Key(names.GPUS, "annotation: the GPUs of the node; its plugin writes it", "trust.md"),
            Key(names.CORDONED_GPUS, "annotation: GPUs that take no new pods", "operations.md#cordon-a-gpu"),
            Key(names.MPS, "label: parts of GPUs go through MPS", "mps.md#set-it-up"),
            Key(names.PLUGIN_CONFIG, "label: a configuration of the chart", "helm.md#nodes-with-another-configuration"),
            Key(names.STARTUP_TAINT, "taint of new nodes", "autoscalers.md#nodes-that-have-just-started"),
        ),
    ),
    Section(
        "Labels of namespaces",
        "",
        (
            Key(names.ISOLATION, "the default of the namespace's pods", "isolation.md#what-a-pod-demands"),
            Key(names.GPU_VISIBILITY, "`all`: pods may name GPUs", "../manifests/README.md#admission-policies"),
            Key(names.UNKNOWN_KEYS, "`deny`, `warn` or `ignore`", "events.md#mistakes-at-kubectl-apply"),
            Key(names.METRICS_LABEL, "`true`: pods may read metrics", "operations.md#network-policies"),
        ),
    ),
    Section(
        "Variables of containers",
        "The plugin sets these.",
        (
            Key(names.VISIBLE_DEVICES, "the GPUs, for NVIDIA's runtime", "limits.md#which-gpus-a-container-sees"),
            Key(names.ENV_UUIDS, "the GPUs", "pod-specs.md#what-the-container-sees"),
            Key(names.ENV_MEM_MIB, "memory of each GPU for the program", "pod-specs.md#what-the-container-sees"),
            Key(names.ENV_PLACES, "the places of MIG instances made on demand", "mig.md#instances-made-on-demand"),
            Key(names.ENV_SLICES, "slices of each GPU for the program", "pod-specs.md#what-the-container-sees"),
            Key(names.MEMORY_REQUEST, "asks NVIDIA's toolkit for a memory limit", "isolation.md#driver-limits"),
            Key(names.MEMORY_LIMIT, "the same", "isolation.md#driver-limits"),
        ),
    ),
)  # fmt: skip


def page() -> str:
    """The page, in Markdown."""
    return "\n".join([INTRODUCTION, *(line for section in SECTIONS for line in _section(section))]).rstrip() + "\n"


def _section(section: Section) -> Iterator[str]:
    yield from (f"## {section.title}", "", *([section.text, ""] if section.text else []))
    yield from ("| key | meaning | more |", "|---|---|---|")
    for key in section.keys:
        yield f"| `{key.name}` | {key.meaning} | [{_title(key.see)}]({key.see}) |"
    yield ""


def _title(see: str) -> str:
    path, _, fragment = see.partition("#")
    return (fragment or path.removesuffix(".md")).replace("-", " ")


if __name__ == "__main__":
    print(page(), end="")
