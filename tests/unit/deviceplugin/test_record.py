"""The record of answers, and the kubelet's checkpoint."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from deviceplugin import checkpoint
from deviceplugin.checkpoint import Entry
from deviceplugin.devices import Sharing
from deviceplugin.record import Record
from protos.contract import names
from protos.contract.bounds import CHECKPOINT
from protos.files import FileError
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as api
from tests.unit.deviceplugin.builders import an_inventory

MEM, WHOLE = names.GPU_MEM, names.WHOLE_GPU


def a_file(*entries: dict[str, Any]) -> bytes:
    return json.dumps(
        {"Data": {"PodDeviceEntries": list(entries), "RegisteredDevices": {MEM: ["x"]}}, "Checksum": 7}
    ).encode()


def an_entry(resource: str = MEM, ids: tuple[str, ...] = ("GPU-1::m3",), **envs: str) -> dict[str, Any]:
    answer = api.ContainerAllocateResponse(envs=envs).SerializeToString()
    return {
        "PodUID": "u",
        "ContainerName": "main",
        "ResourceName": resource,
        "DeviceIDs": {"-1": list(ids)},
        "AllocResp": base64.b64encode(answer).decode(),
    }


def loaded(*entries: dict[str, Any]) -> Record:
    record = Record()
    record.load(checkpoint.parse(a_file(*entries)), an_inventory(), Sharing())
    return record


SPOILT = [
    b"",
    b"nonsense",
    b'{"Data":{"PodDeviceEntries":[{}]}}',
    b'{"Data":{"PodDeviceEntries":[{"PodUID":"\xff","ContainerName":"c","ResourceName":"r"}]}}',
    b'{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"r","AllocResp":"\xc3"}]}}',
    b'{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"r","AllocResp":"\xc3\xa9"}]}}',
    b'{"Data":{"more":' + b"[" * 100_000,
]


class TestCheckpoint:
    def test_entries(self) -> None:
        assert checkpoint.parse(a_file(an_entry(A="b"))) == (Entry("u", "main", MEM, ("GPU-1::m3",), {"A": "b"}),)

    def test_an_empty_one(self) -> None:
        assert checkpoint.parse(b'{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}') == ()

    def test_no_file_is_no_entry(self, tmp_path: Path) -> None:
        assert checkpoint.read(tmp_path / "none") == ()

    @pytest.mark.parametrize("data", SPOILT)
    def test_a_spoilt_file_is_an_error_that_names_it(self, tmp_path: Path, data: bytes) -> None:
        path = tmp_path / "kubelet_internal_checkpoint"
        path.write_bytes(data)
        with pytest.raises(FileError, match=r"kubelet_internal_checkpoint: no checkpoint"):
            checkpoint.read(path)

    def test_a_file_past_the_bound_is_not_read(self, tmp_path: Path) -> None:
        path = tmp_path / "kubelet_internal_checkpoint"
        with path.open("wb") as file:
            file.truncate(CHECKPOINT.most + 1)
        with pytest.raises(FileError, match="the kubelet's checkpoint: 67108865 bytes, expected at most 67108864"):
            checkpoint.read(path)

    def test_an_answer_that_is_none_is_an_error(self) -> None:
        with pytest.raises(FileError):
            checkpoint.parse(a_file({**an_entry(), "AllocResp": "AAAA"}))


class TestRecord:
    def test_our_own_answer_tells_the_gpus_whatever_the_ids(self) -> None:
        record = loaded(an_entry(NVIDIA_VISIBLE_DEVICES="GPU-2,GPU-3", GANGSHARE_GPU_MEM_MIB="4096"))
        assert record.given("u") == {"main": ("GPU-2", "GPU-3")}
        assert record.answered("u", "main", MEM)
        assert not record.taken_over("u")

    @pytest.mark.parametrize("visible", ["void", "/var/run/nvidia-container-devices", "GPU-2,GPU-3"])
    def test_the_gpus_are_known_whatever_the_strategy_was(self, visible: str) -> None:
        uuids, mem = "GPU-2,GPU-3", "4096"
        entry = an_entry(NVIDIA_VISIBLE_DEVICES=visible, GANGSHARE_GPU_UUIDS=uuids, GANGSHARE_GPU_MEM_MIB=mem)
        record = loaded(entry)
        assert record.given("u") == {"main": ("GPU-2", "GPU-3")}

    def test_whole_gpus_of_another_plugin_are_taken_over(self) -> None:
        record = loaded(an_entry(WHOLE, ("GPU-2", "GPU-1"), NVIDIA_VISIBLE_DEVICES="GPU-2,GPU-1"))
        assert record.given("u") == {"main": ("GPU-1", "GPU-2")}
        assert record.taken_over("u")

    def test_replicas_of_another_plugin_are_taken_over(self) -> None:
        assert loaded(an_entry(WHOLE, ("GPU-2::5",))).given("u") == {"main": ("GPU-2",)}

    def test_gpus_that_gpushare_gave_are_known_by_minor_number(self) -> None:
        record = loaded(an_entry(MEM, ("GPU-9-_-1",), ALIYUN_COM_GPU_MEM_IDX="2", NVIDIA_VISIBLE_DEVICES="2"))
        assert record.given("u") == {"main": ("GPU-2",)}

    def test_devices_of_other_kinds_do_not_concern_us(self) -> None:
        assert loaded(an_entry("rdma/hca")).uids() == frozenset()

    def test_memory_on_unknown_gpus_is_answered_and_on_no_gpu(self) -> None:
        record = loaded(an_entry())
        assert record.answered("u", "main", MEM)
        assert record.given("u") == {}

    def test_the_first_answer_of_a_pod_fixes_all_its_containers(self) -> None:
        record = Record()
        record.fix("u", {"a": ("GPU-0",), "b": ("GPU-1",)})
        record.fix("u", {"a": ("GPU-2",), "c": ("GPU-3",)})
        assert record.given("u") == {"a": ("GPU-0",), "b": ("GPU-1",), "c": ("GPU-3",)}

    def test_pods_that_are_no_more_are_forgotten(self) -> None:
        record = loaded(an_entry(WHOLE, ("GPU-1",)))
        record.refuse("v")
        assert record.uids() == {"u", "v"}
        for uid in ("u", "v"):
            record.forget(uid)
        assert record.uids() == frozenset()
        assert not record.refused("v")

    def test_a_restarted_kubelet_asks_again_for_what_is_not_in_its_checkpoint(self) -> None:
        record = loaded(an_entry(NVIDIA_VISIBLE_DEVICES="GPU-2", GANGSHARE_GPU_MEM_MIB="4096"))
        record.fix("v", {"main": ("GPU-1",)})
        for resource in (MEM, WHOLE):
            record.note("v", "main", resource)
        record.refuse("w")
        record.recall(MEM, checkpoint.parse(a_file(an_entry())))
        assert record.answered("u", "main", MEM)
        assert not record.answered("v", "main", MEM)
        assert record.answered("v", "main", WHOLE), "that resource is recalled when it is registered"
        assert record.given("v") == {"main": ("GPU-1",)}, "a pod's GPUs stay what they are"
        assert not record.refused("w"), "its refusal may be lost too"
