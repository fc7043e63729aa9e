"""What containers get of the library, and that their regions live as long as their pods."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from deviceplugin.checkpoint import Entry
from deviceplugin.devices import Sharing
from deviceplugin.identify import RefusedError
from deviceplugin.library import contract
from deviceplugin.library.contract import Given
from deviceplugin.library.keeper import Keeper
from deviceplugin.library.regions import Owner, Regions
from deviceplugin.record import Record
from protos.contract import names
from protos.contract.allocation import Share
from protos.contract.inventory import Inventory
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as api
from tests.unit.deviceplugin.builders import an_inventory
from tests.unit.deviceplugin.library.hosts import a_group

LIBRARY = Path("/opt/library/libvgpu.so")
POD = "0a1b2c3d-1111-2222-3333-444455556666"
OWNER = Owner(POD, "main")
GPUS: Inventory = an_inventory(16, 16)
TWO = (Share("GPU-0", 0, 4, 25), Share("GPU-1", 1, 4, 30))


class Host:
    """A folder for regions, control groups, and what the plugin knows of pods."""

    def __init__(self, root: Path) -> None:
        self.folder, self.groups = root / "regions", root / "groups"
        self.folder.mkdir()
        (self.groups / "kubepods.slice").mkdir(parents=True)
        self.regions = Regions(self.folder, 2**40)
        self.owners: list[Owner] = []
        self.pods: set[str] | None = set()

    def keeper(self, caps_compute: bool = False) -> Keeper:
        return Keeper(
            self.regions, LIBRARY, self.groups, lambda: self.owners, lambda: self.pods, caps_compute=caps_compute
        )

    @property
    def files(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "regions").iterdir())


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr("deviceplugin.library.keeper.AFTER_S", -3600.0)  # files of this moment are old enough
    return Host(tmp_path)


def answered(given: Given) -> tuple[dict[str, str], dict[str, tuple[str, bool]]]:
    answer = api.ContainerAllocateResponse(envs={"A": "b"})
    contract.add(answer, given)
    return dict(answer.envs), {mount.container_path: (mount.host_path, mount.read_only) for mount in answer.mounts}


def exists(paths: Iterable[str]) -> bool:
    return all(Path(path).exists() for path in paths)


async def test_a_container_gets_its_limit_for_each_gpu_and_sees_its_own_region_alone(host: Host) -> None:
    given = await host.keeper().give(OWNER, TWO, 4096, GPUS)
    env, mounts = answered(given)
    assert env == {
        "A": "b",
        "CUDA_DEVICE_MEMORY_LIMIT": "4096m",
        "CUDA_DEVICE_MEMORY_LIMIT_0": "4096m",
        "CUDA_DEVICE_MEMORY_LIMIT_1": "4096m",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/usr/local/vgpu/region.cache",
    }
    assert mounts == {
        "/usr/local/vgpu/libvgpu.so": ("/opt/library/libvgpu.so", True),
        "/etc/ld.so.preload": ("/opt/library/ld.so.preload", True),
        "/usr/local/vgpu/region.cache": (str(host.folder / "regions" / f"{POD}_main.cache"), False),
        "/tmp/vgpulock": (str(host.folder / "locks"), False),
    }
    assert exists(host_path for host_path, read_only in mounts.values() if not read_only)
    assert contract.limit_in(env) == 4096


@pytest.mark.parametrize(("slices", "percent"), [(25, "25"), (1, "1"), (100, "100"), (0, None)])
async def test_slices_cap_compute_where_the_operator_wants_it(host: Host, slices: int, percent: str | None) -> None:
    shares = (Share("GPU-0", 0, 4, slices), Share("GPU-1", 1, 4, max(slices, 60)))
    env, _ = answered(await host.keeper(caps_compute=True).give(OWNER, shares, 4096, GPUS))
    assert env.get("CUDA_DEVICE_SM_LIMIT") == percent
    assert env.get("GPU_CORE_UTILIZATION_POLICY") == ("force" if percent else None)
    without, _ = answered(await host.keeper().give(OWNER, shares, 4096, GPUS))
    assert "CUDA_DEVICE_SM_LIMIT" not in without


async def test_a_percentage_is_rounded_up(host: Host) -> None:
    thirds = msgspec.structs.replace(GPUS, slices_per_gpu=3)
    given = await host.keeper(caps_compute=True).give(OWNER, (Share("GPU-0", 0, 4, 1),), 4096, thirds)
    assert given.percent == 34


def test_all_variables_are_those_that_pods_may_not_set() -> None:
    forbidden = (*names.LIBRARY_VARIABLES, *names.LIBRARY_SWITCHES)
    for variable in (contract.MEMORY, contract.THREADS, contract.POLICY, contract.REGION):
        assert variable.startswith(forbidden)


async def test_a_container_that_cannot_have_it_is_refused(host: Host) -> None:
    many = tuple(Share(f"GPU-{i}", i, 4) for i in range(17))
    with pytest.raises(
        RefusedError, match="the library takes 16 GPUs of a container, and it has parts of 17"
    ) as refused:
        await host.keeper().give(OWNER, many, 4096, GPUS)
    assert refused.value.reason.code == "NoIsolation"
    host.folder.rename(host.folder.with_name("away"))
    with pytest.raises(RefusedError, match=r"its region for the library cannot be made \(No such file or directory\)"):
        await host.keeper().give(OWNER, TWO, 4096, GPUS)


async def test_a_region_goes_with_its_pod_but_never_while_a_container_of_it_runs(host: Host) -> None:
    keeper = host.keeper()
    await keeper.give(OWNER, TWO, 4096, GPUS)
    for pods, files in ((None, 1), ({POD}, 1), (set(), 0)):
        host.pods = pods
        await keeper.look()
        assert len(host.files) == files
    await keeper.give(OWNER, TWO, 4096, GPUS)
    group = a_group(host.groups, POD, "ab" * 32, 77)
    await keeper.look()
    assert len(host.files) == 1, "deleted by force, and still running"
    (group / "cgroup.procs").unlink()
    group.rmdir()
    await keeper.look()
    assert host.files == []


async def test_while_control_groups_are_not_seen_nothing_is_removed(host: Host) -> None:
    keeper = host.keeper()
    await keeper.give(OWNER, TWO, 4096, GPUS)
    (host.groups / "kubepods.slice").rmdir()
    await keeper.look()
    assert len(host.files) == 1


async def test_after_a_reboot_regions_of_pods_that_run_again_are_made_and_others_removed(host: Host) -> None:
    for uid in (POD, "uid-dead"):
        await host.keeper().give(Owner(uid, "main"), TWO, 4096, GPUS)
    host.regions.path(OWNER).unlink()
    host.owners, host.pods = [OWNER], {POD}
    await host.keeper().look()
    assert host.files == [f"{POD}_main.cache"]


async def test_a_folder_that_cannot_be_used_is_looked_at_again(host: Host) -> None:
    keeper = host.keeper()
    host.owners, host.pods = [OWNER], {POD}
    host.folder.rename(host.folder.with_name("away"))
    await keeper.look()
    host.folder.mkdir()
    await keeper.look()
    assert host.files == [f"{POD}_main.cache"]


@pytest.mark.parametrize(("text", "limits"), [("4096m", {"main": 4096}), ("", {}), ("-1m", {}), ("4g", {}), ("0m", {})])
def test_a_new_plugin_knows_who_was_given_it_by_the_kubelets_checkpoint(text: str, limits: dict[str, int]) -> None:
    envs = {names.ENV_MEM_MIB: "4096", names.ENV_UUIDS: "GPU-0", contract.MEMORY: text}
    record = Record()
    record.load([Entry(POD, "main", names.GPU_MEM, (), envs)], GPUS, Sharing())
    record.load([Entry("uid-hami", "main", names.GPU_MEM, (), {contract.MEMORY: "4096m"})], GPUS, Sharing())
    assert record.limits_by_library(POD) == limits
    assert record.limits(POD) == {}
    assert record.limits_by_library("uid-hami") == {}, "what another plugin gave is not ours"
    record.forget(POD)
    assert record.limits_by_library(POD) == {}
