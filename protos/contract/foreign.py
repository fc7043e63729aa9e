"""Keys of other products that Gangshare does not read, and the line to write instead of each.

Sources, by their documents: HAMi and Volcano (vGPU), KAI, Koordinator, GaiaGPU and elastic-gpu. HAMi, Volcano and KAI
give the amounts of one GPU beside a number of GPUs; ours are those of all GPUs of a container together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple

from protos.contract import names
from protos.contract.bounds import GPU_COUNT
from protos.contract.quantity import QuantityError, mebibytes
from protos.contract.reason import Reason
from protos.contract.selection import is_number

CODE = "ForeignKey"
SHOWN = 63
"""Characters of a key or value that are compared and shown."""
Place = Literal["annotation", "label", "resource"]
PRODUCTS = frozenset({
    "aliyun.com", "gpushare.io", "hami.io", "kai.scheduler", "koordinator.sh", "kueue.x-k8s.io", "nvidia.com", "run.ai",
    "runai", "scheduling.run.ai", "scheduling.volcano.sh", "scheduling.x-k8s.io", "volcano.sh",
})  # fmt: skip
"""Domains of other products, in which users look for such keys. None of the products has a key of these names."""


class Units(NamedTuple):
    """The resources of the installation and their units, in which lines to write are given."""

    resources: names.Resources
    slices_per_gpu: int
    gpus: int = 1
    """How many GPUs a container has of which the value says what it wants of each."""


Rewrite = Callable[[str, Units], str]
"""The line to write for a value of another product, "" if the value says nothing."""


def _memory(mib: int) -> Rewrite:
    """Of an amount in so many MiB each."""
    return lambda value, at: (
        f"limit {at.resources.mem}: {at.gpus * math.ceil(int(value) * mib / at.resources.unit_mib)}"
        if is_number(value)
        else ""
    )


def _percent(value: str, at: Units) -> str:
    if not is_number(value):
        return ""
    return f"limit {at.resources.slice}: {at.gpus * math.ceil(int(value) * at.slices_per_gpu / 100)}"


def _fraction(value: str, at: Units) -> str:
    whole, _, part = value.partition(".")
    if not is_number(whole or "0") or not is_number(part or "0") or len(value) > SHOWN:
        return ""
    return f"limit {at.resources.slice}: {at.gpus * math.ceil(round(float(value or 0) * at.slices_per_gpu, 6))}"


def _bytes(value: str, at: Units) -> str:
    try:
        return _memory(1)(str(mebibytes(value)), at)
    except QuantityError:
        return ""


def _annotation(key: str, before: str = "") -> Rewrite:
    return lambda value, _: f'annotation {key}: "{before}{value[:SHOWN]}"'


def _placement(value: str, at: Units) -> str:
    return _annotation(names.PLACEMENT)("spread" if value == "spread" else "pack", at)


_DEVICES = "gpu-fraction-num-devices"
ANNOTATIONS_OF_OTHERS: Mapping[str, tuple[str, Rewrite]] = {
    "gpu-fraction": ("KAI", _fraction),
    "gpu-memory": ("KAI", _memory(1)),
    _DEVICES: ("KAI", _annotation(names.GPU_COUNT)),
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
COUNTS: Mapping[str, str] = {"HAMi": names.WHOLE_GPU, "Volcano": "volcano.sh/vgpu-number", "KAI": _DEVICES}
"""The key with which a product numbers the GPUs of a container, each of which gets the amounts."""


def meaning(key: str) -> tuple[str, Rewrite] | None:
    """What an annotation of another product means; some write a product's domain before a key without one."""
    domain, _, name = key.rpartition("/")
    return ANNOTATIONS_OF_OTHERS.get(key) or (ANNOTATIONS_OF_OTHERS.get(name) if domain in PRODUCTS else None)


def found(
    annotations: Mapping[str, str], labels: Mapping[str, str], limits: Mapping[str, str], units: Units, *, bare: bool
) -> Iterator[Reason]:
    """What is wrong with each such key, in order. `bare`: also with labels without a domain."""
    given = {**labels, **annotations, **limits}
    ours = set(units.resources.all)
    for key in sorted(annotations):
        if of := meaning(key):
            yield _reason("annotation", key, of, annotations[key], given, units)
    for key in sorted(labels):
        if ("/" in key or bare) and (of := meaning(key)):
            yield _reason("label", key, of, labels[key], given, units)
    for key in sorted(RESOURCES_OF_OTHERS.keys() & limits.keys() - ours):
        yield _reason("resource", key, RESOURCES_OF_OTHERS[key], limits[key], given, units)


def _reason(
    place: Place, key: str, of: tuple[str, Rewrite], value: str, given: Mapping[str, str], units: Units
) -> Reason:
    product, rewrite = of
    count = given.get(COUNTS.get(product, ""), "")
    gpus = int(count) if is_number(count) and 1 <= int(count) <= GPU_COUNT.most else 1
    instead = rewrite(value, units._replace(gpus=gpus))
    if instead.startswith("limit ") and gpus > 1:
        instead += f' and annotation {names.GPU_COUNT}: "{gpus}"'
    if instead.startswith("limit ") and count and COUNTS[product] == names.WHOLE_GPU:
        instead += f", and no limit {names.WHOLE_GPU}"
    advice = f": write {instead}" if instead else ""
    return Reason(CODE, f"{place} {key} is of {product}, and Gangshare does not read it{advice}")
