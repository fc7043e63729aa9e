"""The annotations of gpushare's plugin."""

from deviceplugin import gpushare
from protos.contract.allocation import Share
from tests.unit.deviceplugin.builders import an_inventory

SHARES = {"main": (Share("GPU-2", 2, 4),), "side": (Share("GPU-2", 2, 1),)}


def test_a_pod_that_was_given_its_gpu_is_marked_assigned() -> None:
    placed = {"ALIYUN_COM_GPU_MEM_IDX": "2", "ALIYUN_COM_GPU_MEM_POD": "5", "ALIYUN_COM_GPU_MEM_ASSIGNED": "false"}
    assert gpushare.assigned(placed, SHARES, an_inventory(), 77) == {
        "ALIYUN_COM_GPU_MEM_IDX": "2",
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
        "ALIYUN_COM_GPU_MEM_POD": "5",
        "ALIYUN_COM_GPU_MEM_DEV": "16",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "77",
    }


def test_a_pod_that_is_marked_already_is_left_alone() -> None:
    marked = {"ALIYUN_COM_GPU_MEM_IDX": "2", "ALIYUN_COM_GPU_MEM_ASSIGNED": "true"}
    assert gpushare.assigned(marked, SHARES, an_inventory(), 77) == {}


def test_a_pod_on_another_gpu_is_marked_again() -> None:
    marked = {"ALIYUN_COM_GPU_MEM_IDX": "1", "ALIYUN_COM_GPU_MEM_ASSIGNED": "true"}
    assert gpushare.assigned(marked, SHARES, an_inventory(), 77)["ALIYUN_COM_GPU_MEM_IDX"] == "2"


def test_whole_gpus_get_no_gpushare_annotations() -> None:
    assert gpushare.assigned({}, {"main": (Share("GPU-2", 2, 16, 100, True),)}, an_inventory(), 77) == {}
