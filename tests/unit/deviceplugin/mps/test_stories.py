"""Stories of one node with MPS, told with the stand-in of the control program and real processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import pynvml
import pytest

from deviceplugin.mps import checks, daemon, exchange, processes
from tests.unit.deviceplugin.fake_nvml import Gpu
from tests.unit.deviceplugin.mps.conftest import World, a_holder, line, replaced

KILLED = "tests.unit.deviceplugin.mps.killed"


def is_folder(path: str) -> bool:
    return Path(path).is_dir()


async def test_a_daemon_is_started_and_all_is_given_back(world: World) -> None:
    world.hold()
    async with world.running():
        served = await world.phase("serving")
        assert world.nvml.exclusive()
        assert len(served.processes) == 2  # the daemon and its server
    assert not world.nvml.exclusive()
    assert not any(map(processes.alive, served.processes))
    assert world.state() is None


async def test_no_daemon_runs_before_the_plugin_has_said_who_holds_the_gpus(world: World) -> None:
    async with world.running():
        await world.until(lambda served: "not said yet" in served.why)
        assert not world.nvml.exclusive()
        world.hold()
        await world.phase("serving")


async def test_a_container_is_admitted_with_its_limits(world: World) -> None:
    small, large = a_holder("a", mem_mib=2048, percent=25), a_holder("b", mem_mib=8192, percent=50)
    world.hold(small)
    async with world.running():
        folders = await world.admitted(small)
        world.hold(small, large)
        folders = await world.admitted(small, large)
        assert all(map(is_folder, folders.values()))
        limits = [words for words in world.commands() if "set" in words]
        if world.protocol == 3:
            assert folders[small.key] != folders[large.key]
            assert sum("--pinned-memory-limit=2048M --active-thread-percentage=25" in words for words in limits) == 1
            assert sum("--pinned-memory-limit=8192M --active-thread-percentage=50" in words for words in limits) == 1
        else:
            assert set(folders.values()) == {str(exchange.folder_of(world.folder, "GPU-0") / "pipe")}
            assert "set_default_active_thread_percentage 25" in limits
            assert limits[-1].startswith("set_device_pinned_mem_limit")
            assert limits[-1].endswith(" 0 8192M")
        world.hold(large)
        assert list(await world.admitted(large)) == [large.key]
        if world.protocol == 3:
            assert not is_folder(folders[small.key])


async def test_a_gpu_is_lent_to_a_container_that_holds_it_whole(world: World) -> None:
    world.hold()
    async with world.running():
        before = await world.phase("serving")
        world.hold(a_holder("whole", mps=False))
        served = await world.phase("yielded")
        assert "pod whole" in served.why
        await world.until(lambda _: not world.nvml.exclusive())
        assert not any(map(processes.alive, before.processes))
        world.hold()
        await world.phase("serving")
        assert world.nvml.exclusive()


async def test_a_whole_holder_from_before_is_left_alone(world: World) -> None:
    world.hold(a_holder("whole", mps=False))
    async with world.running():
        await world.phase("yielded")
        assert not world.nvml.exclusive()
        assert world.commands() == []


async def test_a_part_from_before_mps_blocks_it_until_it_is_gone(world: World) -> None:
    old, new = a_holder("old", mps=False), a_holder("new")
    world.hold(old, new)
    async with world.running():
        served = await world.phase("blocked")
        assert "pod old" in served.why
        assert world.commands() == []
        world.hold(new)
        await world.admitted(new)


async def test_a_gpu_in_mig_mode_is_refused(world: World) -> None:
    world.nvml.gpus[0].fields["mig"] = (1, 1)
    world.hold()
    async with world.running():
        served = await world.phase("blocked")
        assert "MIG" in served.why
        assert not world.nvml.exclusive()
        assert world.commands() == []
        world.nvml.gpus[0].fields["mig"] = (0, 0)
        await world.phase("serving")
        world.nvml.gpus[0].fields["mig"] = (0, 1)
        await world.until(lambda served: served.phase == "blocked" and not served.processes)


async def test_a_process_outside_mps_is_not_driven_out(world: World) -> None:
    world.nvml.pids["GPU-0"] = [os.getpid()]
    world.hold()
    async with world.running():
        served = await world.phase("blocked")
        assert "no client of MPS" in served.why
        assert not world.nvml.exclusive()
        world.nvml.pids["GPU-0"] = []
        await world.phase("serving")


async def test_only_gpus_that_are_given_over_are_touched(world: World) -> None:
    world.nvml.gpus.append(Gpu(1))
    world.hold()
    async with world.running(gpus=frozenset({"GPU-1"})):
        await world.phase("serving", "GPU-1")
        state = world.state()
        assert state is not None
        assert set(state.gpus) == {"GPU-1"}
        assert not world.nvml.exclusive("GPU-0")


async def test_a_wedged_daemon_is_told_and_replaced_once_nothing_holds_the_gpu(world: World) -> None:
    holder = a_holder()
    world.hold(holder)
    async with world.running():
        await world.admitted(holder)
        before = world.served().processes
        world.unkind("wedged")
        served = await world.phase("wedged")
        assert "no answer" in served.why
        assert not served.admitted
        await asyncio.sleep(0.5)
        assert processes.alive(before[0])  # containers may still compute
        world.unkind("wedged", on=False)
        world.hold()
        served = await world.until(lambda served: served.phase == "serving" and before[0] not in served.processes)
        assert not any(map(processes.alive, before))


async def test_a_server_that_is_blocked_by_a_fault_recovers_without_a_restart(world: World) -> None:
    holder = a_holder()
    world.hold(holder)
    async with world.running():
        await world.admitted(holder)
        before = world.served().processes
        world.unkind("fault")
        await world.phase("wedged")
        world.unkind("fault", on=False)
        await world.admitted(holder)
        assert world.served().processes == before


async def test_clients_that_cannot_connect_are_noticed(world: World) -> None:
    holder = a_holder()
    world.hold(holder)
    async with world.running(probe_s=0.3):
        await world.admitted(holder)
        world.unkind("deaf")
        served = await world.phase("wedged")
        assert "a client cannot connect (refused)" in served.why
        world.unkind("deaf", on=False)
        await world.phase("serving")


async def test_a_client_that_has_ended_and_stays_listed_is_noticed(world: World) -> None:
    holder = a_holder()
    world.hold(holder)
    async with world.running():
        folders = await world.admitted(holder)
        world.unkind("stuck")
        async with world.client(folders[holder.key]) as client:
            assert await line(client) == "connected"
        served = await world.phase("wedged")
        assert f"process {client.pid}" in served.why


async def test_clients_of_a_pod_are_ended_before_the_kubelet_kills_it(world: World) -> None:
    leaving, staying = a_holder("leaving"), a_holder("staying")
    world.hold(leaving, staying)
    async with world.running(end_clients_s=5.0):
        folders = await world.admitted(leaving, staying)
        async with (
            world.client(folders[leaving.key], "leaving") as first,
            world.client(folders[staying.key], "staying") as second,
        ):
            assert [await line(first), await line(second)] == ["connected", "connected"]
            world.hold(replaced(leaving, ends=time.time() + 60), staying)
            await asyncio.sleep(0.5)
            assert first.returncode is None
            world.hold(replaced(leaving, ends=time.time() + 1), staying)
            assert await line(first) == "terminated"
            assert second.returncode is None
    assert sum("terminate" in words for words in world.commands()) == 1


async def test_a_daemon_that_was_killed_is_replaced(world: World) -> None:
    world.hold()
    async with world.running():
        before = (await world.phase("serving")).processes
        os.kill(before[0].pid, signal.SIGKILL)
        served = await world.until(lambda served: served.phase == "serving" and before[0] not in served.processes)
        assert not any(map(processes.alive, before))
        assert len(served.processes) == 2


async def test_a_server_that_was_killed_is_replaced_beside_its_holders(world: World) -> None:
    holder = a_holder()
    world.hold(holder)
    async with world.running():
        await world.admitted(holder)
        before = world.served().processes
        os.kill(before[1].pid, signal.SIGKILL)
        await world.until(lambda served: served.phase == "serving" and before[1] not in served.processes)
        await world.admitted(holder)


async def test_a_holder_is_admitted_while_a_check_hangs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "PROBE_S", 600.0)
    world.hold()
    async with world.running(probe_s=0.1):
        await world.phase("serving")
        world.unkind("slow")
        holder = a_holder(mem_mib=1024)
        world.hold(holder)
        await world.admitted(holder)


async def test_a_daemon_that_was_killed_beside_clients_is_replaced_with_its_folders_kept(world: World) -> None:
    holder = a_holder()
    world.hold(holder)
    async with world.running():
        folders = await world.admitted(holder)
        pipe = (exchange.folder_of(world.folder, "GPU-0") / "pipe").stat().st_ino
        before = world.served().processes
        async with world.client(folders[holder.key], "p") as client:
            assert await line(client) == "connected"
            os.kill(before[0].pid, signal.SIGKILL)
            await world.until(lambda served: served.phase == "serving" and before[0] not in served.processes)
            folders = await world.admitted(holder)
        assert (
            exchange.folder_of(world.folder, "GPU-0") / "pipe"
        ).stat().st_ino == pipe  # it is mounted into containers
        async with world.client(folders[holder.key], "p") as client:
            assert await line(client) == "connected"


async def test_logs_do_not_fill_the_memory(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "LOG_BYTES", 1000)
    world.hold()
    async with world.running():
        await world.phase("serving")
        long, short = (
            exchange.folder_of(world.folder, "GPU-0") / "log" / f"{name}.log" for name in ("control", "server")
        )
        short.write_bytes(b"x")
        long.write_bytes(b"x" * 2000)
        async with asyncio.timeout(10):
            while long.stat().st_size:  # noqa: ASYNC110 - a file has no event
                await asyncio.sleep(0.02)
        assert short.read_bytes() == b"x"


async def test_a_daemon_that_does_not_start_is_tried_again(world: World) -> None:
    world.unkind("refuse")
    world.hold()
    async with world.running():
        served = await world.phase("wedged")
        assert "does not start" in served.why
        world.unkind("refuse", on=False)
        await world.phase("serving")


async def test_a_component_that_was_killed_leaves_no_daemon_and_no_mode_behind(world: World) -> None:
    world.nvml.gpus.append(Gpu(1))
    world.hold()
    killed = await asyncio.create_subprocess_exec(sys.executable, "-m", KILLED, str(world.folder), str(world.protocol))
    try:
        await world.phase("serving")
        await world.phase("serving", "GPU-1")
    finally:
        killed.kill()
        await killed.wait()
    state = world.state()
    assert state is not None
    left = [process for served in state.gpus.values() for process in served.processes]
    assert len(left) == 4
    for gpu in world.nvml.gpus:
        world.nvml.nvmlDeviceSetComputeMode(gpu, pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
    async with world.running(gpus=frozenset({"0"})):
        served = await world.until(lambda served: served.phase == "serving" and left[0] not in served.processes)
        assert not any(map(processes.alive, left))
        assert not world.nvml.exclusive("GPU-1")
        assert len(served.processes) == 2
    assert not world.nvml.exclusive("GPU-0")


async def test_a_daemon_that_outlives_a_killed_component_is_ended_by_the_next(world: World) -> None:
    orphan = await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(60)")
    later = await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(60)")
    try:
        process, other = processes.of(orphan.pid), processes.of(later.pid)
        assert process is not None
        assert other is not None
        taken = exchange.Process(other.pid, other.start - 1)  # the ID has passed on to another process since
        served = exchange.Served(phase="serving", processes=(process, taken))
        exchange.write(world.folder, exchange.State(v=1, beat=0.0, protocol=2, gpus={"GPU-0": served}))
        world.hold()
        async with world.running():
            await orphan.wait()
            await world.phase("serving")
            assert later.returncode is None
    finally:
        for each in (orphan, later):
            with contextlib.suppress(ProcessLookupError):
                each.kill()
            await each.wait()


async def test_a_file_that_cannot_be_read_leaves_the_last_one_in_force(world: World) -> None:
    holder = a_holder()
    world.hold(holder)
    async with world.running():
        await world.admitted(holder)
        (world.folder / "holders.json").write_text('{"v": 1, "holders": [{"pod": 7}]}')
        await asyncio.sleep(0.4)
        await world.admitted(holder)
