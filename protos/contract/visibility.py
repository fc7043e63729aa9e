"""Refusals of pods that request GPUs from the container runtime directly. Pure.

NVIDIA's runtime reads a container's GPUs from the variable NVIDIA_VISIBLE_DEVICES, from mounts below
/var/run/nvidia-container-devices and from annotations of CDI (NVIDIA container toolkit, internal/config/image). The
kubelet appends a pod's own variables to those of a device plugin, and the last of two equal names wins.
Other variables only select among the GPUs that a container already has: NVIDIA_DRIVER_CAPABILITIES,
CUDA_VISIBLE_DEVICES, NVIDIA_MIG_*. The admission policy gangshare-visibility has the same rules for all pods.

CUDA_VISIBLE_DEVICES counts a container's own GPUs from 0. CUDA stops at the first index that does not exist, so a first
index beyond them, like that of a free GPU of the node, hides every GPU, and many programs then run on the CPU.
"""

from __future__ import annotations

from collections.abc import Mapping

from protos.contract import names
from protos.contract.bounds import HUGE
from protos.contract.objects import Container, Pod
from protos.contract.reason import Reason
from protos.contract.selection import is_number

CUDA_DEVICES = "CUDA_VISIBLE_DEVICES"
CODE = "AskOwnDevices"
HARMLESS = ("", "none", "void")
"""Values that request no GPU: pods may set them."""
VARIABLES = frozenset({CUDA_DEVICES, names.VISIBLE_DEVICES})
"""The variables that are read here."""
_MARK = names.DEVICE_MOUNTS.rpartition("/")[2]
"""All spellings of the path have this word."""


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
        if source.prefix not in ("", names.VISIBLE_DEVICES) and names.VISIBLE_DEVICES.startswith(source.prefix):
            begins = f"container {name} has envFrom with a prefix that {names.VISIBLE_DEVICES} begins with"
            return Reason(CODE, f"{begins}: take another prefix, or none")
    for mount in container.volume_mounts:
        if _MARK in mount.mount_path:
            mounts = f"container {name} mounts a volume at {names.DEVICE_MOUNTS}"
            return Reason(CODE, f"{mounts}: leave it out, we choose the GPUs")
    return None
