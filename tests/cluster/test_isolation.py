"""Isolation on real nodes: limits of the driver, MPS, and what containers use, with real containers and control groups.

`node-1` has a driver that limits memory. `node-2` has an older one at first, and its GPUs are given over to MPS. On
both, the runtime runs the toolkit's hook. The GPUs, their driver and MPS's control program are stand-ins; what runs in
between is real: API server, scheduler, kubelet, containerd, runc, CDI, and the components' accounts and policies.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deviceplugin.fake import FakeSource
from protos.contract import idle, inventory, names, objects
from tests.cluster import host, mps_node, toolkit
from tests.cluster.api import Json
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import NAMESPACE, ROOT, Gangshare, a_gpu_pod, get
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
    runs,
    told,
    unified_root,
    waits,
)
from tests.cluster.process import Process, wait_for
from tests.scenarios import commands

LIMITS, MPS = "node-1", "node-2"
T4 = {"model": "Tesla T4", "memMiB": 14910, "cc": "7.5"}
NEW, OLD = "615.71.05", "595.91.07"
COMPONENTS = ("nvidia", "isolation-driver", "isolation-evict", "mps", "usage", "usage-events", "usage-idle")
METRICS = {node: host.free_port() for node in (LIMITS, MPS)}
GIB, GIB_MIB = 2**30, 1024


@pytest.fixture(scope="module")
def root() -> Path:
    """The machine's hierarchy of cgroup v2."""
    return unified_root()


@pytest.fixture(scope="module")
def cluster(able_machine: None, root: Path) -> Iterator[Cluster]:
    """Two nodes whose containerd knows CDI."""
    with Cluster.up(nodes=2, scheduler=False, containerd=containerd_with_cdi()) as running:
        running.api.patch(f"/api/v1/nodes/{MPS}", {"metadata": {"labels": {names.MPS: "true"}}})
        yield running


@pytest.fixture(scope="module")
def sharing(cluster: Cluster, root: Path) -> Iterator[Gangshare]:
    machines = {
        node: {"defaults": T4, "gpus": [{}, {}], "driver": driver, "toolkit": "1.20.1", "limits": {}}
        for node, driver in ((LIMITS, NEW), (MPS, OLD))
    }
    args = {}
    for name, node in cluster.nodes.items():
        args[name] = ["--isolation=driver", f"--cgroup-root={root / node.cgroup}", f"--metrics-port={METRICS[name]}"]
        args[name] += ["--device-list-strategy=cdi-cri", f"--cdi-spec-dirs={node.cdi}", "--cool-down=1"]
    args[LIMITS] += ["--on-isolation-mismatch=evict"]
    args[MPS] += [f"--mps-dir={mps_node.DIR}"]
    running = Gangshare(cluster, machines, components=COMPONENTS, plugin_args=args)
    for name, node in cluster.nodes.items():
        toolkit.specify(node.cdi, running.profiles[name], name, root)
    yield running.start()
    running.stop()


