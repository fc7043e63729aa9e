"""Machines, inventories and pods for the plugin's tests."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from deviceplugin import devices
from deviceplugin.candidates import Listed
from deviceplugin.devices import Sharing
from deviceplugin.isolation.levels import Mode
from deviceplugin.isolation.probe import Probe
from deviceplugin.isolation.watch import Watch
from deviceplugin.machine import Gpu, Machine
from protos.contract import allocation, codec, mig, names, objects
from protos.contract.allocation import Allocation, Share
from protos.contract.inventory import Inventory

KEYS = {"mem": names.GPU_MEM, "slices": names.GPU_SLICE, "whole": names.WHOLE_GPU, "shared": names.SHARED_GPU}
KEYS["small"] = "nvidia.com/mig-1g.10gb"


def a_gpu(index: int = 0, mem: int = 16, **more: Any) -> Gpu:
    return Gpu(**{"index": index, "minor": index, "uuid": f"GPU-{index}", "mem_mib": mem * 1024, **more})


def a_machine(*mems: int, links: tuple[tuple[int, int, str], ...] = (), **more: Any) -> Machine:
    """A machine with one GPU for each amount of memory (four of 16 GiB)."""
    return Machine(gpus=tuple(a_gpu(i, mem, **more) for i, mem in enumerate(mems or (16,) * 4)), links=links)


def an_inventory(*mems: int, sharing: Sharing | None = None, health: dict[str, str] | None = None) -> Inventory:
    return devices.inventory(a_machine(*mems), health or {}, sharing or Sharing())


def a_watch(
    mode: Mode = Mode.OFF,
    groups: Path = Path("/nowhere"),
    tell: Callable[[str, str, Any], Awaitable[None]] | None = None,
) -> Watch:
    """The isolation of a node whose control groups are in this folder; by default none is asked for."""

    async def untold(_reason: str, _message: str, _kind: str) -> None:
        return

    return Watch(mode, Probe(groups, None, ""), tell or untold)


def a_container(name: str = "main", **limits: int) -> dict[str, Any]:
    """`mem`, `slices`, `whole` and `shared` are known by these names."""
    return {"name": name, "resources": {"limits": {KEYS[key]: str(amount) for key, amount in limits.items()}}}


def a_sidecar(name: str = "side", **limits: int) -> dict[str, Any]:
    return {**a_container(name, **limits), "restartPolicy": "Always"}


def a_pod(
    name: str = "p",
    *containers: dict[str, Any],
    init: tuple[dict[str, Any], ...] = (),
    annotations: dict[str, str] | None = None,
    phase: str = "Pending",
    running: tuple[str, ...] = (),
    uid: str = "",
    **meta: Any,
) -> objects.Pod:
    """A pod whose UID is `uid-<name>`; `running` names containers that run."""
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": uid or f"uid-{name}",
        "annotations": annotations or {},
        **meta,
    }
    statuses = [{"name": container, "state": {"running": {}}} for container in running]
    spec = {"nodeName": "n", "containers": list(containers) or [a_container(mem=4)], "initContainers": list(init)}
    pod = {"metadata": metadata, "spec": spec, "status": {"phase": phase, "containerStatuses": statuses}}
    return objects.decode_pod(msgspec.json.encode(pod))


def placed(inventory: Inventory | None = None, **gpus: tuple[int, ...]) -> dict[str, str]:
    """The annotation that puts each container on these GPUs."""
    return {names.ALLOCATION: allocation.encode(an_allocation(inventory, **gpus))}


def an_allocation(inventory: Inventory | None = None, **gpus: tuple[int, ...]) -> Allocation:
    containers = {name: tuple(Share(f"GPU-{i}", i, 0) for i in indexes) for name, indexes in gpus.items()}
    return Allocation(v=codec.VERSION, unit_mib=1024, slices_per_gpu=100, containers=containers)


def listed(name: str, *, namespace: str = "default", **containers: dict[str, tuple[str, ...]]) -> Listed:
    """A pod in PodResources List: `listed("p", main={"mem": ("id",)})`; an empty dict means no devices."""
    held = {container: {KEYS[key]: frozenset(ids) for key, ids in by.items()} for container, by in containers.items()}
    return Listed((namespace, name), held)


def an_instance(gpu: int = 0, place: int = 0, profile: str = "1g.10gb", **more: Any) -> Gpu:
    """A MIG instance of GPU-<gpu>."""
    found = mig.profile(profile)
    assert found is not None
    fields = {
        "index": mig.index(gpu, place),
        "minor": gpu,
        "uuid": f"MIG-{gpu}-{place}",
        "mem_mib": found.memory_gb * 1024 - 512,
        "profile": profile,
        "parent": f"GPU-{gpu}",
    }
    return Gpu(**{**fields, **more})


def a_split_machine(*profiles: str, gpus: int = 1, whole: int = 0) -> Machine:
    """GPUs in MIG mode that have instances of these profiles each, and `whole` GPUs after them."""
    cards = tuple(a_gpu(i, 80, mig=i < gpus) for i in range(gpus + whole))
    instances = (an_instance(i, place, profile) for i in range(gpus) for place, profile in enumerate(profiles))
    return Machine(gpus=(*cards, *instances))
