"""The annotations that gpushare's own plugin writes, for clients that read them. Pure.

Source: AliyunContainerService/gpushare-device-plugin, pkg/gpu/nvidia.
"""

from collections.abc import Mapping, Sequence

from protos.contract import names
from protos.contract.allocation import Share
from protos.contract.inventory import Inventory


def assigned(
    annotations: Mapping[str, str], shares: Mapping[str, Sequence[Share]], inventory: Inventory, now_ns: int
) -> dict[str, str]:
    """The annotations to write on a pod whose containers have these shares; none if the pod has them already."""
    gpus = {gpu.uuid: gpu for gpu in inventory.gpus}
    held = {share.uuid for given in shares.values() for share in given if share.mem and not share.whole}
    minors = sorted(gpus[uuid].minor for uuid in held if uuid in gpus)
    if not minors:
        return {}
    assigned = {names.ALIYUN_IDX: ",".join(map(str, minors)), names.ALIYUN_ASSIGNED: "true"}
    if assigned.items() <= annotations.items():
        return {}
    total = sum(share.mem for given in shares.values() for share in given)
    return {
        **assigned,
        names.ALIYUN_POD: annotations.get(names.ALIYUN_POD, str(total)),
        names.ALIYUN_DEV: str(min(gpus[uuid].mem for uuid in held if uuid in gpus)),
        names.ALIYUN_ASSUME_TIME: str(now_ns),
    }
