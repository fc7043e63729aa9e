"""A library of the operator's and MIG on real nodes, with real containers, mounts and control groups.

`node-1` has a driver that limits nothing, and the operator's library. `node-2` has a GPU with MIG instances, and one
of which they are made on demand. The GPUs, the driver and the library are stand-ins; kubelets, containerd and the
components' accounts are real.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deviceplugin.fake import FakeSource
from deviceplugin.library import contract
from deviceplugin.partitioner import fake
from protos.contract import names
from tests.cluster import host, toolkit
from tests.cluster.api import Json
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import NAMESPACE, ROOT, Gangshare
from tests.cluster.levels import (
    PROMISED,
    REPLICA_SETS,
    a_pod,
    a_replica_set,
    containerd_with_cdi,
    enforced,
    environment,
    group_of,
    metric,
    process_of,
    reaches,
    restart,
    running,
    told,
    unified_root,
    waits,
)
from tests.cluster.process import Process, wait_for
from tests.sim.standin_library import Library
from tests.unit.deviceplugin.library.hosts import install

OLD_DRIVER, MIG = "node-1", "node-2"
LIBRARY, DRIVER = "memory enforced (library), compute promised", "memory enforced (driver), compute promised"
SMALL, LARGE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
PORTS = {node: host.free_port() for node in (OLD_DRIVER, MIG)}
"""Of the plugins: their metrics."""
MACHINES: dict[str, Json] = {
    OLD_DRIVER: {
        "defaults": {"model": "Tesla T4", "memMiB": 14910, "cc": "7.5"},
        "gpus": [{}, {}],
        "driver": "535.183.01",
        "toolkit": "1.20.1",
        "limits": {},
    },
    MIG: {
        "defaults": {"model": "NVIDIA H100 80GB HBM3", "memMiB": 81039, "cc": "9.0"},
        "gpus": [
            {"health": "mig", "instances": [{"profile": "1g.10gb"}, {"profile": "1g.10gb"}, {"profile": "3g.40gb"}]},
            {"health": "mig", "dynamic": True},
        ],
    },
}
LOADS = "cat /etc/ld.so.preload; until [ -s $CUDA_DEVICE_MEMORY_SHARED_CACHE ]; do sleep 0.1; done; echo loaded"


@pytest.fixture(scope="module")
def root() -> Path:
    return unified_root()


@pytest.fixture(scope="module")
def cluster(able_machine: None, root: Path) -> Iterator[Cluster]:
    with Cluster.up(nodes=2, scheduler=False, containerd=containerd_with_cdi()) as running:
        yield running


class Machines:
    """Both nodes: what the operator put there, and what their programs do."""

    def __init__(self, cluster: Cluster, root: Path) -> None:
        self.cluster, self.root = cluster, root
        self.library, self.regions = cluster.dir / "library", cluster.dir / "regions"
        for folder in (self.library, self.regions):
            folder.mkdir()
        install(self.library)
        self.socket, self.state = cluster.dir / "made" / "p.sock", cluster.dir / "partitioner"
        one, two = cluster.nodes[OLD_DRIVER], cluster.nodes[MIG]
        limited = ["--isolation=auto", f"--library-path={self.library}/libvgpu.so", f"--library-dir={self.regions}"]
        limited += [
            f"--library-dir-mib={2**40}",
            f"--cgroup-root={root / one.cgroup}",
            f"--metrics-port={PORTS[OLD_DRIVER]}",
        ]
        limited += ["--device-list-strategy=cdi-cri", f"--cdi-spec-dirs={one.cdi}"]
        cut = ["--mig-strategy=mixed", f"--partitioner-socket={self.socket}", f"--cgroup-root={root / two.cgroup}"]
        args = {OLD_DRIVER: limited, MIG: [*cut, f"--metrics-port={PORTS[MIG]}", "--cool-down=1"]}
        parts = ("nvidia", "isolation-driver", "isolation-library", "mig", "mig-dynamic")
        self.sharing = Gangshare(cluster, MACHINES, components=parts, plugin_args=args)
        toolkit.specify(one.cdi, self.sharing.profiles[OLD_DRIVER], OLD_DRIVER, root)
        self.partitioner = self._partitioner()

    def _partitioner(self) -> Process:
        argv = [sys.executable, "-m", "deviceplugin.partitioner", f"--fake={self.sharing.profiles[MIG]}"]
        argv += [f"--node-name={MIG}", f"--socket={self.socket}", f"--state-dir={self.state}"]
        return self.cluster.process("partitioner", argv, node=MIG, cwd=ROOT)

    def reboot(self) -> None:
        """`node-2` starts again. Its instances that were made are gone; the partitioner's journal is not."""
        (self.state / fake.NAME).unlink()
        self.sharing.reboot(MIG)
        self.partitioner.kill()  # dead already: this reaps
        self.partitioner = self._partitioner().start()
        self.cluster.nodes[MIG].wait_ready()

    def restart(self, node: str) -> None:
        """The plugin of a node is killed, and starts anew."""
        restart(self.sharing.plugins[node])
        wait_for(lambda: metric("gangshare_plugin_registered", PORTS[node]) > 0, 30, "plugin that the kubelet follows")

    def load(self, pod: str) -> None:
        """The pod's program loads the library, which writes to the file that the container was given."""
        (uuid,) = self.sharing.annotated(self.cluster.pod(pod))["main"]
        uid = self.cluster.pod(pod)["metadata"]["uid"]
        library = Library(self.regions / "regions" / f"{uid}_main.cache", environment(self.sharing, pod), [uuid])
        library.load()
        library.count_gpus()
        library.begin(1, gpu0=2**30)

    def use(self, pod: str) -> None:
        """The driver tells that the pod's process uses its GPU."""
        uuid, pid = process_of(self.sharing, self.root, pod)

        uuids = [gpu.uuid for gpu in FakeSource(str(self.sharing.profiles[OLD_DRIVER]), OLD_DRIVER).read().gpus]
        self._processes(uuids.index(uuid), {"pid": pid, "memMiB": 1024})

    def end(self, pod: str) -> None:
        """The pod is deleted, and its process is gone."""
        self._processes(0)
        self.cluster.api.delete(f"/api/v1/namespaces/default/pods/{pod}", gracePeriodSeconds="1")
        wait_for(lambda: pod not in {each["metadata"]["name"] for each in self.cluster.pods("default")}, 30, "its end")

    def _processes(self, index: int, *processes: dict[str, int]) -> None:
        """The driver of `node-1` tells of these alone, on the GPU with this index."""

        def change(machine: dict[str, Any]) -> None:
            for each, gpu in enumerate(machine["gpus"]):
                gpu["processes"] = list(processes) if each == index else []

        toolkit.edit(self.sharing.profiles[OLD_DRIVER], change)

    def made(self) -> dict[str, str]:
        """The instances that the driver was asked to make: UUID by place."""
        file = self.state / fake.NAME
        found = msgspec.json.decode(file.read_bytes()) if file.exists() else {}
        return {place: each["device"] for place, each in found.items()}

    def place(self, pod: str) -> str:
        (uuid,) = self.sharing.annotated(self.cluster.pod(pod))["main"]
        return uuid


