"""What pods ask, and the sentences for asks that make no sense."""

from __future__ import annotations

import pytest

from protos.contract import names
from protos.contract.ask import AskError, ContainerAsk, held, parse
from protos.contract.objects import Pod
from tests.builders import a_container, a_pod

R = names.Resources()


def test_a_pod_that_asks_nothing_of_ours_has_no_ask() -> None:
    assert parse(a_pod(), R) is None
    assert parse(a_pod(containers=[a_container("c", limits={"cpu": "1", names.WHOLE_GPU: "0"})]), R) is None


def test_every_container_is_read_in_the_kubelets_order() -> None:
    pod = a_pod(
        init=[a_container("side", mem=1, restartPolicy="Always"), a_container("init", whole=1)],
        containers=[a_container("a", mem=4, slices=10), a_container("cpu")],
    )
    found = parse(pod, R)
    assert found is not None
    assert found.containers == (
        ContainerAsk(name="side", kind="sidecar", gpus=1, mem=1),
        ContainerAsk(name="init", kind="init", gpus=1, whole=names.WHOLE_GPU),
        ContainerAsk(name="a", gpus=1, mem=4, slices=10),
    )


def test_amounts_are_kubernetes_quantities() -> None:
    found = parse(a_pod(containers=[a_container("c", limits={names.GPU_MEM: "1k"})]), R)
    assert found is not None
    assert found.containers[0].mem == 1000


def limited(**limits: str | int) -> Pod:
    """A pod with these limits: mem, slice or whole."""
    named = {getattr(R, key): value for key, value in limits.items()}
    return a_pod(containers=[a_container("c", limits=named)])


def test_a_zero_beside_an_amount_is_no_mistake() -> None:
    found = parse(limited(mem="0", slice="25"), R)
    assert found is not None
    assert (found.containers[0].mem, found.containers[0].slices) == (0, 25)


def test_whole_gpus_beside_parts_on_several_gpus_are_no_mistake() -> None:
    containers = [a_container("parts", mem=4), a_container("whole", whole=1)]
    found = parse(a_pod(containers=containers, annotations={names.GPU_COUNT: "2"}), R)
    assert found is not None
    assert [(ask.gpus, ask.whole) for ask in found.containers] == [(2, ""), (1, names.WHOLE_GPU)]


@pytest.mark.parametrize(
    ("unit_mib", "value", "expected"),
    [
        (1024, "10Gi", "expected a number of GiB: write gangshare.io/gpu-mem: 10"),
        (1024, "512Mi", "expected a number of GiB: write gangshare.io/gpu-mem: 1"),
        (1024, 10 * 2**30, "expected a number of GiB: write gangshare.io/gpu-mem: 10"),
        (1024, "10G", "expected a number of GiB: write gangshare.io/gpu-mem: 10"),
        (1024, "10M", "expected a number of GiB: write gangshare.io/gpu-mem: 1"),
        (1, "10Gi", "expected a number of MiB: write gangshare.io/gpu-mem: 10240"),
        (256, "10Gi", "expected a number of units of 256 MiB: write gangshare.io/gpu-mem: 40"),
    ],
)
def test_an_amount_of_bytes_is_refused_with_the_line_to_write(unit_mib: int, value: str | int, expected: str) -> None:
    with pytest.raises(AskError) as error:
        parse(limited(mem=value), names.Resources(unit_mib=unit_mib))
    assert error.value.reason.code == "AskUnit"
    assert error.value.reason.sentence.endswith(expected)


def with_env(value: str, name: str = names.VISIBLE_DEVICES) -> Pod:
    return a_pod(containers=[a_container("c", mem=1, env=[{"name": name, "value": value}])])


