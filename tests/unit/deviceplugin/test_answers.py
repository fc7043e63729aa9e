"""The answer to an Allocate."""

import re

import pytest

from deviceplugin.answers import CDI_ANNOTATION, Strategy, Style, answer
from deviceplugin.devices import Sharing
from protos.contract import names
from protos.contract.allocation import Share
from protos.contract.ask import ContainerAsk
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as api
from tests.unit.deviceplugin.builders import an_inventory

ASK = ContainerAsk(name="main", gpus=1, mem=4, slices=25)


def test_environment_of_a_share() -> None:
    envs = answer(ASK, [Share("GPU-2", 2, 4, 25)], an_inventory(), Style()).envs
    assert envs == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-2",
        "GANGSHARE_GPU_UUIDS": "GPU-2",
        "GANGSHARE_GPU_MEM_MIB": "4096",
        "GANGSHARE_GPU_SLICES": "25",
    }


def test_amounts_are_for_each_gpu() -> None:
    envs = answer(ASK, [Share("GPU-1", 1, 4, 25), Share("GPU-3", 3, 4, 25)], an_inventory(), Style()).envs
    assert envs["NVIDIA_VISIBLE_DEVICES"] == "GPU-1,GPU-3"
    assert envs["GANGSHARE_GPU_MEM_MIB"] == "4096"


def test_of_unequal_gpus_the_amount_that_holds_on_each() -> None:
    sharing = Sharing()
    inventory = an_inventory(16, 40, sharing=sharing)
    shares = [Share("GPU-0", 0, 4, 25), Share("GPU-1", 1, 10, 25)]
    assert answer(ASK, shares, inventory, Style()).envs["GANGSHARE_GPU_MEM_MIB"] == "4096"


def test_a_whole_gpu_has_all_its_memory_to_the_mebibyte() -> None:
    sharing = Sharing(unit_mib=3000)
    inventory = an_inventory(16, sharing=sharing)
    ask = ContainerAsk(name="main", gpus=1, whole=names.WHOLE_GPU)
    envs = answer(ask, [Share("GPU-0", 0, 5, 100, True)], inventory, Style()).envs
    assert (envs["GANGSHARE_GPU_MEM_MIB"], envs["GANGSHARE_GPU_SLICES"]) == ("16384", "100")


def told(strategy: Strategy, *shares: Share) -> api.ContainerAllocateResponse:
    style = Style(strategy=strategy, control_nodes=("/dev/nvidiactl",), cdi_kind="vendor.com/gpu")
    return answer(ASK, shares or [Share("GPU-1", 1, 4, 25), Share("GPU-3", 3, 4, 25)], an_inventory(), style)


def fields(found: api.ContainerAllocateResponse) -> set[str]:
    return {field.name for field, _ in found.ListFields()}


@pytest.mark.parametrize("strategy", Strategy)
def test_by_whatever_way_the_environment_names_the_gpus_and_the_amounts(strategy: Strategy) -> None:
    assert {key: value for key, value in told(strategy).envs.items() if key.startswith("GANGSHARE")} == {
        "GANGSHARE_GPU_UUIDS": "GPU-1,GPU-3",
        "GANGSHARE_GPU_MEM_MIB": "4096",
        "GANGSHARE_GPU_SLICES": "25",
    }


def test_device_nodes_are_listed_where_wanted() -> None:
    found = told(Strategy.DEVICE_NODES, Share("GPU-2", 2, 4, 25))
    assert [(d.container_path, d.host_path, d.permissions) for d in found.devices] == [
        ("/dev/nvidiactl", "/dev/nvidiactl", "rw"),
        ("/dev/nvidia2", "/dev/nvidia2", "rw"),
    ]
    assert found.envs["NVIDIA_VISIBLE_DEVICES"] == "GPU-2"
    assert fields(found) == {"envs", "devices"}


def test_by_volume_mounts_each_gpu_is_the_name_of_a_mount() -> None:
    found = told(Strategy.VOLUME_MOUNTS)
    assert found.envs["NVIDIA_VISIBLE_DEVICES"] == "/var/run/nvidia-container-devices"
    assert [(mount.container_path, mount.host_path) for mount in found.mounts] == [
        ("/var/run/nvidia-container-devices/GPU-1", "/dev/null"),
        ("/var/run/nvidia-container-devices/GPU-3", "/dev/null"),
    ]
    assert fields(found) == {"envs", "mounts"}


def test_by_cdi_each_gpu_is_a_device_of_its_kind_and_the_variable_shows_none() -> None:
    found = told(Strategy.CDI_CRI)
    assert found.envs["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert [device.name for device in found.cdi_devices] == ["vendor.com/gpu=GPU-1", "vendor.com/gpu=GPU-3"]
    assert fields(found) == {"envs", "cdi_devices"}


def test_by_annotations_the_cdi_devices_stand_under_one_key_for_every_resource_of_the_container() -> None:
    found = told(Strategy.CDI_ANNOTATIONS)
    assert found.envs["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert found.annotations == {"cdi.k8s.io/gangshare-plugin_gpus": "vendor.com/gpu=GPU-1,vendor.com/gpu=GPU-3"}
    assert fields(found) == {"envs", "annotations"}
    assert told(Strategy.CDI_ANNOTATIONS) == found


def test_the_key_of_the_annotation_is_one_that_runtimes_take() -> None:
    """As pkg/cdi/annotations.go of container-device-interface checks it; so does the key of a Kubernetes object."""
    prefix, _, name = CDI_ANNOTATION.partition("/")
    assert f"{prefix}/" == "cdi.k8s.io/"
    assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?", name)
    assert len(name) <= 63


@pytest.mark.parametrize("strategy", Strategy)
def test_a_gpu_that_the_machine_does_not_show_is_named_all_the_same(strategy: Strategy) -> None:
    found = told(strategy, Share("GPU-9", 9, 4, 25))
    assert "GPU-9" in str(found), "the runtime refuses it, rather than start the container with too few"


def test_gpushare_environment_beside_ours() -> None:
    ask, shares = ContainerAsk(name="main", gpus=1, mem=4), [Share("GPU-2", 2, 4)]
    envs = answer(ask, shares, an_inventory(), Style(gpushare=True), no_isolation=True).envs
    assert envs["NVIDIA_VISIBLE_DEVICES"] == "GPU-2"
    assert {key: value for key, value in envs.items() if key.startswith(("ALIYUN", "CGPU"))} == {
        "ALIYUN_COM_GPU_MEM_IDX": "2",
        "ALIYUN_COM_GPU_MEM_POD": "4",
        "ALIYUN_COM_GPU_MEM_CONTAINER": "4",
        "ALIYUN_COM_GPU_MEM_DEV": "16",
        "CGPU_DISABLE": "true",
    }
