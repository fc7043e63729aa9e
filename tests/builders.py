"""Small builders of pods, nodes and inventories for tests: names say what differs, everything else is ordinary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from extender.engine.types.effects import PodRef
from protos.contract import inventory, mig, names
from protos.contract.allocation import Allocation, Share
from protos.contract.inventory import Gpu, Inventory, Layout, Link, Possible
from protos.contract.objects import Node, ObjectMeta, Pod, decode_node, decode_pod

MAKER = {"manager": "kube-controller-manager", "operation": "Update", "fieldsV1": {"f:spec": {"f:containers": {}}}}
"""The entry of whoever made a pod, in its managedFields."""


def an_inventory(
    *mems: int,
    links: Sequence[Link] = (),
    numa: Sequence[int] = (),
    models: Sequence[str] = (),
    node: str = "n",
    **fields: Any,
) -> Inventory:
    """One GPU per amount of memory in units; UUIDs are GPU-<node>-<index>. `numa`, `models`: those of each GPU."""
    of_each = zip(mems, numa or [-1] * len(mems), models or ["T4"] * len(mems), strict=True)
    gpus = tuple(
        Gpu(index=i, minor=i, uuid=f"GPU-{node}-{i}", mem=mem, mem_mib=mem * 1024, model=model, numa=place)
        for i, (mem, place, model) in enumerate(of_each)
    )
    fields = {"unit_mib": 1024, "slices_per_gpu": 100} | fields
    return Inventory(v=1, gpus=gpus, links=tuple(links), **fields)


def cut(found: Inventory, instances: Mapping[int, Sequence[str]], *, single: bool = False) -> Inventory:
    """The same with these GPUs in MIG mode, cut into instances of these profiles; UUIDs are MIG-<GPU's>-<place>."""
    replace = msgspec.structs.replace
    gpus = [replace(gpu, health="mig") if gpu.index in instances else gpu for gpu in found.gpus]
    for number, profiles in sorted(instances.items()):
        of = found.gpus[number]
        for place, name in enumerate(profiles):
            profile = mig.profile(name)
            assert profile is not None
            mem, index = profile.memory_gb - 1, mig.index(number, place)
            gpus.append(replace(of, index=index, uuid=f"MIG-{of.uuid}-{place}", mem=mem, mem_mib=mem * 1024, mig=name))
    strategy: Any = "single" if single else msgspec.UNSET
    return replace(found, gpus=tuple(gpus), mig_strategy=strategy)


def _possible(name: str, mem: int, size: int, starts: Sequence[int], most: int) -> Possible:
    return Possible(name, mem, size, tuple(starts), most, mem * 1024)


H100_PROFILES = (
    _possible("1g.10gb", 9, 1, range(7), 7),
    _possible("1g.10gb+me", 9, 1, range(7), 1),
    _possible("1g.20gb", 19, 2, (0, 2, 4, 6), 4),
    _possible("2g.20gb", 19, 2, (0, 2, 4), 3),
    _possible("3g.40gb", 39, 4, (0, 4), 2),
    _possible("4g.40gb", 39, 4, (0,), 1),
    _possible("7g.80gb", 79, 8, (0,), 1),
)
"""What can be made of an H100 with 80 GB: NVIDIA Multi-Instance GPU User Guide."""


def divisible(found: Inventory, gpus: Sequence[int], profiles: Sequence[Possible] = H100_PROFILES) -> Inventory:
    """The same with these GPUs in MIG mode, of which instances are made on demand."""
    every = tuple(msgspec.structs.replace(gpu, health="mig") if gpu.index in gpus else gpu for gpu in found.gpus)
    layout = Layout(tuple(gpus), tuple(profiles))
    return msgspec.structs.replace(found, gpus=every, mig_layouts=(layout,))


def a_cut_node(name: str, *mems: int, instances: Mapping[int, Sequence[str]], single: bool = False) -> Node:
    """A node with these GPUs, some of which are cut into instances."""
    found = cut(an_inventory(*mems, node=name, models=["A100"] * len(mems)), instances, single=single)
    return a_node(name, annotations={names.GPUS: inventory.encode(found)})


def a_node(name: str, *mems: int, annotations: Mapping[str, str] | None = None, **fields: Any) -> Node:
    """A node with these GPUs (none: without inventory)."""
    written = dict(annotations or {})
    allocatable = fields.pop("allocatable", {"cpu": "64", "memory": "256Gi", "pods": "110"})
    if mems:
        written[names.GPUS] = inventory.encode(an_inventory(*mems, node=name, **fields))
    return decode_node(
        msgspec.json.encode(
            {
                "metadata": {"name": name, "uid": f"node-{name}", "annotations": written},
                "status": {"allocatable": allocatable, "capacity": allocatable},
            }
        )
    )


def a_container(name: str, mem: int = 0, slices: int = 0, whole: int = 0, **fields: Any) -> dict[str, Any]:
    """A container of a pod's JSON that asks this much."""
    asked = {names.GPU_MEM: mem, names.GPU_SLICE: slices, names.WHOLE_GPU: whole}
    limits = {key: str(amount) for key, amount in asked.items() if amount} | fields.pop("limits", {})
    return {"name": name, "resources": {"limits": limits, "requests": limits}, **fields}


def a_pod(
    name: str = "p",
    *,
    mem: int = 0,
    slices: int = 0,
    whole: int = 0,
    containers: Sequence[dict[str, Any]] | None = None,
    init: Sequence[dict[str, Any]] = (),
    annotations: Mapping[str, str] | None = None,
    node: str = "",
    phase: str = "Pending",
    **metadata: Any,
) -> Pod:
    """A pod whose one container `main` asks this, or one with these containers."""
    spec: dict[str, Any] = metadata.pop("spec", {})
    body = {
        "metadata": {
            "name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "1",
            "annotations": dict(annotations or {}), "managedFields": [MAKER], **metadata,
        },
        "spec": {
            "containers": list(containers or [a_container("main", mem, slices, whole)]),
            "initContainers": list(init),
            **({"nodeName": node} if node else {}),
            **spec,
        },
        "status": {"phase": phase},
    }  # fmt: skip
    return decode_pod(msgspec.json.encode(body))


def newer(metadata: ObjectMeta, **fields: Any) -> ObjectMeta:
    """The next version of an object's metadata, with these fields."""
    version = int(metadata.resource_version or 0) + 1
    return msgspec.structs.replace(metadata, resource_version=f"{version}", **fields)


def a_ref(pod: Pod) -> PodRef:
    """The reference of a pod."""
    return PodRef(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)


def an_allocation(**containers: Sequence[Share]) -> Allocation:
    """An allocation by container name."""
    return Allocation(1, 1024, 100, {name: tuple(shares) for name, shares in containers.items()})