@pytest.mark.parametrize(
    ("pod", "code", "sentence"),
    [
        (
            a_pod(mem=10, annotations={names.GPU_COUNT: "3"}),
            "AskUneven",
            "gangshare.io/gpu-mem 10 does not divide by gangshare.io/gpu-count 3: 9 or 12 would",
        ),
        (a_pod(mem=2, annotations={names.GPU_COUNT: "3"}), "AskUneven", ": 3 would"),
        (a_pod(mem=2, annotations={names.GPU_COUNT: "zero"}), "AskMalformed", "gpu-count is 'zero': expected"),
        (a_pod(mem=2, annotations={names.GPU_COUNT: "²"}), "AskMalformed", "gpu-count is '²': expected"),
        *(
            (a_pod(mem=2, annotations={key: "9" * 5000}), "AskMalformed", f"{key} is '9999")
            for key in (names.GPU_COUNT, names.MIN_CLOCK_MHZ, names.MIN_COMPUTE_CAPABILITY)
        ),
        (a_pod(mem=2, annotations={names.GPU_MODEL: "a*," * 100}), "AskMalformed", "expected at most 64 globs"),
        (a_pod(mem=2, annotations={names.GPU_UUID: "a*" * 100}), "AskMalformed", "of at most 128 characters"),
        (
            a_pod(containers=[a_container(f"c{i}", mem=1) for i in range(1000)]),
            "AskTooMany",
            "1000 containers ask for GPUs: expected at most 64",
        ),
        (a_pod(mem=1, whole=1), "AskMixed", "asks gangshare.io/gpu-mem and nvidia.com/gpu: whole GPUs or parts"),
        (
            a_pod(mem=1, annotations={names.LINK: "fast"}),
            "AskMalformed",
            "'fast': expected any, nvlink, prefer",
        ),
        (a_pod(mem=1, annotations={names.PLACEMENT: ""}), "AskMalformed", "expected pack, spread"),
        (a_pod(mem=1, annotations={names.MIXED_MODELS: "true"}), "AskMalformed", "expected deny, allow"),
        (a_pod(mem=1, annotations={names.MIN_GPU_MEMORY: "much"}), "AskMalformed", "expected an amount like 40Gi"),
        (a_pod(mem=1, annotations={names.MIN_GPU_MEMORY: "70"}), "AskMalformed", "with its unit: write 70Gi"),
        (a_pod(mem=1, annotations={names.MIN_GPU_MEMORY: "71680"}), "AskMalformed", "with its unit: write 71680Mi"),
        (limited(mem="0"), "AskZero", "container c asks gangshare.io/gpu-mem 0, which is no GPU: ask one or more"),
        (limited(mem=0, slice="0"), "AskZero", "asks gangshare.io/gpu-mem 0 and gangshare.io/gpu-slice 0, which"),
        (limited(slice="0", whole="0"), "AskZero", "asks gangshare.io/gpu-slice 0 and nvidia.com/gpu 0, which"),
        (limited(whole="0k"), "AskZero", "asks nvidia.com/gpu 0, which"),
        (
            a_pod(whole=1, annotations={names.GPU_COUNT: "2"}),
            "AskMixed",
            "and gangshare.io/gpu-count 2 is for parts of GPUs: write nvidia.com/gpu: 2 without gangshare.io/gpu-count",
        ),
        (
            a_pod(mem=1, annotations={names.MIN_COMPUTE_CAPABILITY: "8.x"}),
            "AskMalformed",
            "expected a compute capability like 8.0",
        ),
        (a_pod(mem=1, annotations={names.GPU_MODEL: ","}), "AskMalformed", "expected names or globs"),
        *(
            (a_pod(mem=1, annotations={names.GPU_MODEL: globs}), "AskMalformed", "one ! before each that excludes")
            for globs in ("!=T4", "!!T4", "A10,! ", "=A10")
        ),
        *(
            (a_pod(mem=1, annotations={names.GPU_UUID: uuid}), "AskMalformed", "expected UUIDs like GPU-5f0a")
            for uuid in ("0", "!0", "A100")
        ),
        *(
            (a_pod(mem=1, annotations={names.MIN_GPU_MEMORY: much}), "AskMalformed", "like 40Gi, at least 1G")
            for much in ("40Mi", "40M", "40k", "40m", "70000000", "1e3")
        ),
        *(
            (a_pod(mem=1, annotations={names.RESTARTABLE: flag}), "AskMalformed", "expected true or false")
            for flag in ("yes", "True", "1", "", "true ")
        ),
        *(
            (a_pod(mem=1, annotations={names.CHECKPOINT: time}), "AskMalformed", "a time like 2026-01-31T12:00:00Z")
            for time in ("2026-01-31", "now", "1706702400", "2026-01-31T12:00:00+01:00", "")
        ),
        (
            with_env("3", "CUDA_VISIBLE_DEVICES"),
            "AskOwnDevices",
            "sets CUDA_VISIBLE_DEVICES to 3, which hides its GPUs",
        ),
        (with_env("1,0", "CUDA_VISIBLE_DEVICES"), "AskOwnDevices", "they are 0 inside the container"),
        *(
            (a_pod(mem=1, annotations={names.GPU_CLASS: name}), "AskMalformed", "expected the name of a GpuClass")
            for name in ("", "A100", "a/b", "a" * 254)
        ),
        (
            a_pod(containers=[a_container("c", limits={names.GPU_MEM: "1.5"})]),
            "AskMalformed",
            "expected a whole number",
        ),
        (a_pod(containers=[a_container("c", limits={names.GPU_MEM: "-1"})]), "AskMalformed", "expected zero or more"),
        (with_env("all"), "AskOwnDevices", "sets NVIDIA_VISIBLE_DEVICES itself"),
    ],
)
def test_an_ask_no_cluster_could_serve_has_a_sentence(pod: Pod, code: str, sentence: str) -> None:
    with pytest.raises(AskError) as error:
        parse(pod, R)
    assert error.value.reason.code == code
    assert sentence in error.value.reason.sentence


