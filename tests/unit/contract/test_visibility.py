"""A pod may not name GPUs to the container runtime itself, in whatever container and by whatever way."""

from __future__ import annotations

from typing import Any

import pytest

from protos.contract import names
from protos.contract.ask import AskError, ContainerAsk, held, parse
from protos.contract.objects import Pod
from tests.builders import a_container, a_pod

R = names.Resources()
VALUE_FROM = {"fieldRef": {"fieldPath": "metadata.annotations['mine']"}}
FORGERIES: dict[str, tuple[dict[str, Any], str]] = {
    "env": ({"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}, "sets NVIDIA_VISIBLE_DEVICES itself"),
    "env after a harmless one": (
        {
            "env": [
                {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"},
                {"name": "NVIDIA_VISIBLE_DEVICES", "value": "0"},
            ]
        },
        "sets NVIDIA_VISIBLE_DEVICES itself",
    ),
    "valueFrom": (
        {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": VALUE_FROM}]},
        "sets NVIDIA_VISIBLE_DEVICES itself",
    ),
    "envFrom of a ConfigMap with a prefix": (
        {"envFrom": [{"prefix": "NVIDIA_", "configMapRef": {"name": "mine"}}]},
        "has envFrom with a prefix that NVIDIA_VISIBLE_DEVICES begins with",
    ),
    "envFrom of a Secret with a prefix": (
        {"envFrom": [{"secretRef": {"name": "a"}}, {"prefix": "N", "secretRef": {"name": "mine"}}]},
        "has envFrom with a prefix that NVIDIA_VISIBLE_DEVICES begins with",
    ),
    "a mount": (
        {"volumeMounts": [{"name": "null", "mountPath": "/var/run/nvidia-container-devices/all"}]},
        "mounts a volume at /var/run/nvidia-container-devices",
    ),
    "a mount by a crooked path": (
        {"volumeMounts": [{"name": "null", "mountPath": "//var/../var/run//nvidia-container-devices/./all"}]},
        "mounts a volume at /var/run/nvidia-container-devices",
    ),
}


def pods(fields: dict[str, Any]) -> dict[str, Pod]:
    """A pod that asks for GPUs, in which a container of each kind has these fields."""
    asking = a_container("main", mem=1)
    other = {"name": "other", **fields}
    return {
        "the one that asks": a_pod(containers=[{**asking, **fields}]),
        "one that asks nothing": a_pod(containers=[asking, other]),
        "one that asks zero": a_pod(containers=[asking, {**a_container("other", limits={R.whole: "0"}), **fields}]),
        "an init container": a_pod(containers=[asking], init=[other]),
        "a sidecar": a_pod(containers=[asking], init=[{**other, "restartPolicy": "Always"}]),
        "an ephemeral container": a_pod(containers=[asking], spec={"ephemeralContainers": [other]}),
    }


@pytest.mark.parametrize("container", pods({}))
@pytest.mark.parametrize("way", FORGERIES)
def test_no_container_of_the_pod_names_gpus(container: str, way: str) -> None:
    fields, sentence = FORGERIES[way]
    with pytest.raises(AskError) as refused:
        parse(pods(fields)[container], R)
    assert refused.value.reason.code == "AskOwnDevices"
    assert f"container {'main' if container == 'the one that asks' else 'other'} {sentence}" in str(refused.value)


def test_no_annotation_of_cdi_names_devices() -> None:
    with pytest.raises(AskError, match=r"the pod has annotations cdi\.k8s\.io/\*"):
        parse(a_pod(mem=1, annotations={"cdi.k8s.io/mine": "nvidia.com/gpu=all"}), R)


@pytest.mark.parametrize(
    "fields",
    [
        {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": value}]} for value in ("", "none", "void")
    ] + [
        {"env": [{"name": name, "value": "all"}]}
        for name in ("NVIDIA_DRIVER_CAPABILITIES", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES_", "nvidia_visible")
    ] + [
        {"envFrom": [{"prefix": prefix, "configMapRef": {"name": "mine"}}]}
        for prefix in ("", "MY_", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES_", "VIDIA", "nvidia_")
    ] + [
        {"volumeMounts": [{"name": "v", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]},
    ],
    ids=str,
)  # fmt: skip
def test_what_shows_no_gpu_may_stay(fields: dict[str, Any]) -> None:
    for pod in pods(fields).values():
        assert parse(pod, R) is not None


LIMITED: dict[str, tuple[dict[str, Any], str]] = {
    "a limit": ({"env": [{"name": "NVIDIA_GPU_MEMORY_LIMIT", "value": "1"}]}, "sets NVIDIA_GPU_MEMORY_LIMIT itself"),
    "a request by valueFrom": (
        {"env": [{"name": "A"}, {"name": "NVIDIA_GPU_MEMORY_REQUEST", "valueFrom": VALUE_FROM}]},
        "sets NVIDIA_GPU_MEMORY_REQUEST itself",
    ),
    "envFrom with a prefix": (
        {"envFrom": [{"prefix": "NVIDIA_GPU_MEMORY_", "secretRef": {"name": "mine"}}]},
        "has envFrom with a prefix that variables of its limits begin with",
    ),
}
OWN_MEANS: dict[str, tuple[dict[str, Any], str]] = {
    "a limit of a library": (
        {"env": [{"name": "CUDA_DEVICE_MEMORY_LIMIT_0", "value": "0"}]},
        "sets CUDA_DEVICE_MEMORY_LIMIT_0 itself",
    ),
    "its region elsewhere": (
        {"env": [{"name": "CUDA_DEVICE_MEMORY_SHARED_CACHE", "valueFrom": VALUE_FROM}]},
        "sets CUDA_DEVICE_MEMORY_SHARED_CACHE itself",
    ),
    "its cap on compute": (
        {"env": [{"name": "CUDA_DEVICE_SM_LIMIT", "value": "100"}]},
        "sets CUDA_DEVICE_SM_LIMIT itself",
    ),
    "its switch": (
        {"env": [{"name": "CUDA_DISABLE_CONTROL", "value": "true"}]},
        "sets CUDA_DISABLE_CONTROL itself",
    ),
    "its policy by a prefix": (
        {"envFrom": [{"prefix": "GPU_", "configMapRef": {"name": "mine"}}]},
        "has envFrom with a prefix that variables of its limits begin with",
    ),
    "a variable": (
        {"env": [{"name": "CUDA_MPS_PIPE_DIRECTORY", "value": "/tmp/mps"}]},
        "sets CUDA_MPS_PIPE_DIRECTORY itself",
    ),
    "a short prefix": (
        {"envFrom": [{"prefix": "CUDA_", "configMapRef": {"name": "mine"}}]},
        "has envFrom with a prefix that variables of its limits begin with",
    ),
    "a long prefix": (
        {"envFrom": [{"prefix": "CUDA_MPS_ACTIVE_", "configMapRef": {"name": "mine"}}]},
        "has envFrom with a prefix that variables of its limits begin with",
    ),
}


@pytest.mark.parametrize("container", pods({}))
@pytest.mark.parametrize("way", [*LIMITED, *OWN_MEANS])
def test_no_container_of_a_pod_with_parts_sets_its_limits(container: str, way: str) -> None:
    fields, sentence = (LIMITED | OWN_MEANS)[way]
    with pytest.raises(AskError) as refused:
        parse(pods(fields)[container], R)
    assert refused.value.reason.code == "AskOwnLimits"
    assert f"container {'main' if container == 'the one that asks' else 'other'} {sentence}" in str(refused.value)


@pytest.mark.parametrize("way", [*LIMITED, *OWN_MEANS])
def test_a_pod_with_whole_gpus_may_run_its_own_mps_or_library_and_not_limit_itself_as_a_replica(way: str) -> None:
    fields, _ = (LIMITED | OWN_MEANS)[way]
    whole = a_pod(containers=[a_container("main", whole=1, **fields)])
    if way in OWN_MEANS:
        assert parse(whole, R) is not None
    else:
        with pytest.raises(AskError):
            parse(whole, R)
    with pytest.raises(AskError):
        parse(a_pod(containers=[a_container("main", limits={R.shared: "1"}, **fields)]), R)
    assert parse(a_pod(containers=[a_container("main", **fields)]), R) is None


@pytest.mark.parametrize("prefix", ["", "CUDA_VISIBLE", "NVIDIA_GPU_MEMORY_LIMIT", "MPS_", "cuda_"])
def test_a_prefix_that_makes_no_limit_may_stay(prefix: str) -> None:
    for pod in pods({"envFrom": [{"prefix": prefix, "configMapRef": {"name": "mine"}}]}).values():
        assert parse(pod, R) is not None


def test_a_pod_that_asks_no_gpu_is_not_ours_to_judge() -> None:
    fields, _ = FORGERIES["env"]
    assert parse(a_pod(containers=[a_container("cpu", **fields)]), R) is None


@pytest.mark.parametrize("way", FORGERIES)
def test_a_pod_that_was_bound_before_holds_what_it_asks_to_the_unit(way: str) -> None:
    fields, _ = FORGERIES[way]
    pod = a_pod(containers=[a_container("main", mem=4, **fields)], annotations={names.GPU_COUNT: "2"})
    found = held(pod, R)
    assert found is not None
    assert found.containers == (ContainerAsk(name="main", gpus=2, mem=2),)
