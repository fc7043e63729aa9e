"""Keys of a pod that Gangshare does not read: unknown ones of our domain, misplaced ones, and those of other products.

A pod with such a key would run without what its user asked for: on the wrong GPU, or on none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import SequenceMatcher, get_close_matches
from functools import lru_cache

from protos.contract import foreign, mig, names
from protos.contract.bounds import KEYS, LIKENESSES
from protos.contract.foreign import SHOWN, Place, Units
from protos.contract.names import DOMAIN
from protos.contract.objects import Pod
from protos.contract.reason import Reason

UNKNOWN, NO_GPU = "UnknownKey", "AskZero"
OF_NODE = "NodeKeyUnknown"
"""Codes of the reasons."""
PREFIX = f"{DOMAIN}/"
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
OF_NODES = {
    ("annotation", names.GPUS), ("annotation", names.CORDONED_GPUS),
    ("label", names.MPS), ("label", names.PLUGIN_CONFIG),
}  # fmt: skip
CORDON = names.CORDONED_GPUS.removeprefix(PREFIX)
ALIASES = {"min-available": names.MIN_MEMBER, "pod-group": names.GROUP, "gpu-type": names.GPU_MODEL}
"""Terms of the field, and our keys for them."""
UNDOMAINED = {key.removeprefix(PREFIX).replace("-", ""): key for key in sorted(ANNOTATIONS - WRITTEN) if "-" in key}
"""Our keys by their names, without hyphens. Single words, like `group`, mean other things to others."""


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
    return foreign.meaning(key) is not None


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
    for key in sorted((*annotations, *(limits.keys() - foreign.RESOURCES_OF_OTHERS.keys() - set(resources.all)))):
        if ours := amounts.get(_bare(key)):
            yield Reason(UNKNOWN, f"{key} is not known to Gangshare: write it as limit {ours} of a container")
    yield from foreign.found(annotations, labels, limits, units, bare=not asks)


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
    return name.lower().replace("-", "").replace("_", "") if not domain or domain in foreign.PRODUCTS else ""


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
    near = {domain for key in keys if _near_ours(domain := _domain(key))} if len(keys) <= KEYS.most else set()
    compared = near if len(near) <= LIKENESSES.most else set()
    for key in keys:
        domain, _, name = key.partition("/")
        below = domain.endswith(f".{DOMAIN}") and PREFIX + name in (*ANNOTATIONS, names.GPU_MEM, names.GPU_SLICE)
        if domain == DOMAIN or below or (_domain(key) in compared and _like_ours(_domain(key))):
            yield key


def _domain(key: str) -> str:
    return key.partition("/")[0][:SHOWN]


@lru_cache(maxsize=4096)
def _near_ours(domain: str) -> bool:
    """Whether the domain has most letters of ours, in any order, so that a comparison is worth its time."""
    return domain != DOMAIN and any(_alike(*form, SequenceMatcher.quick_ratio) for form in _forms(domain))


@lru_cache(maxsize=4096)
def _like_ours(domain: str) -> bool:
    """Whether the domain was meant to be ours. Domains below ours are other components', like the simulator's."""
    return any(_alike(*form, SequenceMatcher.ratio) for form in _forms(domain))


def _forms(domain: str) -> Iterator[tuple[str, str]]:
    """The texts that are compared with ours."""
    if not domain.endswith(f".{DOMAIN}"):
        yield domain.lower().partition(".")[0], MARK
        yield domain.lower().replace(".", ""), JOINED


def _alike(written: str, ours: str, ratio: Callable[[SequenceMatcher[str]], float]) -> bool:
    longer, shorter = max(len(written), len(ours)), min(len(written), len(ours))
    return 2 * shorter >= LIKE_OURS * (longer + shorter) and ratio(SequenceMatcher(None, written, ours)) >= LIKE_OURS


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
