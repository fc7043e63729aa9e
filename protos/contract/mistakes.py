"""Keys of a pod that Gangshare does not read: unknown ones of our domain, misplaced ones, and those of other products.

A pod with such a key would run without what its user asked for: on the wrong GPU, or on none. Sources of the other
products' keys: HAMi and Volcano (vGPU), KAI, GaiaGPU and elastic-gpu, by their documents.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import SequenceMatcher, get_close_matches
from typing import Literal, NamedTuple

from protos.contract import names
from protos.contract.names import DOMAIN
from protos.contract.objects import Pod
from protos.contract.reason import Reason
from protos.contract.selection import is_number

UNKNOWN, FOREIGN = "UnknownKey", "ForeignKey"
OF_NODE = "NodeKeyUnknown"
"""Codes of the reasons."""
Place = Literal["annotation", "label", "resource"]
PREFIX = f"{DOMAIN}/"
SHOWN = 63
"""Characters of a key that are compared and shown."""
MARK = DOMAIN.partition(".")[0]
ALIKE, LIKE_OURS = 0.6, 0.8
"""How similar a known key must be to be proposed, and a domain to be taken for ours: between 0 and 1."""

GROUP_KEYS = frozenset({
    names.GROUP, names.MIN_MEMBER, names.MIN_MEMBER_BY_ROLE, names.QUEUE, names.ROLE, names.ON_MEMBER_LOST,
    names.ON_COMPLETION, names.SCHEDULE_TIMEOUT_SECONDS, names.ELASTIC,
    names.EXPECTED_RUNTIME,
})  # fmt: skip
"""Read from annotations and labels."""
WRITTEN = frozenset({names.ALLOCATION, names.RESERVATION, names.WAKE, names.GPU_MEM_WRITTEN})
"""Gangshare writes these."""
ANNOTATIONS = GROUP_KEYS | WRITTEN | {
    names.GPU_COUNT, names.GPU_CLASS, names.GPU_MODEL, names.GPU_UUID, names.MIN_GPU_MEMORY, names.MIN_CLOCK_MHZ,
    names.MIN_COMPUTE_CAPABILITY, names.LINK, names.MIXED_MODELS, names.PLACEMENT, names.RESTARTABLE,
    names.CHECKPOINT,
}  # fmt: skip
ALIASES = {"min-available": names.MIN_MEMBER, "pod-group": names.GROUP, "gpu-type": names.GPU_MODEL}
"""Terms of the field, and our keys for them."""
CORDON = names.CORDONED_GPUS.removeprefix(PREFIX)
UNDOMAINED = frozenset(key.removeprefix(PREFIX) for key in ANNOTATIONS - WRITTEN if "gpu" in key)


class Units(NamedTuple):
    """The resources of the installation and their units, in which lines to write are given."""

    resources: names.Resources
    slices_per_gpu: int


Rewrite = Callable[[str, Units], str]
"""The line to write for a value of another product, "" if the value says nothing."""


def _memory(mib: int) -> Rewrite:
    """Of an amount in so many MiB each."""
    return lambda value, at: (
        f"limit {at.resources.mem}: {math.ceil(int(value) * mib / at.resources.unit_mib)}" if is_number(value) else ""
    )


def _percent(value: str, at: Units) -> str:
    return f"limit {at.resources.slice}: {math.ceil(int(value) * at.slices_per_gpu / 100)}" if is_number(value) else ""


def _fraction(value: str, at: Units) -> str:
    whole, _, part = value.partition(".")
    if not is_number(whole or "0") or not is_number(part or "0") or len(value) > SHOWN:
        return ""
    return f"limit {at.resources.slice}: {math.ceil(round(float(value or 0) * at.slices_per_gpu, 6))}"


def _annotation(key: str, before: str = "") -> Rewrite:
    return lambda value, _: f'annotation {key}: "{before}{value[:SHOWN]}"'


ANNOTATIONS_OF_OTHERS: Mapping[str, tuple[str, Rewrite]] = {
    "gpu-fraction": ("KAI", _fraction),
    "gpu-memory": ("KAI", _memory(1)),
    "gpu-fraction-num-devices": ("KAI", _annotation(names.GPU_COUNT)),
    "nvidia.com/use-gputype": ("HAMi", _annotation(names.GPU_MODEL)),
    "nvidia.com/nouse-gputype": ("HAMi", _annotation(names.GPU_MODEL, "!")),
    "nvidia.com/use-gpuuuid": ("HAMi", _annotation(names.GPU_UUID)),
    "nvidia.com/nouse-gpuuuid": ("HAMi", _annotation(names.GPU_UUID, "!")),
}
RESOURCES_OF_OTHERS: Mapping[str, tuple[str, Rewrite]] = {
    "nvidia.com/gpumem": ("HAMi", _memory(1)),
    "nvidia.com/gpumem-percentage": ("HAMi", _percent),
    "nvidia.com/gpucores": ("HAMi", _percent),
    "volcano.sh/vgpu-memory": ("Volcano", _memory(1)),
    "volcano.sh/vgpu-memory-percentage": ("Volcano", _percent),
    "volcano.sh/vgpu-cores": ("Volcano", _percent),
    "volcano.sh/vgpu-number": ("Volcano", _annotation(names.GPU_COUNT)),
    "tencent.com/vcuda-core": ("GaiaGPU", _percent),
    "tencent.com/vcuda-memory": ("GaiaGPU", _memory(256)),
    "elasticgpu.io/gpu-core": ("elastic-gpu", _percent),
    "elasticgpu.io/gpu-memory": ("elastic-gpu", _memory(1)),
    names.ALIYUN_MEM: ("gpushare", _memory(1024)),
}
"""By key: the product, and what to write instead."""


def first(pod: Pod, resources: names.Resources, slices_per_gpu: int) -> Reason | None:
    """The first such key of the pod, None if there is none. The same pod always has the same reason."""
    return next(_all(pod, Units(resources, slices_per_gpu)), None)


def of_group(annotations: Mapping[str, str], resources: names.Resources) -> list[str]:
    """A sentence for the first unknown key of our domain among the annotations of a PodGroup, if there is any.

    Operators copy annotations of pods to PodGroups, so these are known here too.
    """
    found = next(_unknown("annotation", annotations, ANNOTATIONS, resources), None)
    return [found.sentence] if found is not None else []


def of_node(annotations: Mapping[str, str], labels: Mapping[str, str]) -> Reason | None:
    """The first unknown key of our domain on a node, None if there is none. Operators write one, the plugin another."""
    places: tuple[tuple[Place, Mapping[str, str]], ...] = (("annotation", annotations), ("label", labels))
    for place, keys in places:
        for key in sorted(key for key in keys if key.startswith("gang") and _is_ours(key)):
            if place != "annotation" or key not in (names.GPUS, names.CORDONED_GPUS):
                meant = get_close_matches(key.partition("/")[2][:SHOWN], [CORDON], 1, ALIKE)
                advice = f"did you mean annotation {names.CORDONED_GPUS}?" if meant else "no key of nodes is like it"
                return Reason(OF_NODE, f"the node's {place} {key[:SHOWN]} is not known to Gangshare: {advice}")
    return None


def _all(pod: Pod, units: Units) -> Iterator[Reason]:
    """Keys of our domain come first, in the order of the alphabet."""
    annotations, labels, limits, resources = (
        pod.metadata.annotations,
        pod.metadata.labels,
        _limits(pod),
        units.resources,
    )
    yield from _unknown("annotation", annotations, ANNOTATIONS, resources)
    yield from _unknown("label", labels, GROUP_KEYS, resources)
    yield from _unknown("resource", limits, frozenset(resources.all), resources)
    if not limits.keys().isdisjoint(resources.all):
        for key in sorted(UNDOMAINED & (annotations.keys() | labels.keys())):
            yield Reason(UNKNOWN, f"{key} is not known to Gangshare: write annotation {PREFIX}{key}")
    for key in sorted(ANNOTATIONS_OF_OTHERS.keys() & annotations.keys()):
        yield _foreign("annotation", key, ANNOTATIONS_OF_OTHERS[key], annotations[key], units)
    for key in sorted(RESOURCES_OF_OTHERS.keys() & limits.keys() - set(resources.all)):
        yield _foreign("resource", key, RESOURCES_OF_OTHERS[key], limits[key], units)


def _limits(pod: Pod) -> Mapping[str, str]:
    """The resources that its containers name. The API server admits no request without an equal limit."""
    given = (c.resources for c in (*pod.spec.init_containers, *pod.spec.containers) if c.resources is not None)
    return {name: str(value) for each in given for name, value in each.limits.items()}


def _unknown(place: Place, keys: Iterable[str], known: frozenset[str], resources: names.Resources) -> Iterator[Reason]:
    for key in sorted(key for key in keys if key.startswith("gang") and key not in known and _is_ours(key)):
        advice = _advice(PREFIX + key.partition("/")[2], known, resources)
        yield Reason(UNKNOWN, f"{place} {key[:SHOWN]} is not known to Gangshare: {advice}")


def _is_ours(key: str) -> bool:
    """Whether the key is of our domain, or of one that was meant to be ours."""
    domain = key.partition("/")[0]
    return domain == DOMAIN or SequenceMatcher(None, domain[:SHOWN].partition(".")[0], MARK).ratio() >= LIKE_OURS


def _advice(meant: str, known: frozenset[str], resources: names.Resources) -> str:
    """What to write for this key of our domain, or the known key that is most like it."""
    if meant in known:  # only its domain is wrong
        return f"write {meant}"
    if meant in ANNOTATIONS:
        return f"write it as annotation {meant}"
    if meant in resources.all:
        return f"write it as limit {meant} of a container"
    of_field = {"gpu-memory": resources.mem, "gpu-cores": resources.slice, "gpu-fraction": resources.slice} | ALIASES
    names_of = of_field | {key.partition("/")[2]: key for key in (*resources.all, *sorted(ANNOTATIONS - WRITTEN))}
    nearest = get_close_matches(meant.removeprefix(PREFIX)[:SHOWN], names_of, 1, ALIKE)
    return f"did you mean {names_of[nearest[0]]}?" if nearest else "no known key is like it"


def _foreign(place: Place, key: str, of: tuple[str, Rewrite], value: str, units: Units) -> Reason:
    product, rewrite = of
    instead = rewrite(value, units)
    advice = f": write {instead}" if instead else ""
    return Reason(FOREIGN, f"{place} {key} is of {product}, and Gangshare does not read it{advice}")
