"""Keys of a pod that Gangshare does not read: unknown ones of our domain, misplaced ones, and those of other products.

A pod with such a key would run without what its user asked for: on the wrong GPU, or on none. Sources of the other
products' keys: HAMi and Volcano (vGPU), KAI, Koordinator, GaiaGPU and elastic-gpu, by their documents.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import SequenceMatcher, get_close_matches
from functools import lru_cache
from typing import Literal, NamedTuple

from protos.contract import mig, names
from protos.contract.bounds import KEYS
from protos.contract.names import DOMAIN
from protos.contract.objects import Pod
from protos.contract.quantity import QuantityError, mebibytes
from protos.contract.reason import Reason
from protos.contract.selection import is_number

UNKNOWN, FOREIGN, NO_GPU = "UnknownKey", "ForeignKey", "AskZero"
OF_NODE = "NodeKeyUnknown"
"""Codes of the reasons."""
Place = Literal["annotation", "label", "resource"]
PREFIX = f"{DOMAIN}/"
SHOWN = 63
"""Characters of a key that are compared and shown."""
MARK, JOINED = DOMAIN.partition(".")[0], DOMAIN.replace(".", "")
ALIKE, LIKE_OURS = 0.6, 0.8
"""How similar a known name must be to be proposed, and a domain to be taken for ours: between 0 and 1."""

GROUP_KEYS = frozenset({
    names.GROUP, names.MIN_MEMBER, names.MIN_MEMBER_BY_ROLE, names.QUEUE, names.ROLE, names.ON_MEMBER_LOST,
    names.ON_COMPLETION, names.SCHEDULE_TIMEOUT_SECONDS, names.ELASTIC,
    names.EXPECTED_RUNTIME,
})  # fmt: skip
"""Read from annotations and labels."""
WRITTEN = frozenset(
    {names.ALLOCATION, names.RESERVATION, names.WAKE, names.GPU_MEM_WRITTEN, names.RESIZED, names.LIMITED, names.IDLE}
)
"""Gangshare writes these."""
ANNOTATIONS = GROUP_KEYS | WRITTEN | {
    names.GPU_COUNT, names.GPU_CLASS, names.GPU_MODEL, names.GPU_UUID, names.MIN_GPU_MEMORY, names.MIN_CLOCK_MHZ,
    names.MIN_COMPUTE_CAPABILITY, names.LINK, names.MIXED_MODELS, names.PLACEMENT, names.RESTARTABLE,
    names.CHECKPOINT, names.ISOLATION, names.MIG_PROFILE, names.RESIZE,
}  # fmt: skip
SELECTING = frozenset({
    names.GPU_COUNT, names.GPU_CLASS, names.GPU_MODEL, names.GPU_UUID, names.MIN_GPU_MEMORY, names.MIN_CLOCK_MHZ,
    names.MIN_COMPUTE_CAPABILITY, names.LINK, names.MIXED_MODELS, names.ISOLATION, names.MIG_PROFILE,
})  # fmt: skip
"""They mean nothing in a pod without GPUs."""
OF_NODES = {("annotation", names.GPUS), ("annotation", names.CORDONED_GPUS), ("label", names.MPS)}
CORDON = names.CORDONED_GPUS.removeprefix(PREFIX)
ALIASES = {"min-available": names.MIN_MEMBER, "pod-group": names.GROUP, "gpu-type": names.GPU_MODEL}
"""Terms of the field, and our keys for them."""
UNDOMAINED = {key.removeprefix(PREFIX).replace("-", ""): key for key in sorted(ANNOTATIONS - WRITTEN) if "-" in key}
"""Our keys by their names, without hyphens. Single words, like `group`, mean other things to others."""
PRODUCTS = frozenset({
    "aliyun.com", "gpushare.io", "hami.io", "kai.scheduler", "koordinator.sh", "kueue.x-k8s.io", "nvidia.com", "run.ai",
    "runai", "scheduling.run.ai", "scheduling.volcano.sh", "scheduling.x-k8s.io", "volcano.sh",
})  # fmt: skip
"""Domains of other products, in which users look for such keys. None of the products has a key of these names."""


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


def _bytes(value: str, at: Units) -> str:
    try:
        return _memory(1)(str(mebibytes(value)), at)
    except QuantityError:
        return ""


def _annotation(key: str, before: str = "") -> Rewrite:
    return lambda value, _: f'annotation {key}: "{before}{value[:SHOWN]}"'


def _placement(value: str, at: Units) -> str:
    return _annotation(names.PLACEMENT)("spread" if value == "spread" else "pack", at)


ANNOTATIONS_OF_OTHERS: Mapping[str, tuple[str, Rewrite]] = {
    "gpu-fraction": ("KAI", _fraction),
    "gpu-memory": ("KAI", _memory(1)),
    "gpu-fraction-num-devices": ("KAI", _annotation(names.GPU_COUNT)),
    "hami.io/gpu-scheduler-policy": ("HAMi", _placement),
    "hami.io/node-scheduler-policy": ("HAMi", _placement),
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
    "volcano.sh/gpu-memory": ("Volcano", _memory(1)),
    "volcano.sh/gpu-number": ("Volcano", lambda value, at: f"limit {at.resources.whole}: {value}"),
    "koordinator.sh/gpu": ("Koordinator", _percent),
    "koordinator.sh/gpu-core": ("Koordinator", _percent),
    "koordinator.sh/gpu-memory": ("Koordinator", _bytes),
    "koordinator.sh/gpu-memory-ratio": ("Koordinator", _percent),
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


def without_gpus(pod: Pod, resources: names.Resources) -> Reason | None:
    """Why a pod that selects GPUs but asks for none is refused, None for any other pod.

    Zero whole GPUs are how pods for any cluster say that they need none.
    """
    selecting = SELECTING & pod.metadata.annotations.keys()
    if not selecting or _names_gpus(_limits(pod), resources):
        return None
    instead = f"write limit {resources.mem}, {resources.slice} or {resources.whole} of a container, or leave it out"
    return Reason(NO_GPU, f"annotation {min(selecting)} selects GPUs, and no container asks for any: {instead}")


def of_group(annotations: Mapping[str, str], labels: Mapping[str, str], resources: names.Resources) -> list[str]:
    """A sentence for the first key of our domain on a PodGroup that is unknown, if there is any.

    Operators copy annotations and labels of pods to PodGroups, so those of pods are known here too.
    """
    unknown = _unknown("annotation", annotations, ANNOTATIONS, resources)
    misplaced = _unknown("label", labels, ANNOTATIONS, resources)
    return [found.sentence for found in (*unknown, *misplaced)][:1]


def reads_value(key: str) -> bool:
    """Whether a pod's mistakes depend on the value of this annotation or label; they depend on all keys."""
    return _of_others(key) is not None