@pytest.fixture(autouse=True)
def tidy(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.delete_pods()


def limits(sharing: Gangshare, node: str = LIMITS) -> dict[str, dict[str, int]]:
    """What the driver keeps, in MiB by control group and GPU."""
    found: dict[str, dict[str, int]] = yaml.safe_load(sharing.profiles[node].read_text())["limits"]
    return found


def names_of(sharing: Gangshare) -> set[str]:
    return {pod["metadata"]["name"] for pod in sharing.cluster.pods("default")}


# -- limits of the driver

DRIVER = "memory enforced (driver), compute promised"


def test_a_part_gets_a_limit_that_is_read_back_also_by_a_new_plugin(sharing: Gangshare, root: Path) -> None:
    reaches(sharing, LIMITS, DRIVER)
    running = sharing.run(a_pod("limited", demands=True))
    assert running["spec"]["nodeName"] == LIMITS
    env = environment(sharing, "limited")
    assert (env[names.MEMORY_REQUEST], env[names.MEMORY_LIMIT]) == ("4096", "4096")
    (uuid,) = sharing.annotated(running)["main"]
    assert env["INJECTED"] == uuid
    assert limits(sharing)[str(group_of(sharing, root, "limited"))] == {uuid: 4096}
    enforced(1, METRICS[LIMITS])
    sharing.run(a_pod("whole", LIMITS, mem=0, whole=1, demands=True))
    assert names.MEMORY_LIMIT not in environment(sharing, "whole")
    restart(sharing.plugins[LIMITS])
    enforced(1, METRICS[LIMITS])
    reaches(sharing, LIMITS, DRIVER)
    assert not [event for event in sharing.cluster.events("limited") if event.get("reason") == "IsolationMismatch"]


def test_a_node_without_the_driver_takes_nobody_who_demands_it_until_the_driver_is_there(sharing: Gangshare) -> None:
    reaches(sharing, LIMITS, DRIVER)
    toolkit.edit(sharing.profiles[LIMITS], lambda machine: machine.update(driver=OLD))
    reaches(sharing, LIMITS, PROMISED)
    why = waits(sharing, a_pod("waits", demands=True))
    assert "isolation" in why, why
    toolkit.edit(sharing.profiles[LIMITS], lambda machine: machine.update(driver="615.80.01"))
    assert sharing.cluster.wait_phase("waits", "Running")["spec"]["nodeName"] == LIMITS
    assert environment(sharing, "waits")[names.MEMORY_LIMIT] == "4096"


def test_a_container_without_its_limit_is_found_out_and_the_node_is_believed_no_more(
    sharing: Gangshare, root: Path
) -> None:
    reaches(sharing, LIMITS, DRIVER)
    node, profile = sharing.cluster.nodes[LIMITS], sharing.profiles[LIMITS]
    toolkit.specify(node.cdi, profile, LIMITS, root, hook=False)
    sharing.cluster.create_pod(a_pod("unlimited", demands=True))
    assert "has no memory limit on GPU" in told(sharing, "unlimited", "IsolationMismatch")
    told(sharing, "unlimited", "IsolationEvicted")
    reaches(sharing, LIMITS, PROMISED)
    assert "isolation" in waits(sharing, a_pod("next", demands=True))
    toolkit.specify(node.cdi, profile, LIMITS, root)
    wait_for(lambda: "unlimited" not in names_of(sharing), 30, "end of the evicted pod, which would be found out again")
    restart(sharing.plugins[LIMITS])
    sharing.cluster.wait_phase("next", "Running")
    enforced(1, METRICS[LIMITS])


def test_after_a_reboot_a_controllers_pod_has_its_limit_again(sharing: Gangshare, root: Path) -> None:
    """The kubelet may fail the old pod, since it admits pods before the plugin has registered anew."""
    reaches(sharing, LIMITS, DRIVER)
    cluster = sharing.cluster
    pod = a_pod("stays", demands=True, restartPolicy="Always")
    cluster.api.post(REPLICA_SETS, a_replica_set("stays", pod))

    def groups() -> set[str]:
        found = [pod["metadata"]["name"] for pod in cluster.pods("default", "app=stays") if runs(pod)]
        return {str(group) for name in found if (group := group_of(sharing, root, name)).is_dir()}

    before = wait_for(groups, 30, "its pod")
    enforced(1, METRICS[LIMITS])
    sharing.reboot(LIMITS)
    try:
        cluster.nodes[LIMITS].wait_ready()
        (group,) = wait_for(lambda: groups() - before, 60, "a new container of it")
        assert list(limits(sharing)[group].values()) == [4096]
        enforced(1, METRICS[LIMITS])
        reaches(sharing, LIMITS, DRIVER)
    finally:
        cluster.api.delete(f"{REPLICA_SETS}/stays", propagationPolicy="Background")


# -- what containers use


class Meter:
    """The measuring process of `node-1`, with the rights of its components, and a pod that stands for it."""

    def __init__(self, sharing: Gangshare) -> None:
        self.sharing, self.port = sharing, host.free_port()
        cluster = sharing.cluster
        kubeconfig = cluster.account_kubeconfig(NAMESPACE, names.USAGE, node=LIMITS)
        argv = [sys.executable, "-m", "deviceplugin.usage", f"--node-name={LIMITS}", f"--kubeconfig={kubeconfig}"]
        argv += [f"--fake={sharing.profiles[LIMITS]}", f"--port={self.port}", "--period=1"]
        argv += ["--overuse-events", "--idle-events=2", "--mark-idle=2"]
        self.process = cluster.process("usage", argv, node=LIMITS, cwd=ROOT)
        pod = a_gpu_pod("meter", nodeName=LIMITS, hostNetwork=True)
        pod["metadata"] |= {"namespace": NAMESPACE, "labels": {"app.kubernetes.io/name": names.USAGE}}
        pod["spec"]["containers"][0]["ports"] = [{"name": "metrics", "containerPort": self.port}]
        cluster.create_pod(pod)
        cluster.kubectl("create", "serviceaccount", "viewer", f"--namespace={NAMESPACE}")
        bound = ["--role=gangshare-usage-viewer", f"--serviceaccount={NAMESPACE}:viewer", f"--namespace={NAMESPACE}"]
        cluster.kubectl("create", "rolebinding", "viewer", *bound)
        self.viewer = cluster.account_kubeconfig(NAMESPACE, "viewer")

    def uses(self) -> dict[str, Json]:
        """The rows of the page, by pod."""
        page = json.loads(get(self.port, "/usage"))
        return {use.get("pod", "-"): use for use in page.get("uses", ())}

    def asked(self, *args: str) -> str:
        """What a command prints for somebody who may only view."""
        server = f"http://127.0.0.1:{self.sharing.pair.status}"
        ran = commands.run(*args, "--server", server, "--kubeconfig", str(self.viewer))
        assert ran.code == 0, ran
        return ran.out

    def put(self, *used: tuple[str, int, int, int]) -> None:
        """The driver tells these processes: UUID, pid, MiB, and percent of SM time."""
        uuids = [gpu.uuid for gpu in FakeSource(str(self.sharing.profiles[LIMITS]), LIMITS).read().gpus]

        def change(machine: dict[str, Any]) -> None:
            for uuid, gpu in zip(uuids, machine["gpus"], strict=True):
                of_gpu = [(pid, mib, sm) for at, pid, mib, sm in used if at == uuid]
                gpu["processes"] = [{"pid": pid, "memMiB": mib, "sm": sm} for pid, mib, sm in of_gpu]

        toolkit.edit(self.sharing.profiles[LIMITS], change)


@pytest.fixture
def meter(sharing: Gangshare) -> Iterator[Meter]:
    made = Meter(sharing)
    made.process.start()
    yield made
    made.process.stop()
    made.put()
    sharing.cluster.delete_pods(NAMESPACE)


def test_real_processes_are_led_back_to_their_pods_and_who_is_idle_is_told_and_marked(
    sharing: Gangshare, root: Path, meter: Meter
) -> None:
    reaches(sharing, LIMITS, DRIVER)
    for name in ("greedy", "lazy"):
        sharing.run(a_pod(name, demands=True))
    greedy, lazy = process_of(sharing, root, "greedy"), process_of(sharing, root, "lazy")
    stranger = (greedy[0], os.getpid())
    meter.put((*greedy, 5 * GIB_MIB, 40), (*lazy, 1 * GIB_MIB, 0), (*stranger, 512, 0))
    wait_for(lambda: meter.uses()["greedy"]["used"] == 5 * GIB, 30, "greedy is measured")
    shown = meter.uses()
    assert (shown["greedy"]["promised"], shown["greedy"]["level"]) == (4 * GIB, DRIVER)
    assert (shown["lazy"]["used"], shown["-"]["used"]) == (GIB, GIB // 2)
    assert "uses 5.0 GiB" in told(sharing, "greedy", "GpuMemoryOveruse")
    assert "did nothing on it" in told(sharing, "lazy", "GpuIdle")
    assert metric('gangshare_container_gpu_memory_used_bytes{UUID="' + lazy[0], meter.port) >= GIB
    rows = [line for line in meter.asked("top", "--used").splitlines() if line.startswith(LIMITS)]
    assert any("default/greedy" in row and "5.0 GiB" in row for row in rows), rows
    listed = meter.asked("idle", "--for", "1s")
    assert "default/lazy" in listed
    assert "default/greedy" not in listed

    wait_for(lambda: marked(sharing, "lazy"), 30, "lazy is marked")
    assert marked(sharing, "greedy") is None
    restart(meter.process)
    wait_for(lambda: meter.uses()["lazy"]["used"] == GIB, 30, "a new process measures the same")
    meter.put((*greedy, 1 * GIB_MIB, 40), (*lazy, 1 * GIB_MIB, 10))
    wait_for(lambda: marked(sharing, "lazy") is None, 30, "lazy works again")


def marked(sharing: Gangshare, pod: str) -> idle.Idle | None:
    """What the measuring process says of the pod, as the extender believes it."""
    return idle.of(objects.decode_pod(json.dumps(sharing.cluster.pod(pod)).encode()))


# -- MPS

CAPPED = "memory enforced (driver), compute capped (mps)"


@pytest.fixture(scope="module")
def mps(sharing: Gangshare) -> Iterator[Process]:
    """The component on `node-2`, whose driver becomes one with limits and namespaces, for the last tests."""
    toolkit.edit(sharing.profiles[MPS], lambda machine: machine.update(driver=NEW))
    component = the_component(sharing).start()
    yield component
    component.stop()


def the_component(sharing: Gangshare) -> Process:
    uuids = [gpu.uuid for gpu in FakeSource(str(sharing.profiles[MPS]), MPS).read().gpus]
    return mps_node.process(sharing.cluster, MPS, uuids)


def a_client(name: str) -> Json:
    """A pod that demands all that there is, and prints what it sees of MPS."""
    look = "env; grep mps /proc/mounts; ls -d ${CUDA_MPS_PIPE_DIRECTORY%/*}/*; sleep infinity"
    pod = a_pod(name, slices=25, script=look)
    pod["metadata"]["annotations"] = {names.ISOLATION: "compute"}
    return pod


def gpu_health(sharing: Gangshare, uuid: str) -> str:
    annotations = sharing.cluster.api.get(f"/api/v1/nodes/{MPS}")["metadata"]["annotations"]
    found = inventory.decode(annotations[names.GPUS])
    assert found
    return next(gpu.health for gpu in found.gpus if gpu.uuid == uuid)


def test_capped_parts_have_pipes_of_their_own_and_a_wedged_server_gets_no_new_ones(
    sharing: Gangshare, root: Path, mps: Process
) -> None:
    reaches(sharing, MPS, CAPPED)
    running = sharing.run(a_client("part"))
    assert running["spec"]["nodeName"] == MPS
    (uuid,) = sharing.annotated(running)["main"]
    env = environment(sharing, "part")
    assert env[names.MEMORY_LIMIT] == "4096"
    assert limits(sharing, MPS)[str(group_of(sharing, root, "part"))] == {uuid: 4096}
    pipes = env["CUDA_MPS_PIPE_DIRECTORY"]
    assert Path(pipes).parent == Path(f"{mps_node.DIR}/gpus/{uuid}/pipe/gpu")
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in env, "the server's side knows the cap"
    seen = sharing.cluster.pod_log("part").splitlines()
    assert {line.split()[1] for line in seen if "/gpus/" in line and " " in line} == {pipes}
    assert pipes in seen
    whole = sharing.run(a_pod("whole", MPS, mem=0, whole=1))
    assert sharing.annotated(whole)["main"] != [uuid]
    assert not [name for name in environment(sharing, "whole") if name.startswith("CUDA_MPS")]

    node = sharing.cluster.nodes[MPS]
    node.command("touch", f"{mps_node.DIR}/gpus/{uuid}/log/fault")
    wait_for(lambda: gpu_health(sharing, uuid) == "sick:mps server does not answer", 60, "the GPU is sick")
    waits(sharing, a_client("next"))
    node.command("rm", f"{mps_node.DIR}/gpus/{uuid}/log/fault")
    sharing.cluster.wait_phase("next", "Running")


def test_who_demands_capped_compute_waits_while_the_component_is_away(sharing: Gangshare, mps: Process) -> None:
    reaches(sharing, MPS, CAPPED)
    mps.stop()
    reaches(sharing, MPS, DRIVER)
    assert "isolation" in waits(sharing, a_client("waits"))
    mps.start()
    restart(sharing.plugins[MPS])
    sharing.cluster.wait_phase("waits", "Running")
    reaches(sharing, MPS, CAPPED)


def test_after_a_reboot_a_controllers_pod_has_its_pipes_again(sharing: Gangshare, mps: Process) -> None:
    """The last test: it leaves another component behind, which ends with the cluster."""
    reaches(sharing, MPS, CAPPED)
    pod = a_client("stays")
    pod["spec"] |= {"restartPolicy": "Always"}
    sharing.cluster.api.post(REPLICA_SETS, a_replica_set("stays", pod))
    try:
        (before,) = wait_for(lambda: running(sharing, "stays"), 30, "its pod")
        sharing.reboot(MPS)
        mps.kill()  # dead already: this reaps
        the_component(sharing).start()
        sharing.cluster.nodes[MPS].wait_ready()

        def again() -> list[str]:
            return [pod["metadata"]["name"] for key, pod in running(sharing, "stays").items() if key != before]

        (name,) = wait_for(again, 90, "a new container of it")
        env = environment(sharing, name)
        assert Path(env["CUDA_MPS_PIPE_DIRECTORY"]).is_relative_to(f"{mps_node.DIR}/gpus")
        assert env["CUDA_MPS_PIPE_DIRECTORY"] in sharing.cluster.pod_log(name).splitlines()
        reaches(sharing, MPS, CAPPED)
    finally:
        sharing.cluster.api.delete(f"{REPLICA_SETS}/stays", propagationPolicy="Background")