@pytest.mark.parametrize("value", ["0", "0,1,2,3", "", "-1", "GPU-5f0a", "NoDevFiles"])
def test_a_program_may_choose_among_its_gpus(value: str) -> None:
    assert parse(with_env(value, "CUDA_VISIBLE_DEVICES"), R) is not None


def test_blanks_around_globs_are_no_part_of_them() -> None:
    asked = parse(a_pod(mem=1, annotations={names.GPU_MODEL: " A10 ,! A100"}), R)
    assert asked is not None
    assert asked.selection.models == ("A10", "!A100")


def test_a_pod_that_runs_keeps_its_ask_whatever_its_checkpoint_says() -> None:
    counted = {names.GPU_COUNT: "2", names.CHECKPOINT: "now", names.RESTARTABLE: "yes"}
    assert held(a_pod(mem=4, annotations=counted), R) == parse(a_pod(mem=4, annotations={names.GPU_COUNT: "2"}), R)


@pytest.mark.parametrize("value", ["none", "void", ""])
def test_a_harmless_visible_devices_may_stay(value: str) -> None:
    assert parse(with_env(value), R) is not None


@pytest.mark.parametrize(
    ("pod", "asked"),
    [
        (with_env("all"), ContainerAsk(name="c", gpus=1, mem=1)),
        (a_pod(mem=10, annotations={names.GPU_COUNT: "3"}), ContainerAsk(name="main", gpus=1, mem=10)),
        (a_pod(mem=10, annotations={names.GPU_MODEL: ","}), ContainerAsk(name="main", gpus=1, mem=10)),
        (a_pod(mem=1, whole=2), ContainerAsk(name="main", gpus=2, whole=names.WHOLE_GPU)),
        (
            a_pod(whole=1, annotations={names.GPU_COUNT: "2"}),
            ContainerAsk(name="main", gpus=1, whole=names.WHOLE_GPU),
        ),
    ],
)
def test_a_bound_pod_with_a_senseless_ask_still_holds_what_it_asks(pod: Pod, asked: ContainerAsk) -> None:
    found = held(pod, R)
    assert found is not None
    assert found.containers == (asked,)


@pytest.mark.parametrize("pod", [limited(mem="0"), limited(mem="10Gi"), limited(mem="0", slice="-1")])
def test_a_bound_pod_that_can_have_no_gpus_holds_none(pod: Pod) -> None:
    assert held(pod, R) is None


@pytest.mark.parametrize("amount", ["0", "85899345920", "70Gi", "1e9"])
def test_an_amount_of_bytes_that_may_be_meant_is_read(amount: str) -> None:
    assert parse(a_pod(mem=1, annotations={names.MIN_GPU_MEMORY: amount}), R) is not None
