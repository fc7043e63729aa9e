"""The answer to an Allocate: environment, device nodes, mounts, CDI devices, annotations of a container. Pure.

All resources of one container get the same answer: the kubelet merges the answers, and the first value of a variable
wins. A strategy is the way in which the container runtime learns the container's GPUs:

- `envvar`, `device-nodes`: the variable NVIDIA_VISIBLE_DEVICES, which a pod or an image may set as well.
- `volume-mounts`: mounts of /dev/null that are named after the GPUs; the variable names only their folder.
- `cdi-cri`: devices of the Container Device Interface, which the kubelet passes to the runtime.
- `cdi-annotations`: the same devices in an annotation of the container, for runtimes that read only that.

Sources: NVIDIA container toolkit (accept-nvidia-visible-devices-as-volume-mounts), k8s-device-plugin
(DEVICE_LIST_STRATEGY), cncf-tags/container-device-interface (SPEC.md, pkg/cdi/annotations.go).
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from protos.contract import names
from protos.contract.allocation import Share
from protos.contract.ask import ContainerAsk
from protos.contract.inventory import Gpu, Inventory
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as api

CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
NULL = "/dev/null"
VOID = "void"
CDI_ANNOTATION = f"{names.CDI_ANNOTATIONS}{names.PLUGIN}_gpus"
"""One key for all answers: of equal annotations the kubelet passes one, so that no device is brought twice."""


class Strategy(StrEnum):
    """How containers get their GPUs; the names are those of NVIDIA's plugin."""

    ENVVAR = "envvar"
    DEVICE_NODES = "device-nodes"
    VOLUME_MOUNTS = "volume-mounts"
    CDI_CRI = "cdi-cri"
    CDI_ANNOTATIONS = "cdi-annotations"

    @property
    def by_cdi(self) -> bool:
        """Whether each GPU must be a CDI device."""
        return self in (Strategy.CDI_CRI, Strategy.CDI_ANNOTATIONS)


class Style(msgspec.Struct, frozen=True, kw_only=True):
    """How this node answers Allocate."""

    strategy: Strategy = Strategy.ENVVAR
    control_nodes: tuple[str, ...] = ()
    """The driver's device nodes that this machine has."""
    cdi_kind: str = names.CDI_KIND
    """vendor/class of the GPUs' CDI devices."""
    gpushare: bool = False
    single: bool = False
    """A container may have at most one replica of a GPU."""


def answer(
    ask: ContainerAsk,
    shares: Sequence[Share],
    inventory: Inventory,
    style: Style,
    *,
    limit_mib: int = 0,
    no_isolation: bool = False,
    nodes: Mapping[str, Sequence[str]] | None = None,
    made: Mapping[str, Gpu] | None = None,
) -> api.ContainerAllocateResponse:
    """The answer for a container with these shares. Memory and slices are what it may use of each GPU.

    `limit_mib` is its memory limit on each GPU, 0 if it gets none. `no_isolation` says that the node's label switches
    off gpushare's cGPU isolation. `nodes` are the device nodes of MIG instances beside those of their GPUs. `made` are
    the instances that were made for it, by the names of their places.
    """
    places = [share.uuid for share in shares if made and share.uuid in made]
    if made and places:
        real = {name: gpu.uuid for name, gpu in made.items()}
        shares = [msgspec.structs.replace(share, uuid=real.get(share.uuid, share.uuid)) for share in shares]
    gpus = {gpu.uuid: gpu for gpu in (*inventory.gpus, *(made or {}).values())}
    uuids = list(dict.fromkeys(share.uuid for share in shares))
    found = api.ContainerAllocateResponse(
        envs={
            names.VISIBLE_DEVICES: ",".join(uuids),
            names.ENV_UUIDS: ",".join(uuids),
            names.ENV_MEM_MIB: str(min((_mebibytes(share, gpus, inventory) for share in shares), default=0)),
            names.ENV_SLICES: str(min((share.slices for share in shares), default=0)),
        }
    )
    if places:
        found.envs[names.ENV_PLACES] = ",".join(places)
    if limit_mib:  # the toolkit's hook does nothing unless both are set
        found.envs.update({names.MEMORY_REQUEST: str(limit_mib), names.MEMORY_LIMIT: str(limit_mib)})
    match style.strategy:
        case Strategy.DEVICE_NODES:
            own = (f"/dev/nvidia{gpus[uuid].minor}" for uuid in uuids if uuid in gpus)
            parts = (node for uuid in uuids for node in (nodes or {}).get(uuid, ()))
            for node in dict.fromkeys((*style.control_nodes, *own, *parts)):
                found.devices.add(container_path=node, host_path=node, permissions="rw")
        case Strategy.VOLUME_MOUNTS:
            found.envs[names.VISIBLE_DEVICES] = names.DEVICE_MOUNTS
            for uuid in uuids:
                found.mounts.add(container_path=f"{names.DEVICE_MOUNTS}/{uuid}", host_path=NULL)
        case Strategy.CDI_CRI:
            found.envs[names.VISIBLE_DEVICES] = VOID
            for uuid in uuids:
                found.cdi_devices.add(name=f"{style.cdi_kind}={uuid}")
        case Strategy.CDI_ANNOTATIONS:
            found.envs[names.VISIBLE_DEVICES] = VOID
            found.annotations[CDI_ANNOTATION] = ",".join(f"{style.cdi_kind}={uuid}" for uuid in uuids)
    if style.gpushare and ask.mem:
        found.envs.update(_gpushare(ask, [gpus[share.uuid] for share in shares if share.uuid in gpus]))
        if no_isolation:
            found.envs[names.CGPU_DISABLE] = "true"
    return found


def _mebibytes(share: Share, gpus: dict[str, Gpu], inventory: Inventory) -> int:
    if share.whole and share.uuid in gpus:
        return gpus[share.uuid].mem_mib
    return share.mem * inventory.unit_mib


def _gpushare(ask: ContainerAsk, gpus: Sequence[Gpu]) -> dict[str, str]:
    """The variables that gpushare's own plugin sets; the index is N of /dev/nvidiaN."""
    total = str(ask.mem * ask.gpus)
    return {
        names.ALIYUN_IDX: ",".join(str(gpu.minor) for gpu in gpus),
        names.ALIYUN_POD: total,
        names.ALIYUN_CONTAINER: total,
        names.ALIYUN_DEV: str(min((gpu.mem for gpu in gpus), default=0)),
    }
