"""The ways by which a pod could name GPUs to the container runtime itself, and the sentence for each. Pure.

NVIDIA's runtime reads a container's GPUs from the variable NVIDIA_VISIBLE_DEVICES, from mounts below
/var/run/nvidia-container-devices and from annotations of CDI (NVIDIA container toolkit, internal/config/image). The
kubelet puts a pod's own variables behind those of a device plugin, and of two with one name the last wins.
Other variables choose among the GPUs that a container has already: NVIDIA_DRIVER_CAPABILITIES, CUDA_VISIBLE_DEVICES,
NVIDIA_MIG_*. The admission policy gangshare-visibility says the same of every pod of the cluster.
"""

from __future__ import annotations

from protos.contract import names
from protos.contract.objects import Container, EnvVar, Pod
from protos.contract.reason import Reason

HARMLESS = ("", "none", "void")
"""Values that show no GPU: a pod may say so itself."""
_MARK = names.DEVICE_MOUNTS.rpartition("/")[2]
"""A path can be written in many ways: each has this word."""


def forged(pod: Pod) -> Reason | None:
    """Why a pod that names GPUs to the runtime itself is refused, None if it does not. Each case has one sentence."""
    spec = pod.spec
    every = (*spec.init_containers, *spec.containers, *spec.ephemeral_containers)
    for key in pod.metadata.annotations:
        if key.startswith(names.CDI_ANNOTATIONS):
            sentence = f"the pod has annotations {names.CDI_ANNOTATIONS}*: leave them out, we choose the devices"
            return Reason("AskOwnDevices", sentence)
    for container in every:
        if sentence := _forged(container):
            return Reason("AskOwnDevices", sentence)
    return None


def _forged(container: Container) -> str:
    for variable in container.env:
        if variable.name == names.VISIBLE_DEVICES and not _harmless(variable):
            return f"container {container.name} sets {names.VISIBLE_DEVICES} itself: leave it out, we set it"
    for source in container.env_from:
        if _splits(source.prefix):
            return (
                f"container {container.name} has envFrom with a prefix that {names.VISIBLE_DEVICES} begins with: "
                "take another prefix, or none"
            )
    for mount in container.volume_mounts:
        if _MARK in mount.mount_path:
            return (
                f"container {container.name} mounts a volume at {names.DEVICE_MOUNTS}: leave it out, we choose the GPUs"
            )
    return ""


def _splits(prefix: str) -> bool:
    """Whether this and some key of a ConfigMap together are the variable's name.

    Without a prefix the key is the whole name: no ConfigMap and no Secret may have that, says the policy.
    """
    return prefix not in ("", names.VISIBLE_DEVICES) and names.VISIBLE_DEVICES.startswith(prefix)


def _harmless(variable: EnvVar) -> bool:
    return variable.value_from is None and (variable.value or "") in HARMLESS