@pytest.fixture(scope="module")
def machines(cluster: Cluster, root: Path) -> Iterator[Machines]:
    made = Machines(cluster, root)
    own = a_pod("own", mem=0, nodeName=OLD_DRIVER, restartPolicy="Always")
    own["metadata"]["namespace"] = NAMESPACE  # as every node has one; the plugin sees its process
    cluster.create_pod(own)
    made.partitioner.start()
    made.sharing.start()
    yield made
    made.partitioner.stop()
    made.sharing.stop()


@pytest.fixture(autouse=True)
def tidy(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.delete_pods()


# -- a library


def test_a_part_gets_the_library_and_is_read_back_also_by_a_new_plugin(machines: Machines) -> None:
    sharing = machines.sharing
    reaches(sharing, OLD_DRIVER, LIBRARY)
    sharing.run(a_pod("held", OLD_DRIVER, demands=True, script=f"env; {LOADS}; sleep infinity"))
    machines.load("held")
    wait_for(lambda: "loaded" in machines.cluster.pod_log("held").splitlines(), 30, "the region in the container")
    env = environment(sharing, "held")
    assert env[contract.MEMORY] == "4096m"
    assert names.MEMORY_LIMIT not in env
    assert "/usr/local/vgpu/libvgpu.so" in machines.cluster.pod_log("held").splitlines()
    machines.use("held")
    enforced(1, PORTS[OLD_DRIVER])
    sharing.run(a_pod("whole", OLD_DRIVER, mem=0, whole=1, demands=True))
    assert contract.MEMORY not in environment(sharing, "whole")
    machines.restart(OLD_DRIVER)
    enforced(1, PORTS[OLD_DRIVER])
    reaches(sharing, OLD_DRIVER, LIBRARY)


def test_after_a_reboot_a_controllers_pod_has_a_region_of_its_own_again(machines: Machines) -> None:
    sharing = machines.sharing
    reaches(sharing, OLD_DRIVER, LIBRARY)
    pod = a_pod("stays", OLD_DRIVER, demands=True, restartPolicy="Always")
    machines.cluster.api.post(REPLICA_SETS, a_replica_set("stays", pod))
    try:
        (before,) = wait_for(lambda: running(sharing, "stays"), 30, "its pod")
        sharing.reboot(OLD_DRIVER)
        machines.cluster.nodes[OLD_DRIVER].wait_ready()

        def again() -> list[str]:
            return [pod["metadata"]["name"] for key, pod in running(sharing, "stays").items() if key != before]

        (name,) = wait_for(again, 60, "a new container of it")
        machines.load(name)
        machines.use(name)
        enforced(1, PORTS[OLD_DRIVER])
    finally:
        machines.cluster.api.delete(f"{REPLICA_SETS}/stays", propagationPolicy="Background")


def test_a_program_without_the_library_is_found_out_and_the_node_is_believed_no_more(machines: Machines) -> None:
    sharing = machines.sharing
    reaches(sharing, OLD_DRIVER, LIBRARY)
    sharing.run(a_pod("escapes", OLD_DRIVER, demands=True))
    machines.use("escapes")
    assert "library" in told(sharing, "escapes", "IsolationMismatch")
    reaches(sharing, OLD_DRIVER, PROMISED)
    waits(sharing, a_pod("next", OLD_DRIVER, demands=True))
    machines.end("escapes")
    install(machines.library)
    machines.cluster.wait_phase("next", "Running")
    reaches(sharing, OLD_DRIVER, LIBRARY)


def test_with_a_newer_driver_new_parts_are_limited_by_it(machines: Machines, root: Path) -> None:
    sharing = machines.sharing
    reaches(sharing, OLD_DRIVER, LIBRARY)
    toolkit.edit(sharing.profiles[OLD_DRIVER], lambda machine: machine.update(driver="615.71.05"))
    reaches(sharing, OLD_DRIVER, DRIVER)
    sharing.run(a_pod("limited", OLD_DRIVER, demands=True))
    env = environment(sharing, "limited")
    assert env[names.MEMORY_LIMIT] == "4096"
    assert contract.MEMORY not in env
    assert str(group_of(sharing, root, "limited"))
    enforced(1, PORTS[OLD_DRIVER])


# -- MIG


def asking(name: str, resource: str, **more: Any) -> Json:
    pod = a_pod(name, MIG, mem=0, **more)
    pod["spec"]["containers"][0]["resources"] = {"limits": {resource: "1"}}
    return pod


def visible(machines: Machines, pod: str) -> str:
    return environment(machines.sharing, pod)[names.VISIBLE_DEVICES]


def test_an_instance_has_one_holder_also_after_a_restart_of_the_plugin(machines: Machines) -> None:
    sharing = machines.sharing
    running = sharing.run(a_pod("amount", MIG, mem=8, demands=True))
    wait_for(lambda: sharing.offers(MIG, SMALL), 30, SMALL)
    (uuid,) = sharing.annotated(running)["main"]
    assert visible(machines, "amount") == uuid
    machines.restart(MIG)
    sharing.run(asking("resource", LARGE))
    assert visible(machines, "resource").startswith("MIG-")
    assert visible(machines, "resource") != uuid
    sharing.check_books()


def test_an_instance_is_made_at_the_start_and_destroyed_at_the_end(machines: Machines) -> None:
    sharing = machines.sharing
    assert machines.made() == {}
    pod = asking("large", "nvidia.com/mig-7g.80gb")
    sharing.run(pod)
    assert visible(machines, "large") == machines.made()[machines.place("large")]
    waits(sharing, asking("second", "nvidia.com/mig-7g.80gb"))
    machines.restart(MIG)
    restart(machines.partitioner)
    machines.cluster.api.delete("/api/v1/namespaces/default/pods/large", gracePeriodSeconds="1")
    machines.cluster.wait_phase("second", "Running")
    assert list(machines.made()) == [machines.place("second")]
    machines.cluster.delete_pods()
    wait_for(lambda: machines.made() == {}, 60, "no instance without a pod")


def test_after_a_reboot_which_ends_all_instances_pods_get_new_ones(machines: Machines) -> None:
    """Instances that are made by the driver do not outlive a reboot; the journal of the partitioner does."""
    sharing = machines.sharing
    pod = asking("again", "nvidia.com/mig-4g.40gb", restartPolicy="Always")
    machines.cluster.api.post(REPLICA_SETS, a_replica_set("again", pod))
    try:
        (before,) = wait_for(lambda: running(sharing, "again"), 60, "its pod")
        assert len(machines.made()) == 1
        machines.reboot()

        def again() -> list[str]:
            return [pod["metadata"]["name"] for key, pod in running(sharing, "again").items() if key != before]

        (name,) = wait_for(again, 90, "a new container of it")
        wait_for(lambda: list(machines.made()) == [machines.place(name)], 60, "its instance alone")
        assert visible(machines, name) == machines.made()[machines.place(name)]
    finally:
        machines.cluster.api.delete(f"{REPLICA_SETS}/again", propagationPolicy="Background")
