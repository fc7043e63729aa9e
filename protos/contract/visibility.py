"""Refusals of pods that request GPUs from the container runtime directly, or set their own limits. Pure.

NVIDIA's runtime reads a container's GPUs from the variable NVIDIA_VISIBLE_DEVICES, from mounts below
/var/run/nvidia-container-devices and from annotations of CDI (NVIDIA container toolkit, internal/config/image). The
kubelet appends a pod's own variables to those of a device plugin, and the last of two equal names wins.
Other variables only select among the GPUs that a container already has: NVIDIA_DRIVER_CAPABILITIES,
CUDA_VISIBLE_DEVICES, NVIDIA_MIG_*. The admission policy gangshare-visibility has the same rules for all pods.

CUDA_VISIBLE_DEVICES counts a container's own GPUs from 0. CUDA stops at the first index that does not exist, so a first
index beyond them, like that of a free GPU of the node, hides every GPU, and many programs then run on the CPU.

The limits of a container are variables, too: NVIDIA_GPU_MEMORY_REQUEST and _LIMIT for the toolkit, CUDA_MPS_* for a
client of MPS, CUDA_DEVICE_* and some more for a library in the container. Whole GPUs have none, but a node may serve
them as replicas, which have memory limits. So the others are refused beside parts, those of the toolkit beside any GPU.
Pods may run their own MPS, or their own library, on whole GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from protos.contract import names
from protos.contract.bounds import HUGE
from protos.contract.objects import Container, Pod
from protos.contract.printable import brief
from protos.contract.reason import Reason
from protos.contract.selection import is_number

CUDA_DEVICES = "CUDA_VISIBLE_DEVICES"
CODE = "AskOwnDevices"
HARMLESS = ("", "none", "void")
"""Values that request no GPU: pods may set them."""
LIMITS_CODE = "AskOwnLimits"
SHOWN = 63
"""Characters of a variable that a sentence shows."""
_LIMITS = (names.MEMORY_REQUEST, names.MEMORY_LIMIT)
_OF_PARTS = (names.MPS_VARIABLES, *names.LIBRARY_VARIABLES)
"""How variables begin that limit parts."""
_MARK = names.DEVICE_MOUNTS.rpartition("/")[2]
"""All spellings of the path have this word."""


def reads(variable: str) -> bool:
    """Whether a variable of this name is read here."""
    known = (CUDA_DEVICES, names.VISIBLE_DEVICES, *_LIMITS, *names.LIBRARY_SWITCHES)
    return variable in known or variable.startswith(_OF_PARTS)


def refused(pod: Pod, gpus: Mapping[str, int], *, parts: bool) -> Reason | None:
    """The refusal of a pod that asks for GPUs, None if it does neither.

    `gpus`: their numbers by container; `parts`: some are parts of GPUs.
    """
    return forged(pod) or hidden(pod, gpus) or limited(pod, parts=parts)


def limited(pod: Pod, *, parts: bool) -> Reason | None:
    """The refusal of a pod with GPUs that limits itself; with `parts`, also by MPS or a library."""
    variables = (*_LIMITS, *names.LIBRARY_SWITCHES) if parts else _LIMITS
    families = _OF_PARTS if parts else ()
    for container in (*pod.spec.init_containers, *pod.spec.containers, *pod.spec.ephemeral_containers):
        for name in (variable.name for variable in container.env):
            if name in variables or name.startswith(families):
                sets = f"container {container.name} sets {brief(name, SHOWN)} itself"
                return Reason(LIMITS_CODE, f"{sets}: leave it out, Gangshare sets it")
        if any(source.prefix and _leads(source.prefix, variables, families) for source in container.env_from):
            begins = f"container {container.name} has envFrom with a prefix that variables of its limits begin with"
            return Reason(LIMITS_CODE, f"{begins}: take another prefix, or none")
    return None


def _leads(prefix: str, variables: Iterable[str], families: Iterable[str]) -> bool:
    """Whether a prefix and a key together may be one of these variables, or begin with one of the `families`."""
    whole = any(name.startswith(prefix) and name != prefix for name in variables)
    return whole or any(start.startswith(prefix) or prefix.startswith(start) for start in families)


def forged(pod: Pod) -> Reason | None:
    """The refusal of a pod that requests GPUs from the runtime directly, None for other pods."""
    spec = pod.spec
    if any(key.startswith(names.CDI_ANNOTATIONS) for key in pod.metadata.annotations):
        return Reason(CODE, f"the pod has annotations {names.CDI_ANNOTATIONS}*: leave them out, we choose the devices")
    containers = (*spec.init_containers, *spec.containers, *spec.ephemeral_containers)
    return next((found for found in map(_forged, containers) if found is not None), None)


def hidden(pod: Pod, gpus: Mapping[str, int]) -> Reason | None:
    """The refusal of a pod that hides the GPUs of a container from its program. `gpus`: their numbers by container."""
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        for variable in container.env:
            first = (variable.value or "").partition(",")[0].strip()
            if variable.name == CUDA_DEVICES and is_number(first) and int(first) >= gpus.get(container.name, HUGE):
                last = gpus[container.name] - 1
                return Reason(
                    CODE,
                    f"container {container.name} sets {CUDA_DEVICES} to {first}, which hides its GPUs: "
                    f"they are {f'0 to {last}' if last else '0'} inside the container, whichever we choose",
                )
    return None


def _forged(container: Container) -> Reason | None:
    name = container.name
    for variable in container.env:
        if variable.name == names.VISIBLE_DEVICES and (variable.value_from or (variable.value or "") not in HARMLESS):
            return Reason(CODE, f"container {name} sets {names.VISIBLE_DEVICES} itself: leave it out, we set it")
    for source in container.env_from:
        # A prefix and a key together may be the name. Without a prefix the policy refuses the ConfigMap or Secret.
        if source.prefix and _leads(source.prefix, (names.VISIBLE_DEVICES,), ()):
            begins = f"container {name} has envFrom with a prefix that {names.VISIBLE_DEVICES} begins with"
            return Reason(CODE, f"{begins}: take another prefix, or none")
    for mount in container.volume_mounts:
        if _MARK in mount.mount_path:
            mounts = f"container {name} mounts a volume at {names.DEVICE_MOUNTS}"
            return Reason(CODE, f"{mounts}: leave it out, we choose the GPUs")
    return None
