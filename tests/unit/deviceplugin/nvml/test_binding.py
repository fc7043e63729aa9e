"""Real GPUs through nvidia-ml-py's real binding: a library in C stands in for the driver's libnvidia-ml.so.1."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from protos.contract import mig

SOURCE = Path(__file__).with_name("stub.c")
UUIDS = [f"GPU-00000000-0000-0000-0000-00000000000{i}" for i in range(4)]
READ = """
import os, msgspec, pynvml
from deviceplugin.nvml import NvmlSource
source = NvmlSource(pynvml)
def tell(value):
    print(msgspec.json.encode(value).decode())
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the compiled library."""
    return compiled(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the library of a driver before r615."""
    return compiled(tmp_path_factory.mktemp("older"), "-DBEFORE_R615")


def compiled(folder: Path, *defined: str) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        if os.environ.get("CI"):
            pytest.fail("no C compiler: the binding to NVML cannot be tried")
        pytest.skip("no C compiler to build the pretended NVML with")
    target = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, *defined, "-shared", "-fPIC", "-Wall", "-Werror", "-o", target, SOURCE], check=True)
    return folder


def told(library: Path, script: str, **stub: str) -> list[Any]:
    """What a process says that reads the machine as the plugin does; `stub` is the environment of the library."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library), **{f"STUB_{key}": text for key, text in stub.items()}}
    command = [sys.executable, "-X", "faulthandler", "-c", READ + script]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_everything_is_read_through_the_real_binding(library: Path) -> None:
    (machine,) = told(library, "tell(source.read())")
    assert [gpu["uuid"] for gpu in machine["gpus"]] == UUIDS
    assert machine["gpus"][1] == {
        "index": 1,
        "uuid": UUIDS[1],
        "minor": 2,
        "mem_mib": 143_000,
        "model": "NVIDIA H200",
        "clock_mhz": 1980,
        "cc": "9.0",
        "numa": 0,
        "pci": "0000:11:00.0",
        "mig": False,
        "trouble": "",
        "profile": "",
        "parent": "",
        "gi": -1,
        "ci": -1,
        "nodes": [],
    }
    assert machine["gpus"][2]["numa"] == 1
    kinds = {(a, b): kind for a, b, kind in machine["links"]}
    assert kinds == {(0, 1): "NV2", (2, 3): "NV4", **dict.fromkeys([(0, 2), (0, 3), (1, 2), (1, 3)], "SYS")}
    assert machine["fabric"] == {"cluster": "ab" * 16, "clique": 7}


def test_mig_mode_and_a_pending_recovery(library: Path) -> None:
    (machine,) = told(library, "tell(source.read())", MIG="1", RECOVERY="2")
    assert [gpu["mig"] for gpu in machine["gpus"]] == [False, True, False, False]
    assert [gpu["trouble"] for gpu in machine["gpus"]] == ["", "", "recovery-action-1", ""]


@pytest.mark.parametrize(
    ("function", "field", "default"),
    [
        ("nvmlDeviceGetMemoryInfo_v2", "mem_mib", 143_771),
        ("nvmlDeviceGetMinorNumber", "minor", 1),
        ("nvmlDeviceGetName", "model", ""),
        ("nvmlDeviceGetMaxClockInfo", "clock_mhz", 0),
        ("nvmlDeviceGetCudaComputeCapability", "cc", ""),
        ("nvmlDeviceGetMemoryAffinity", "numa", -1),
        ("nvmlDeviceGetPciInfo_v3", "pci", ""),
        ("nvmlDeviceGetMigMode", "mig", False),
        ("nvmlDeviceGetFieldValues", "trouble", ""),
    ],
)
def test_a_function_that_is_not_supported_costs_its_field_alone(
    library: Path, function: str, field: str, default: object
) -> None:
    (machine,) = told(library, "tell(source.read())", HIDE=function)
    gpu = machine["gpus"][1]
    assert gpu[field] == default
    assert (gpu["uuid"], gpu["trouble"]) == (UUIDS[1], "")


PROCESSES = """
from deviceplugin.usage.processes import NvmlProcesses
processes = NvmlProcesses(pynvml)
for _ in range(2):
    for gpu in processes.read():
        tell([gpu.uuid, sorted(gpu.processes), gpu.sm, gpu.trouble])
"""
MIB = 2**20


def test_processes_and_what_they_do_are_read_through_the_real_binding(library: Path) -> None:
    first, second, third, last, *again = told(library, PROCESSES)
    assert first == [UUIDS[0], [[1000, 310 * MIB], [2000, None]], {"1000": 0.4}, ""]
    assert second == [UUIDS[1], [[1001, 310 * MIB], [2001, None]], {"1001": 0.4}, ""]
    assert third == [UUIDS[2], [[1002, 310 * MIB], [2002, None]], {}, ""]
    assert last == [UUIDS[3], [], {}, ""]
    assert again == [first, second, third, last]


@pytest.mark.parametrize(
    ("function", "processes", "sm"),
    [
        ("nvmlDeviceGetComputeRunningProcesses_v3", [[1000, 310 * MIB], [2000, None]], {"1000": 0.4}),
        ("nvmlDeviceGetGraphicsRunningProcesses_v3", [[1000, 300 * MIB], [2000, None]], {"1000": 0.4}),
        ("nvmlDeviceGetMPSComputeRunningProcesses_v3", [[1000, 310 * MIB]], {"1000": 0.4}),
        ("nvmlDeviceGetProcessUtilization", [[1000, 310 * MIB], [2000, None]], None),
    ],
)
def test_a_list_that_is_not_supported_costs_only_itself(
    library: Path, function: str, processes: list[Any], sm: Any
) -> None:
    first, *_ = told(library, PROCESSES, HIDE=function)
    assert first == [UUIDS[0], processes, sm, ""]


def test_a_list_that_grows_is_read_again_and_a_lost_gpu_is_left_out(library: Path) -> None:
    first, second, third, *_ = told(library, PROCESSES, GROWS="2", LOST="1")
    assert first == [UUIDS[0], [[1000, 310 * MIB], [2000, None]], {"1000": 0.4}, ""]
    assert [second[0], third[0]] == [UUIDS[2], UUIDS[3]]
    first, *_ = told(library, PROCESSES, GROWS="9")
    assert "does not tell its processes" in first[3]


def test_an_error_names_its_gpu_also_once_that_is_lost(library: Path) -> None:
    script = """
