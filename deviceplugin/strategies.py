"""By which way the container runtime is told of a container's GPUs: one strategy per way. Pure.

`envvar` and `device-nodes`: the variable NVIDIA_VISIBLE_DEVICES, which a pod or an image may set as well.
`volume-mounts`: mounts of /dev/null whose names are the GPUs'; the variable says no more than where they are.
`cdi-cri`: devices of the Container Device Interface, which the kubelet hands to the runtime by themselves.
Sources: NVIDIA container toolkit (accept-nvidia-visible-devices-as-volume-mounts), k8s-device-plugin
(DEVICE_LIST_STRATEGY), cncf-tags/container-device-interface.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

import msgspec

from protos.contract import names

CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
NULL = "/dev/null"
VOID = "void"
Gpus = Mapping[str, int | None]
"""N of /dev/nvidiaN by UUID, in the container's order; None where the machine does not show the GPU."""


class Strategy(StrEnum):
    """How containers get their GPUs; the names are those of NVIDIA's plugin."""

    ENVVAR = "envvar"
    DEVICE_NODES = "device-nodes"
    VOLUME_MOUNTS = "volume-mounts"
    CDI_CRI = "cdi-cri"


class Host(msgspec.Struct, frozen=True):
    """What of this node the strategies need."""

    control_nodes: tuple[str, ...] = ()
    """The driver's device nodes that the machine has."""
    cdi_kind: str = names.CDI_KIND
    """vendor/class of the GPUs' CDI devices."""


class Told(msgspec.Struct, frozen=True):
    """What the runtime is told."""

    visible: str
    """The value of NVIDIA_VISIBLE_DEVICES."""
    nodes: tuple[str, ...] = ()
    """Device nodes, the same path on both sides."""
    null_mounts: tuple[str, ...] = ()
    """Paths in the container at which /dev/null is mounted."""
    cdi: tuple[str, ...] = ()
    """Fully qualified names of CDI devices."""


def told(strategy: Strategy, gpus: Gpus, host: Host) -> Told:
    """What the runtime is told of these GPUs."""
    return _WAYS[strategy](gpus, host)


def _by_variable(gpus: Gpus, _host: Host) -> Told:
    return Told(",".join(gpus))


def _by_nodes(gpus: Gpus, host: Host) -> Told:
    own = (f"/dev/nvidia{minor}" for minor in gpus.values() if minor is not None)
    return Told(",".join(gpus), nodes=(*host.control_nodes, *own))


def _by_mounts(gpus: Gpus, _host: Host) -> Told:
    return Told(names.DEVICE_MOUNTS, null_mounts=tuple(f"{names.DEVICE_MOUNTS}/{uuid}" for uuid in gpus))


def _by_cdi(gpus: Gpus, host: Host) -> Told:
    return Told(VOID, cdi=tuple(f"{host.cdi_kind}={uuid}" for uuid in gpus))


_WAYS: Mapping[Strategy, Callable[[Gpus, Host], Told]] = {
    Strategy.ENVVAR: _by_variable,
    Strategy.DEVICE_NODES: _by_nodes,
    Strategy.VOLUME_MOUNTS: _by_mounts,
    Strategy.CDI_CRI: _by_cdi,
}
