"""What the kubelet is told of the GPUs that a container gets: environment, and device nodes where wanted. Pure.

Every resource of one container is answered alike: the kubelet merges the answers, and the first value of a variable
wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from protos.contract import names
from protos.contract.allocation import Share
from protos.contract.ask import ContainerAsk
from protos.contract.inventory import Gpu, Inventory
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as api

Strategy = Literal["envvar", "device-nodes"]
CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")


class Style(msgspec.Struct, frozen=True, kw_only=True):
    """How containers are told of their GPUs on this node."""

    strategy: Strategy = "envvar"
    control_nodes: tuple[str, ...] = ()
    """The driver's device nodes that this machine has, for `device-nodes`."""
    gpushare: bool = False
    no_isolation: bool = False
    """gpushare: the node's label switches cGPU isolation off."""


def answer(
    ask: ContainerAsk, shares: Sequence[Share], inventory: Inventory, style: Style
) -> api.ContainerAllocateResponse:
    """The answer for a container that gets these shares. Memory and slices are what it may use of each GPU."""
    gpus = {gpu.uuid: gpu for gpu in inventory.gpus}
    given = [gpus[share.uuid] for share in shares if share.uuid in gpus]
    envs = {
        names.VISIBLE_DEVICES: ",".join(share.uuid for share in shares),
        names.ENV_MEM_MIB: str(min((_mebibytes(share, gpus, inventory) for share in shares), default=0)),
        names.ENV_SLICES: str(min((share.slices for share in shares), default=0)),
    }
    if style.gpushare and ask.mem:
        envs |= _gpushare(ask, given)
        if style.no_isolation:
            envs[names.CGPU_DISABLE] = "true"
    nodes = [*style.control_nodes, *(f"/dev/nvidia{gpu.minor}" for gpu in given)]
    specs = [api.DeviceSpec(container_path=node, host_path=node, permissions="rw") for node in nodes]
    return api.ContainerAllocateResponse(envs=envs, devices=specs if style.strategy == "device-nodes" else [])


def _mebibytes(share: Share, gpus: dict[str, Gpu], inventory: Inventory) -> int:
    if share.whole and share.uuid in gpus:
        return gpus[share.uuid].mem_mib
    return share.mem * inventory.unit_mib


def _gpushare(ask: ContainerAsk, given: Sequence[Gpu]) -> dict[str, str]:
    """What gpushare's own plugin sets; the index is N of /dev/nvidiaN."""
    total = str(ask.mem * ask.gpus)
    return {
        names.ALIYUN_IDX: ",".join(str(gpu.minor) for gpu in given),
        names.ALIYUN_POD: total,
        names.ALIYUN_CONTAINER: total,
        names.ALIYUN_DEV: str(min((gpu.mem for gpu in given), default=0)),
    }
