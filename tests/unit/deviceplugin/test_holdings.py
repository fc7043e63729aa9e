"""What dcgm-exporter is told of the containers' GPUs, and what it makes of that."""

from __future__ import annotations

from typing import Any

import pytest

from deviceplugin import holdings
from deviceplugin.devices import Sharing
from protos.contract import names
from protos.contract.inventory import Inventory
from protos.contract.objects import Pod
from protos.kubelet.podresources.v1 import podresources_v1_pb2 as api
from tests.unit.deviceplugin.builders import a_container, a_pod, a_sidecar, an_inventory, placed
from tests.unit.deviceplugin.dcgm_exporter import Series, series

R = names.Resources()
MIG_RESOURCE = "nvidia.com/mig-1g.10gb"


def ids(pod: Pod, inventory: Inventory | None = None, **given: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    return dict(holdings.ids(pod, given, inventory or an_inventory(), R))


def listed(name: str, **containers: dict[str, list[str]]) -> api.PodResources:
    """A pod as the kubelet lists it: the device IDs of each container by resource, one entry for each."""
    return api.PodResources(
        namespace="default",
        name=name,
        containers=[
            api.ContainerResources(
                name=container,
                devices=[
                    api.ContainerDevices(resource_name=resource, device_ids=[device])
                    for resource, devices in by.items()
                    for device in devices
                ],
            )
            for container, by in containers.items()
        ],
    )


def devices(pod: api.PodResources, container: str = "main") -> list[tuple[str, str]]:
    (found,) = [each for each in pod.containers if each.name == container]
    return [(entry.resource_name, device) for entry in found.devices for device in entry.device_ids]


def test_a_part_is_named_after_its_container_and_a_whole_gpu_is_its_uuid() -> None:
    assert ids(a_pod("p", a_container(mem=4)), main=("GPU-2",)) == {"main": ("GPU-2::main",)}
    assert ids(a_pod("p", a_container(slices=5)), main=("GPU-2",)) == {"main": ("GPU-2::main",)}
    assert ids(a_pod("p", a_container(whole=2)), main=("GPU-3", "GPU-1")) == {"main": ("GPU-3", "GPU-1")}


def test_a_gpu_is_one_device_of_the_container_whatever_the_container_asks_of_it() -> None:
    both = a_pod("p", a_container(mem=8, slices=20), annotations={names.GPU_COUNT: "2"})
    assert ids(both, main=("GPU-0", "GPU-1")) == {"main": ("GPU-0::main", "GPU-1::main")}
    assert ids(both, main=("GPU-0", "GPU-0")) == {"main": ("GPU-0::main",)}


def test_a_replica_is_a_part() -> None:
    replicas = an_inventory(16, 16, sharing=Sharing(replicas={names.WHOLE_GPU: 4}))
    assert ids(a_pod("p", a_container(whole=1)), replicas, main=("GPU-1",)) == {"main": ("GPU-1::main",)}


def test_sidecars_are_told_and_init_containers_are_not() -> None:
    pod = a_pod("p", a_container("a", mem=4), init=(a_container("i", mem=4), a_sidecar("s", mem=4)))
    given: dict[str, Any] = {"a": ("GPU-0",), "i": ("GPU-0",), "s": ("GPU-1",)}
    assert ids(pod, **given) == {"a": ("GPU-0::a",), "s": ("GPU-1::s",)}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_ended_has_nothing(phase: str) -> None:
    assert ids(a_pod("p", a_container(mem=4), phase=phase), main=("GPU-0",)) == {}


def test_a_pod_that_was_given_nothing_has_nothing_until_it_runs() -> None:
    """After its start the plugin may know no answer: then the annotation of a running pod says what it has."""
    annotations = placed(main=(2,))
    assert ids(a_pod("p", a_container(mem=4), annotations=annotations)) == {}
    assert ids(a_pod("p", a_container(mem=4), annotations=annotations, running=("main",))) == {"main": ("GPU-2::main",)}
    elsewhere = placed(main=(9,))
    assert ids(a_pod("p", a_container(mem=4), annotations=elsewhere, running=("main",))) == {}


@pytest.mark.parametrize(
    "pod",
    [
        a_pod("p", a_container(mem=4), annotations={names.GPU_COUNT: "many"}),
        a_pod("p", a_container(mem=4), annotations={names.ALLOCATION: "{"}, running=("main",)),
        a_pod("p", a_container(mem=4, whole=1)),
        a_pod("p", {"name": "main"}),
    ],
    ids=["unreadable count", "unreadable annotation", "mixed", "asks nothing"],
)
def test_a_pod_that_cannot_be_read_has_nothing(pod: Pod) -> None:
    assert ids(pod) == {}


def test_the_books_hold_before_an_annotation_that_says_otherwise() -> None:
    pod = a_pod("p", a_container(mem=4), annotations=placed(main=(3,)), running=("main",))
    assert ids(pod, main=("GPU-0",)) == {"main": ("GPU-0::main",)}


def test_the_counted_devices_give_way_to_the_true_ones() -> None:
    kubelet = listed(
        "p", main={names.GPU_MEM: ["GPU-0::m0", "GPU-0::m1"], names.GPU_SLICE: ["GPU-1::s0"]}, cpu={"rdma/nic": ["n0"]}
    )
    (told,) = holdings.corrected([kubelet], {("default", "p"): {"main": ("GPU-2::main",)}}, R)
    assert devices(told) == [(names.WHOLE_GPU, "GPU-2::main")]
    assert devices(told, "cpu") == [("rdma/nic", "n0")]
    assert len(kubelet.containers[0].devices) == 3, "the kubelet's own answer stays as it was"


def test_what_other_plugins_gave_stays() -> None:
    kubelet = listed("p", main={MIG_RESOURCE: ["MIG-7"], names.WHOLE_GPU: ["GPU-3"], names.GPU_MEM: ["GPU-0::m0"]})
    kubelet.containers[0].cpu_ids.append(5)
    kubelet.containers[0].dynamic_resources.add(claim_name="claim")
    (told,) = holdings.corrected([kubelet], {}, R)
    assert devices(told) == [(MIG_RESOURCE, "MIG-7"), (names.WHOLE_GPU, "GPU-3")]
    assert list(told.containers[0].cpu_ids) == [5]
    assert told.containers[0].dynamic_resources[0].claim_name == "claim"


def test_with_another_name_for_whole_gpus_nvidias_own_stay_and_ours_are_told_by_its_name() -> None:
    renamed = names.Resources(whole="example.com/gpu")
    kubelet = listed("p", a={"example.com/gpu": ["GPU-0"]}, b={names.WHOLE_GPU: ["GPU-3"]})
    (told,) = holdings.corrected([kubelet], {("default", "p"): {"a": ("GPU-1",)}}, renamed)
    assert (devices(told, "a"), devices(told, "b")) == ([(names.WHOLE_GPU, "GPU-1")], [(names.WHOLE_GPU, "GPU-3")])


def test_the_pods_are_those_of_the_kubelet_or_without_it_ours() -> None:
    held = {("default", "gone"): {"main": ("GPU-0::main",)}}
    assert [pod.name for pod in holdings.corrected([listed("p", main={})], held, R)] == ["p"]
    (told,) = holdings.alone(held)
    assert (told.namespace, told.name, devices(told)) == ("default", "gone", [(names.WHOLE_GPU, "GPU-0::main")])


def test_of_too_many_pods_those_with_gpus_are_told() -> None:
    pods = [listed(f"cpu-{i}", main={"rdma/nic": [f"n{i}"]}) for i in range(50)]
    pods += [listed(f"gpu-{i}", main={names.WHOLE_GPU: [f"GPU-{i}"]}) for i in range(50)]
    assert len(holdings.fitting(pods).pod_resources) == 100
    told = holdings.fitting(pods, most=3000)
    assert 2900 < told.ByteSize() <= 3000
    assert [pod.name for pod in told.pod_resources][:50] == [f"gpu-{i}" for i in range(50)]


class Node:
    """Four GPUs, and pods on them: what the kubelet counted for each, and what it truly has."""

    gpus = ("GPU-0", "GPU-1", "GPU-2", "GPU-3")

    def __init__(self) -> None:
        units = [f"GPU-0::m{i}" for i in range(40)]
        self.kubelet = [
            listed("big", main={names.GPU_MEM: units}),
            listed("small", main={names.GPU_MEM: ["GPU-1::m0", "GPU-1::m1"]}),
            listed("job", main={names.WHOLE_GPU: ["GPU-1"]}),
        ]
        self.held = {
            ("default", "big"): {"main": ("GPU-2::main",)},
            ("default", "small"): {"main": ("GPU-2::main",)},
            ("default", "job"): {"main": ("GPU-3",)},
        }

    @property
    def told(self) -> list[api.PodResources]:
        return holdings.corrected(self.kubelet, self.held, R)


def test_dcgm_exporter_labels_every_gpu_with_the_pods_that_have_it() -> None:
    node = Node()
    assert series(node.told, node.gpus) == [
        Series("GPU-0"),
        Series("GPU-1"),
        Series("GPU-2", "default", "big", "main", "main"),
        Series("GPU-2", "default", "small", "main", "main"),
        Series("GPU-3", "default", "job", "main"),
    ]


def test_from_the_kubelets_own_list_it_labels_wrong_gpus_and_each_as_often_as_it_has_units() -> None:
    """With our resources named in NVIDIA_RESOURCE_NAMES; without, parts have no pod at all."""
    node = Node()
    found = series(node.kubelet, node.gpus, names=[names.GPU_MEM])
    assert [one.pod for one in found if one.gpu == "GPU-0"] == ["big"] * 40, "40 copies, on a GPU that it has not"
    assert [one.pod for one in found if one.gpu == "GPU-1"] == ["small", "small", "job"]
    assert [one.pod for one in found if one.gpu in ("GPU-2", "GPU-3")] == ["", ""], "the GPUs that are used"
    assert [one.pod for one in series(node.kubelet, node.gpus)] == ["", "job", "", ""]


def test_without_virtual_gpus_one_pod_of_each_gpu_remains() -> None:
    node = Node()
    found = series(node.told, node.gpus, virtual=False)
    assert [(one.gpu, one.pod) for one in found[2:]] == [("GPU-2", "small"), ("GPU-3", "job")]


def test_instances_of_nvidias_plugin_are_labelled_as_before() -> None:
    kubelet = [listed("mig", main={MIG_RESOURCE: ["MIG-7"]})]
    instances = {"MIG-7": "0-7"}
    expected = [Series("0-7", "default", "mig", "main")]
    assert series(kubelet, ["0-7"], instances=instances) == expected
    assert series(holdings.corrected(kubelet, {}, R), ["0-7"], instances=instances) == expected


def test_whole_gpus_of_a_container_beside_parts_of_another_have_no_name_of_a_part() -> None:
    held = {("default", "p"): {"a": ("GPU-0", "GPU-1"), "b": ("GPU-2::b",)}}
    told = holdings.corrected([listed("p", a={names.WHOLE_GPU: ["GPU-3", "GPU-2"]}, b={})], held, R)
    assert [(one.container, one.vgpu) for one in series(told, ["GPU-0", "GPU-1", "GPU-2", "GPU-3"])] == [
        ("a", ""),
        ("a", ""),
        ("b", "b"),
        ("", ""),
    ]
