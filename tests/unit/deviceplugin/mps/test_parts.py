"""The small parts of the component: GPUs by NVML, clients to end, shared memory, the probe, settings."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from deviceplugin.mps import component, ending, exchange, mounts, probe, processes
from deviceplugin.mps.control import Client
from deviceplugin.mps.ending import Stuck
from deviceplugin.mps.exchange import Process
from deviceplugin.mps.gpus import GpuError, Gpus
from deviceplugin.mps.settings import LONGEST_DIR, Settings
from protos.contract.shared_settings import SettingsError
from tests.unit.deviceplugin.fake_nvml import Gpu
from tests.unit.deviceplugin.mps.conftest import MpsNvml, World, a_holder


def test_what_a_gpu_does_not_tell_has_a_default() -> None:
    nvml = MpsNvml(Gpu(0), Gpu(1, mig=(0, 1), uuid="GPU-x"), Gpu(2, uuid=pynvml.NVMLError_GpuIsLost()))
    found = Gpus(nvml).read()
    assert set(found) == {"GPU-0", "GPU-x"}
    assert (found["GPU-0"].mig, found["GPU-x"].mig) == (False, True)
    assert found["GPU-0"].total_mib == 80 * 1024


def test_an_nvml_that_fails_is_tried_again() -> None:
    nvml = MpsNvml(Gpu(0))
    gpus = Gpus(nvml)
    nvml.init = pynvml.NVMLError_DriverNotLoaded()
    with pytest.raises(GpuError, match="NVML does not answer"):
        gpus.read()
    nvml.init = None
    assert set(gpus.read()) == {"GPU-0"}


def test_a_compute_mode_that_is_refused_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = MpsNvml(Gpu(0))

    def refuse(*_: Any) -> None:
        raise pynvml.NVMLError_NoPermission

    monkeypatch.setattr(nvml, "nvmlDeviceSetComputeMode", refuse, raising=False)
    with pytest.raises(GpuError, match="compute mode of GPU-0"):
        Gpus(nvml).make_exclusive("GPU-0", True)


def test_clients_of_a_pod_are_due_shortly_before_its_end() -> None:
    clients = [Client(1, "s"), Client(2, "s"), Client(3, "s")]
    pods = {1: "leaving", 2: "staying"}
    holders = [a_holder("leaving", ends=100.0), a_holder("staying")]

    def due(now: float) -> list[int]:
        return [c.pid for c in ending.due(clients, holders, lambda pid: pods.get(pid, ""), now, 2.0)]

    assert [due(97.0), due(98.0), due(200.0)] == [[], [1], [1]]


def test_a_client_is_stuck_after_some_patience() -> None:
    stuck, client = Stuck(10.0), Client(7, "s")
    assert stuck.see([client], lambda _: False, 0.0) == []
    assert stuck.see([client], lambda _: True, 5.0) == []
    assert stuck.see([client], lambda _: False, 6.0) == []
    assert stuck.see([client], lambda _: False, 17.0) == [client]
    assert stuck.see([], lambda _: False, 18.0) == []


async def test_a_process_that_got_the_number_later_is_not_ended() -> None:
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(60)")
    try:
        here = processes.of(child.pid)
        assert here is not None
        await processes.end([Process(here.pid, here.start + 1)])
        assert processes.alive(here)
        await processes.end([here])
        assert not processes.alive(here)
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()
    assert processes.of(child.pid) is None


def test_what_containers_can_write_into_is_of_limited_size_and_mounted_once(tmp_path: Path) -> None:
    listed, called = tmp_path / "mountinfo", list[tuple[Any, ...]]()
    gpus, shm = tmp_path / "gpus", tmp_path / "shm"
    listed.write_text(f"36 35 98:0 / {gpus} rw - tmpfs tmpfs rw\n37 35 98:0 / /other rw - tmpfs tmpfs rw\n")
    mounts.prepare(tmp_path, 64, listed, lambda *call: called.append(call))
    assert gpus.is_dir()
    assert called == [
        (b"tmpfs", bytes(shm), b"tmpfs", mounts.NOSUID | mounts.NODEV, b"size=64m,mode=1777"),
        (bytes(shm), b"/dev/shm", None, mounts.BIND, None),
    ]


def test_a_mount_that_is_refused_says_why(tmp_path: Path) -> None:
    with pytest.raises(mounts.MountError, match=r"cannot be mounted on .*none"):
        mounts.mount(b"none", bytes(tmp_path / "none"), None, mounts.BIND, None)


def a_cuda(**statuses: int) -> Any:
    steps = ("cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2")
    answers = {name: statuses.get(name, 0) for name in steps}
    return SimpleNamespace(**{name: lambda *_, status=status: status for name, status in answers.items()})


def test_the_probe_says_which_call_failed() -> None:
    assert probe.connect(a_cuda()) == ""
    assert probe.connect(a_cuda(cuInit=807)) == "cuInit failed with status 807"


def test_a_node_without_the_library_cannot_be_probed() -> None:
    if any(Path(folder, probe.LIBRARY).exists() for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64")):
        pytest.skip("this machine has the library")
    done = subprocess.run([sys.executable, "-m", "deviceplugin.mps.probe"], capture_output=True, text=True, check=False)
    assert done.returncode == probe.UNKNOWN


async def test_the_protocol_is_what_the_program_knows(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(control=str(world.program), mps_dir=world.folder)
    assert await component.protocol(settings) == 3
    monkeypatch.setenv("STANDIN_PROTOCOL", "2")
    assert await component.protocol(settings) == 2
    assert await component.protocol(Settings(control="/none/nvidia-cuda-mps-control")) == 2
    assert await component.protocol(Settings(control="/none", protocol="3")) == 3


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"gpus": frozenset()}, "--gpus is empty: expected all"),
        ({"mps_dir": Path("mps")}, "--mps-dir is mps: expected an absolute path"),
        ({"mps_dir": Path("/run/" + "x" * 40)}, "of at most 24 characters"),
        ({"probe_s": -1.0}, "--probe is -1.0: expected 0 or more"),
        ({"end_clients_s": float("nan")}, "--end-clients is nan: expected 0 or more"),
        ({"shm_mib": 0}, "--shm-mib is 0: expected 1 or more"),
    ],
)
def test_a_setting_that_cannot_be_used_is_an_error_that_names_it(bad: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        Settings(**bad)


def test_gpus_are_given_over_by_uuid_or_index() -> None:
    assert Settings().takes(3, "GPU-x")
    some = Settings(gpus=frozenset({"1", "GPU-x"}))
    assert [some.takes(0, "GPU-y"), some.takes(1, "GPU-y"), some.takes(2, "GPU-x")] == [False, True, True]


def test_the_longest_path_of_a_socket_fits() -> None:
    uuid = "GPU-00000000-0000-0000-0000-000000000000"
    folder = exchange.folder_of(Path("/" + "x" * (LONGEST_DIR - 1)), uuid)
    deepest = folder / "pipe" / "gpu" / exchange.namespace("p/main") / "control"
    assert len(os.fsencode(deepest)) <= 107
