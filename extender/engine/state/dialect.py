"""The annotations of a Binding."""

from __future__ import annotations

from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.types.settings import Settings
from protos.contract import names


def of_binding(pod: PodState, node: NodeState, settings: Settings, wall_ns: int) -> dict[str, str]:
    """The annotations of the pod's Binding: the allocation, and in gpushare mode gpushare's five.

    gpushare has one GPU per pod: IDX is its minor number, DEV its units, POD the pod's units in sum.
    Source: AliyunContainerService/gpushare-scheduler-extender, pkg/utils/pod.go.
    """
    assert pod.text is not None
    assert pod.allocation is not None
    annotations = {names.ALLOCATION: pod.text}
    shares = [share for given in pod.allocation.containers.values() for share in given]
    if settings.gpushare and node.books is not None and len({share.uuid for share in shares}) == 1:
        gpu = node.books.gpus[shares[0].uuid].gpu
        annotations |= {
            names.ALIYUN_IDX: str(gpu.minor),
            names.ALIYUN_POD: str(sum(share.mem for share in shares)),
            names.ALIYUN_DEV: str(gpu.mem),
            names.ALIYUN_ASSUME_TIME: str(wall_ns),
            names.ALIYUN_ASSIGNED: "false",
        }
    return annotations
