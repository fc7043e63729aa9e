"""What the kubelet is told of the GPUs that a container gets: environment, device nodes, mounts, CDI devices. Pure.

Every resource of one container is answered alike: the kubelet merges the answers, and the first value of a variable
wins.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from deviceplugin import strategies
from deviceplugin.strategies import Host, Strategy
from protos.contract import names
from protos.contract.allocation import Share
from protos.contract.ask import ContainerAsk
from protos.contract.inventory import Gpu, Inventory
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as api


class Style(msgspec.Struct, frozen=True, kw_only=True):
    """How containers are told of their GPUs on this node."""

    strategy: Strategy = Strategy.ENVVAR
    host: Host = Host()
    gpushare: bool = False
    no_isolation: bool = False
    """gpushare: the node's label switches cGPU isolation off."""


def answer(
    ask: ContainerAsk, shares: Sequence[Share], inventory: Inventory, style: Style
) -> api.ContainerAllocateResponse:
    """The answer for a container that gets these shares. Memory and slices are what it may use of each GPU."""
    gpus = {gpu.uuid: gpu for gpu in inventory.gpus}
    given = [gpus[share.uuid] for share in shares if share.uuid in gpus]
    minors = {share.uuid: gpus[share.uuid].minor if share.uuid in gpus else None for share in shares}
    told = strategies.told(style.strategy, minors, style.host)
    envs = {
        names.VISIBLE_DEVICES: told.visible,
        names.ENV_UUIDS: ",".join(minors),
        names.ENV_MEM_MIB: str(min((_mebibytes(share, gpus, inventory) for share in shares), default=0)),
        names.ENV_SLICES: str(min((share.slices for share in shares), default=0)),
    }
    if style.gpushare and ask.mem:
        envs |= _gpushare(ask, given)
        if style.no_isolation:
            envs[names.CGPU_DISABLE] = "true"
    return api.ContainerAllocateResponse(
        envs=envs,
        devices=[api.DeviceSpec(container_path=node, host_path=node, permissions="rw") for node in told.nodes],
        mounts=[api.Mount(container_path=path, host_path=strategies.NULL) for path in told.null_mounts],
        cdi_devices=[api.CDIDevice(name=name) for name in told.cdi],
    )


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