def names_us(pod: Pod) -> bool:
    """Whether the pod has a key of our domain, or a scheduler of our name, or one that was meant to be ours.

    Keys that Gangshare has written do not count.
    """
    keys = (*pod.metadata.annotations.keys() - WRITTEN, *pod.metadata.labels, *_limits(pod))
    scheduler = pod.spec.scheduler_name[:SHOWN].lower()
    return MARK in scheduler or _like_ours(scheduler) or any(True for _ in _ours(keys))


def of_node(annotations: Mapping[str, str], labels: Mapping[str, str]) -> Reason | None:
    """The first unknown key of our domain on a node, None if there is none."""
    places: tuple[tuple[Place, Mapping[str, str]], ...] = (("annotation", annotations), ("label", labels))
    for place, keys in places:
        for key in sorted(_ours(keys)):
            if (place, key) not in OF_NODES:
                meant = get_close_matches(_name(key)[:SHOWN].lower(), [CORDON], 1, ALIKE)
                advice = f"did you mean annotation {names.CORDONED_GPUS}?" if meant else "no key of nodes is like it"
                return Reason(OF_NODE, f"the node's {place} {key[:SHOWN]} is not known to Gangshare: {advice}")
    return None


def _all(pod: Pod, units: Units) -> Iterator[Reason]:
    """Keys of our domain come first, in the order of the alphabet."""
    annotations, labels, limits = pod.metadata.annotations, pod.metadata.labels, _limits(pod)
    resources = units.resources
    yield from _unknown("annotation", annotations, ANNOTATIONS, resources)
    yield from _unknown("label", labels, GROUP_KEYS, resources)
    yield from _unknown("resource", limits, frozenset(resources.all), resources)
    asks = _names_gpus(limits, resources)
    if asks:
        for key in sorted(annotations.keys() | labels.keys()):
            if ours := UNDOMAINED.get(_bare(key)):
                yield Reason(UNKNOWN, f"{key} is not known to Gangshare: write annotation {ours}")
    amounts = {key.partition("/")[2].replace("-", ""): key for key in (resources.mem, resources.slice)}
    for key in sorted((*annotations, *(limits.keys() - RESOURCES_OF_OTHERS.keys() - set(resources.all)))):
        if ours := amounts.get(_bare(key)):
            yield Reason(UNKNOWN, f"{key} is not known to Gangshare: write it as limit {ours} of a container")
    for key in sorted(annotations):
        if of := _of_others(key):
            yield _foreign("annotation", key, of, annotations[key], units)
    for key in sorted(labels):
        if ("/" in key or not asks) and (of := _of_others(key)):
            yield _foreign("label", key, of, labels[key], units)
    for key in sorted(RESOURCES_OF_OTHERS.keys() & limits.keys() - set(resources.all)):
        yield _foreign("resource", key, RESOURCES_OF_OTHERS[key], limits[key], units)


