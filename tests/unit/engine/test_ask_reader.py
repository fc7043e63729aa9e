"""What pods ask is read once for each template, and a pod that says something else is read as itself."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.engine.state.ask_reader import TEMPLATE_BYTES, TEMPLATES, AskReader, OfClass, Reading
from extender.engine.types.settings import Settings
from protos.contract import names
from protos.contract.ask import PodAsk
from protos.contract.isolation import DEMANDED, Demanded
from protos.contract.objects import Pod
from protos.contract.reason import Reason
from protos.contract.selection import Selection
from tests.builders import a_container, a_pod

BASE = {names.GPU_MODEL: "H100", "batch.kubernetes.io/job-completion-index": "0", "gpu-fraction": "0.5"}
LONG = "x" * TEMPLATE_BYTES
READS_ALL = AskReader(Settings(unknown_keys="warn"))


def the_pod(name: str = "p", main: dict[str, Any] | None = None, **fields: Any) -> Pod:
    """A pod with one container, which asks GPU memory."""
    annotations = BASE | fields.pop("annotations", {})
    container = a_container("main", 4) | (main or {})
    return a_pod(name, annotations=annotations, containers=[container], **fields)


def with_env(**values: str) -> dict[str, Any]:
    return {"env": [{"name": name, "value": value} for name, value in values.items()]}


def in_group(pod: Pod, **fields: Any) -> Pod:
    """The pod with these fields of its spec."""
    decoded = msgspec.convert(fields, type(pod.spec))
    given = {field: getattr(decoded, field) for field in ("scheduling_group", "workload_ref")}
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, **given))


def read_anew(monkeypatch: pytest.MonkeyPatch, *pods: Pod) -> int:
    """How many of these pods a reader does not know from another."""
    count, fresh = [0], AskReader.fresh

    def counted(reader: AskReader, pod: Pod, of_class: OfClass, isolation: Demanded) -> Reading:
        count[0] += 1
        return fresh(reader, pod, of_class, isolation)

    monkeypatch.setattr(AskReader, "fresh", counted)
    reader = AskReader(Settings())
    for pod in pods:
        reader.read(pod, None)
    return count[0]


def test_pods_of_one_template_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    alike = (
        the_pod(),
        the_pod("q", namespace="other", uid="u", resourceVersion="7", creationTimestamp="2026-01-01T00:00:00Z"),
        the_pod(annotations={"batch.kubernetes.io/job-completion-index": "1"}),
        the_pod(phase="Running"),
    )
    assert read_anew(monkeypatch, *alike) == 1


def test_members_of_many_gangs_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    members = [
        the_pod(
            f"{gang}-{rank}",
            with_env(RANK=str(rank), MASTER_ADDR=f"{gang}-0"),
            annotations={names.GROUP: gang, names.ALLOCATION: f"{rank}"},
            labels={"job-name": gang},
        )
        for gang in ("a", "b")
        for rank in range(4)
    ]
    assert read_anew(monkeypatch, *members) == 1


def test_the_default_of_a_namespace_tells_templates_apart() -> None:
    readings = [READS_ALL.read(the_pod(), None, demanded) for demanded in (*DEMANDED, *DEMANDED)]
    asked = [reading.asked for reading in readings]
    assert [each.containers[0].isolation for each in asked if isinstance(each, PodAsk)] == [*DEMANDED, *DEMANDED]


def test_equal_asks_of_a_template_are_one_object() -> None:
    reader = AskReader(Settings(unknown_keys="warn"))
    first, second = (reader.read(the_pod(name), None).asked for name in ("p", "q"))
    assert isinstance(first, PodAsk)
    assert first is second


DIFFERENT = {
    "our annotation": the_pod(annotations={names.GPU_MODEL: "T4"}),
    "an annotation for the running pod": the_pod(annotations={names.CHECKPOINT: "soon"}),
    "a misspelt annotation": the_pod(annotations={"gangshare.io/gpu-modle": "T4"}),
    "a misspelt label": the_pod(labels={"gangshare.io/gpu-model": "T4"}),
    "another product's value": the_pod(annotations={"gpu-fraction": "0.25"}),
    "a CDI annotation": the_pod(annotations={"cdi.k8s.io/x": "y"}),
    "an amount": the_pod(main=a_container("main", 5)),
    "an amount as number": the_pod(main=a_container("main", limits={names.GPU_MEM: 5})),
    "a container's name": the_pod(main=a_container("other", 4)),
    "a sidecar": the_pod(init=[a_container("side", 4, restartPolicy="Always")]),
    "an init container": the_pod(init=[a_container("side", 4)]),
    "NVIDIA_VISIBLE_DEVICES": the_pod(main=with_env(NVIDIA_VISIBLE_DEVICES="all")),
    "CUDA_VISIBLE_DEVICES": the_pod(main=with_env(CUDA_VISIBLE_DEVICES="7")),
    "a variable from elsewhere": the_pod(main={"env": [{"name": names.VISIBLE_DEVICES, "valueFrom": {}}]}),
    "envFrom": the_pod(main={"envFrom": [{"prefix": "NVIDIA_"}]}),
    "a mount": the_pod(main={"volumeMounts": [{"mountPath": f"{names.DEVICE_MOUNTS}/all"}]}),
    "an ephemeral container": the_pod(
        spec={"ephemeralContainers": [{"name": "debug", **with_env(NVIDIA_VISIBLE_DEVICES="all")}]}
    ),
    "a node": the_pod(node="n1"),
    "too many requests": the_pod(
        main={"resources": {"limits": {names.GPU_MEM: "4"}, "requests": {f"example.com/{i}": "1" for i in range(64)}}}
    ),
}


@pytest.mark.parametrize("pod", DIFFERENT.values(), ids=DIFFERENT)
def test_a_pod_that_says_something_else_is_read_as_itself(pod: Pod) -> None:
    usual = READS_ALL.read(the_pod(), None)
    assert usual == READS_ALL.fresh(the_pod(), None)
    for _ in range(2):
        assert READS_ALL.read(pod, None) == READS_ALL.fresh(pod, None)
    assert READS_ALL.read(pod, None) != usual


@pytest.mark.parametrize(
    "fields",
    [{"schedulingGroup": {"podGroupName": "g"}}, {"workloadRef": {"name": "w", "podGroup": "g"}}],
    ids=["schedulingGroup", "workloadRef"],
)
def test_a_launcher_that_its_spec_puts_into_a_group_is_no_pod_without_gpus(fields: dict[str, Any]) -> None:
    reader, alone = AskReader(Settings()), a_pod(annotations={names.GPU_MODEL: "H100"})
    launcher = in_group(alone, **fields)
    for _ in range(2):
        assert reader.read(alone, None).mistake is not None
        assert reader.read(launcher, None) == Reading(None, None)


def test_a_pod_is_read_by_its_class_as_the_class_is_now() -> None:
    pod = the_pod(annotations={names.GPU_CLASS: "big"})
    missing = Reason("ClassMissing", "it does not exist")
    asked: list[Any] = []
    for of_class in (missing, Selection(min_mem_mib=8), Selection(min_mem_mib=16), missing):
        reading = READS_ALL.read(pod, of_class)
        assert reading == READS_ALL.fresh(pod, of_class)
        asked.append(reading.asked)
    assert asked[0] == asked[3] == missing
    assert [ask.selection.min_mem_mib for ask in asked[1:3]] == [8, 16]


def kept(reader: AskReader) -> tuple[int, int]:
    """How many templates a reader keeps, and their bytes."""
    known = reader._known
    return len(known), sum(len(template) for template, _, _ in (*known._young, *known._old))


def test_no_more_templates_are_kept_than_may_be() -> None:
    reader = AskReader(Settings())
    for number in range(TEMPLATES + TEMPLATES // 2):
        reader.read(a_pod(containers=[{"name": f"{number}"}]), None)
    assert TEMPLATES // 2 <= kept(reader)[0] <= TEMPLATES


def test_no_more_bytes_are_kept_than_may_be() -> None:
    reader, long = AskReader(Settings()), "m" * (TEMPLATE_BYTES // 32)
    for number in range(64):
        reader.read(the_pod(annotations={names.GPU_MODEL: f"{number}{long}"}), None)
    assert TEMPLATE_BYTES // 4 < kept(reader)[1] <= TEMPLATE_BYTES


@pytest.mark.parametrize(
    "of_class", [None, Selection(models=(LONG,)), Reason("x", LONG)], ids=["pod", "class", "reason"]
)
def test_what_is_too_long_is_read_and_not_kept(of_class: OfClass) -> None:
    reader = AskReader(Settings())
    pod = the_pod() if of_class else the_pod(annotations={names.GPU_MODEL: LONG})
    assert reader.read(pod, of_class) == reader.fresh(pod, of_class)
    assert kept(reader) == (0, 0)


def test_values_that_are_not_read_are_not_kept() -> None:
    reader = AskReader(Settings())
    reader.read(the_pod(annotations={"example.com/x": LONG, names.ALLOCATION: LONG}, labels={"app": LONG}), None)
    assert 0 < kept(reader)[1] < 1000


def test_numbers_of_any_length_are_read() -> None:
    pod = the_pod(main={"resources": {"limits": {names.GPU_MEM: 10**400}}})
    assert READS_ALL.read(pod, None) == READS_ALL.fresh(pod, None)
