"""Pods and Nodes are decoded to what a GPU scheduler reads."""

import datetime as dt
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protos.contract import objects, timestamps
from tests.unit.kube.samples import NODE, POD


def test_a_pod_of_the_api_server_keeps_what_the_scheduler_reads() -> None:
    pod = objects.decode_pod(msgspec.json.encode(POD))
    assert (pod.metadata.namespace, pod.metadata.name, pod.metadata.uid) == ("default", "train-0", "uid-0")
    assert pod.metadata.owner_references[0] == objects.OwnerReference(
        "Job", "train", "uid-job", controller=True, api_version="batch/v1"
    )
    assert pod.spec.containers[0].resources == objects.Resources({"gangshare.io/gpu-mem": "10"}, {"cpu": "500m"})
    assert pod.spec.containers[0].env[1] == objects.EnvVar("SECRET", value_from=objects.Present())
    assert pod.spec.init_containers[0].restart_policy == "Always"
    assert pod.spec.scheduling_gates == (objects.SchedulingGate("gangshare.io/plan"),)
    assert msgspec.json.decode(pod.spec.tolerations)[0]["key"] == "node.kubernetes.io/not-ready"
    assert pod.status.nominated_node_name == "node-1"
    states = [status.state for status in pod.status.container_statuses]
    assert states == [
        objects.ContainerState(running=objects.Running("2025-01-31")),
        objects.ContainerState(),
        objects.ContainerState(terminated=objects.Terminated("2025-01-31T12:00:00Z")),
    ]


def test_a_pod_with_nothing_but_a_name_has_the_defaults_of_the_api() -> None:
    pod = objects.decode_pod(b'{"metadata":{"name":"p","creationTimestamp":null}}')
    assert (pod.metadata.labels, pod.spec.containers, pod.status.phase) == ({}, (), "Pending")
    assert pod.spec.scheduler_name == "default-scheduler"


def test_a_wrong_field_is_named() -> None:
    with pytest.raises(msgspec.DecodeError, match=r"\$\.spec\.containers\[0\]\.name"):
        objects.decode_pod(b'{"metadata":{"name":"p"},"spec":{"containers":[{"name":7}]}}')


def test_a_node_keeps_what_the_scheduler_reads() -> None:
    node = objects.decode_node(msgspec.json.encode(NODE))
    assert node.metadata.annotations == {"gangshare.io/gpus": "{}"}
    assert node.spec.taints == (objects.Taint("gpu", "NoSchedule", "true"),)
    assert node.spec.unschedulable
    assert node.status.allocatable["gangshare.io/gpu-mem"] == "79"


def test_raw_fields_do_not_keep_the_buffer_they_came_from() -> None:
    class Answer(msgspec.Struct):
        items: list[objects.Pod]

    page = msgspec.json.encode({"items": [POD]})
    before = sys.getrefcount(page)
    answer = msgspec.json.decode(page, type=Answer)
    assert answer.items[0].metadata.managed_fields
    assert sys.getrefcount(page) == before


@given(st.integers(0, 7_000_000_000_000_000))
def test_timestamps_agree_with_the_calendar(microseconds: int) -> None:
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=microseconds)
    assert timestamps.epoch_seconds(f"{moment:%Y-%m-%dT%H:%M:%S.%fZ}") == pytest.approx(moment.timestamp(), abs=1e-5)
    whole = moment.replace(microsecond=0)
    assert timestamps.epoch_seconds(f"{whole:%Y-%m-%dT%H:%M:%SZ}") == whole.timestamp()


@pytest.mark.parametrize("text", ["", "now", "2025-01-31", "2025-01-31T12:00:00+01:00", "2025-01-31 12:00:00Z"])
def test_what_is_no_timestamp_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ValueError, match="is no timestamp: expected"):
        timestamps.epoch_seconds(text)


@pytest.mark.parametrize(
    "text",
    [
        "2025-01-31T12:00:nanZ",
        "2025-01-31T12:00:infZ",
        "2025-01-31T12:00:1e9Z",
        "2025-01-31T12:00:-5Z",
        "2025-13-31T12:00:00Z",
        "2025-01-99T12:00:00Z",
        "2025-01-31T99:00:00Z",
        "+025-01-31T12:00:00Z",
        "2_25-01-31T12:00:00Z",
        "٢025-01-31T12:00:00Z",
        "2025-01-31T12:00:00." + "9" * 5000 + "Z",
    ],
)
def test_what_only_python_would_take_for_numbers_is_no_timestamp(text: str) -> None:
    with pytest.raises(ValueError, match="is no timestamp: expected"):
        timestamps.epoch_seconds(text)


@given(st.integers(0, timestamps.LAST_SECOND))
def test_a_time_is_written_as_the_calendar_has_it(seconds: int) -> None:
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)
    assert timestamps.timestamp(seconds) == moment.strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize("seconds", [timestamps.LAST_SECOND + 1, 2.6e11, 1e17, 1e300, float("inf")])
def test_no_time_is_later_than_a_year_of_four_digits(seconds: float) -> None:
    assert timestamps.timestamp(seconds) == "9999-12-31T23:59:59Z"
    timestamps.epoch_seconds(timestamps.timestamp(seconds))


@pytest.mark.parametrize(
    ("meta", "spec"),
    [
        ({"name": ""}, {}),
        ({"name": "n" * 254}, {}),
        ({"name": "p", "namespace": "n" * 254}, {}),
        ({"name": "p"}, {"priority": 2**31}),
        ({"name": "p"}, {"terminationGracePeriodSeconds": 2**63}),
        ({"name": "p"}, {"nodeName": "n" * 254}),
        ({"name": "p"}, {"schedulingGroup": {"podGroupName": "g" * 254}}),
    ],
)
def test_what_the_api_server_never_shows_is_no_pod(meta: dict[str, Any], spec: dict[str, Any]) -> None:
    with pytest.raises(msgspec.DecodeError):
        objects.decode_pod(msgspec.json.encode({"metadata": meta, "spec": spec}))