def _limits(pod: Pod) -> Mapping[str, str]:
    """The resources that its containers name. The API server admits no request without an equal limit."""
    given = (c.resources for c in (*pod.spec.init_containers, *pod.spec.containers) if c.resources is not None)
    return {name: str(value) for each in given for name, value in each.limits.items()}


def _names_gpus(limits: Mapping[str, str], resources: names.Resources) -> bool:
    """Whether these limits name GPUs or MIG instances, in any amount."""
    return not limits.keys().isdisjoint(resources.all) or any(name.startswith(mig.PREFIX) for name in limits)


def _bare(key: str) -> str:
    """The key's name without hyphens, in lower case, if its domain is missing or another product's, else ""."""
    domain, _, name = key.rpartition("/")
    return name.lower().replace("-", "").replace("_", "") if not domain or domain in PRODUCTS else ""


def _of_others(key: str) -> tuple[str, Rewrite] | None:
    """What an annotation of another product means; some write a product's domain before a key without one."""
    domain, _, name = key.rpartition("/")
    return ANNOTATIONS_OF_OTHERS.get(key) or (ANNOTATIONS_OF_OTHERS.get(name) if domain in PRODUCTS else None)


def _unknown(
    place: Place, keys: Collection[str], known: frozenset[str], resources: names.Resources
) -> Iterator[Reason]:
    for key in sorted(key for key in _ours(keys) if key not in known):
        advice = _advice(PREFIX + _name(key), known, resources)
        yield Reason(UNKNOWN, f"{place} {key[:SHOWN]} is not known to Gangshare: {advice}")


def _name(key: str) -> str:
    """The key without its domain; some write another character than `/` behind it."""
    return key.partition("/")[2] if "/" in key else re.split("[._]", key)[-1]


def _ours(keys: Collection[str]) -> Iterator[str]:
    """The keys of our domain, and those of a domain that was meant to be ours."""
    compared = len(keys) <= KEYS.most
    for key in keys:
        domain, _, name = key.partition("/")
        below = domain.endswith(f".{DOMAIN}") and PREFIX + name in (*ANNOTATIONS, names.GPU_MEM, names.GPU_SLICE)
        if domain == DOMAIN or below or (compared and _like_ours(domain[:SHOWN])):
            yield key


@lru_cache(maxsize=4096)
def _like_ours(domain: str) -> bool:
    """Whether the domain was meant to be ours. Domains below ours are other components', like the simulator's."""
    if domain.endswith(f".{DOMAIN}"):
        return False
    forms = (domain.lower().partition(".")[0], MARK), (domain.lower().replace(".", ""), JOINED)
    return any(SequenceMatcher(None, written, ours).ratio() >= LIKE_OURS for written, ours in forms)


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
    nearest = get_close_matches(meant.removeprefix(PREFIX)[:SHOWN].lower(), names_of, 1, ALIKE)
    return f"did you mean {names_of[nearest[0]]}?" if nearest else "no known key is like it"


def _foreign(place: Place, key: str, of: tuple[str, Rewrite], value: str, units: Units) -> Reason:
    product, rewrite = of
    instead = rewrite(value, units)
    advice = f": write {instead}" if instead else ""
    return Reason(FOREIGN, f"{place} {key} is of {product}, and Gangshare does not read it{advice}")