source.read()
tell(source.poll(0.0))
os.environ["STUB_XID"] = "1:31"
tell(source.poll(0.0))
os.environ["STUB_LOST"] = "2"
os.environ["STUB_XID"] = "2:79"
tell(source.poll(0.0))
tell(source.read())
source.close()
del os.environ["STUB_LOST"]
tell(source.read())
"""
    nothing, one, lost, without, again = told(library, script)
    assert (nothing, one, lost) == ([], [[UUIDS[1], 31]], [[UUIDS[2], 79]])
    assert [gpu["index"] for gpu in without["gpus"]] == [0, 1, 3]
    assert [gpu["index"] for gpu in again["gpus"]] == [0, 1, 2, 3]


LIMITS = """
source.read()
for uuid in ("GPU-00000000-0000-0000-0000-000000000001", "GPU-00000000-0000-0000-0000-000000000000"):
    tell(source.memory_limit(uuid, "/sys/fs/cgroup/some"))
"""


def test_memory_limits_of_a_control_group_are_read_through_the_real_library(library: Path) -> None:
    (machine,) = told(library, "tell(source.read())")
    assert (machine["driver"], machine["limits"]) == ("615.71.05", True)
    one, other = told(library, LIMITS, GROUP="/sys/fs/cgroup/some", LIMIT="4096")
    assert (one, other) == ([4096 << 20, 7 << 20], None)


@pytest.mark.parametrize("limit", ["-100", "-6", "-3"], ids=["no limit", "not found", "not supported"])
def test_a_group_without_a_limit_has_none(library: Path, limit: str) -> None:
    assert told(library, LIMITS, GROUP="/sys/fs/cgroup/some", LIMIT=limit) == [None, None]


READS = """
from deviceplugin.machine import SourceError
source.read()
for uuid in ("GPU-00000000-0000-0000-0000-000000000001", "GPU-of-nobody-x"):
    try:
        tell(source.memory_limit(uuid, "/sys/fs/cgroup/some"))
    except SourceError as error:
        tell(str(error))
"""


@pytest.mark.parametrize("limit", ["-2", "-17", "-999"])
def test_an_error_is_no_answer(library: Path, limit: str) -> None:
    for said in told(library, READS, GROUP="/sys/fs/cgroup/some", LIMIT=limit):
        assert "the driver does not tell the limit of /sys/fs/cgroup/some" in said
    assert all("does not tell" in said for said in told(library, READS)), "the directory is gone"


def test_an_older_driver_lacks_the_call_and_all_else_works(older: Path) -> None:
    (machine,) = told(older, "tell(source.read())", DRIVER="595.91.07")
    assert (machine["driver"], machine["limits"]) == ("595.91.07", False)
    assert [gpu["uuid"] for gpu in machine["gpus"]] == UUIDS
    assert all("does not tell" in said for said in told(older, READS, GROUP="/sys/fs/cgroup/some"))


@pytest.mark.parametrize("hidden", ["", "nvmlDeviceGetName"])
def test_mig_instances_are_read_through_the_real_binding(library: Path, hidden: str) -> None:
    script = "source = NvmlSource(pynvml, mig=True); tell(source.read())"
    (machine,) = told(library, script, SPLIT="1", HIDE=hidden)
    assert [gpu["mig"] for gpu in machine["gpus"]] == [False, True, False, False, False, False]
    first, second = machine["gpus"][4:]
    assert (first["uuid"], second["uuid"]) == tuple(f"MIG-{'0' * 8}-0000-0000-0000-{n:012}" for n in (0, 2))
    assert (first["index"], second["index"]) == (mig.index(1, 0), mig.index(1, 2))
    assert {key: second[key] for key in ("profile", "mem_mib", "parent", "gi", "ci", "minor")} == {
        "profile": "1g.18gb+me",
        "mem_mib": 16_896,
        "parent": UUIDS[1],
        "gi": 9,
        "ci": 0,
        "minor": 2,
    }


def test_an_error_of_an_instance_is_read_through_the_real_binding(library: Path) -> None:
    script = "source = NvmlSource(pynvml, mig=True); source.read(); tell(source.poll(0))"
    assert told(library, script, SPLIT="1", XID="1:94") == [[[f"MIG-{'0' * 8}-0000-0000-0000-{2:012}", 94]]]
