"""The harness itself: what it brings up is a real cluster, and what it leaves is nothing."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import assets, cgroups, host, remnants
from tests.cluster.cluster import Cluster, a_pod
from tests.cluster.process import HarnessError, wait_for


@pytest.fixture(autouse=True)
def no_pod_left(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "cluster" in request.fixturenames:
        request.getfixturevalue("cluster").delete_pods()


@pytest.mark.core
def test_a_pod_runs_on_each_node_and_its_log_is_read(cluster: Cluster) -> None:
    for node in cluster.nodes:
        pod = a_pod(f"hello-{node}", "echo hello from $HOSTNAME")
        pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
        cluster.create_pod(pod)
    for node in cluster.nodes:
        cluster.wait_phase(f"hello-{node}", "Succeeded")
        assert cluster.pod_log(f"hello-{node}") == f"hello from hello-{node}\n"
        assert f"v{cluster.version}" in cluster.kubectl("get", "node", node)


@pytest.mark.core
def test_a_service_account_token_names_the_node_it_is_for(cluster: Cluster) -> None:
    cluster.api.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "plugin"}})
    kubeconfig = cluster.account_kubeconfig("default", "plugin", node="node-2")

    told = cluster.kubectl("auth", "whoami", "-o", "json", kubeconfig=kubeconfig)

    assert '"system:serviceaccount:default:plugin"' in told
    assert re.search(r'"authentication.kubernetes.io/node-name": \[\s*"node-2"\s*\]', told)
    with pytest.raises(HarnessError, match="forbidden"):
        cluster.kubectl("get", "nodes", kubeconfig=kubeconfig)


def test_no_two_servers_get_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = host.free_port()
    monkeypatch.setattr(host, "_PORTS", range(taken, taken + 1))

    with pytest.raises(HarnessError, match="no free port"):
        host.free_port()


def test_a_container_outlives_its_kubelet(cluster: Cluster) -> None:
    cluster.create_pod(a_pod("steady", "sleep infinity", node="node-1"))
    before = cluster.wait_phase("steady", "Running")["status"]["containerStatuses"][0]["containerID"]
    node = cluster.nodes["node-1"]

    node.kubelet.kill()
    node.kubelet.start()
    node.wait_ready()

    assert cluster.wait_phase("steady", "Running")["status"]["containerStatuses"][0]["containerID"] == before


def test_a_kubelet_that_ends_at_its_start_is_started_once_more(cluster: Cluster) -> None:
    node = cluster.nodes["node-1"]
    node.kubelet.kill()
    node.wait_ready()
    assert node.kubelet.alive


def test_a_reboot_ends_all_containers_of_that_node_and_starts_them_again(cluster: Cluster) -> None:
    for name in cluster.nodes:
        pod = a_pod(f"on-{name}", "sleep infinity", node=name)
        pod["spec"]["restartPolicy"] = "Always"
        cluster.create_pod(pod)
        cluster.wait_phase(f"on-{name}", "Running")
    node = cluster.nodes["node-1"]

    node.reboot()
    node.wait_ready()

    wait_for(lambda: restarts(cluster, "on-node-1") == 1, 60, "restarted container")
    assert restarts(cluster, "on-node-2") == 0


def restarts(cluster: Cluster, pod: str) -> int:
    (status,) = cluster.pod(pod)["status"]["containerStatuses"]
    assert "running" in status["state"], status
    return int(status["restartCount"])


def test_a_socket_made_in_the_kubelets_folder_of_a_node_is_reached_from_outside(cluster: Cluster) -> None:
    node = cluster.nodes["node-2"]
    inside = "import socket; s = socket.socket(socket.AF_UNIX); s.bind('/var/lib/kubelet/device-plugins/x.sock');"
    plugin = cluster.process("plugin", [sys.executable, "-c", f"{inside} s.listen(); s.accept()"], node="node-2")
    plugin.start()
    path = node.kubelet_dir / "device-plugins" / "x.sock"
    try:
        plugin.wait_until(path.exists, 10, "socket")
        with socket.socket(socket.AF_UNIX) as outside:
            wait_for(lambda: outside.connect_ex(str(path)) == 0, 5, "connection")
    finally:
        plugin.stop()
        path.unlink(missing_ok=True)


@pytest.mark.core
def test_schedulers_on_one_machine_hold_the_lease_under_host_names_of_their_own(cluster: Cluster) -> None:
    election = {"leaderElect": True, "resourceName": "pair", "resourceNamespace": "default"}
    quick = {"leaseDuration": "3s", "renewDeadline": "2s", "retryPeriod": "500ms"}
    config = {"leaderElection": election | quick, "profiles": [{"schedulerName": "pair"}]}

    def holder() -> str:
        lease = cluster.api.get("/apis/coordination.k8s.io/v1/namespaces/default/leases/pair")
        return str(lease["spec"]["holderIdentity"]).split("_")[0]

    pair = [cluster.scheduler(name, config, hostname=f"host-{name}") for name in ("first", "second")]
    try:
        assert wait_for(holder, 20, "leader") == "host-first"
        pair[0].process.pause()
        wait_for(lambda: holder() == "host-second", 20, "change of leader")
    finally:
        for scheduler in pair:
            scheduler.process.kill()


def test_every_write_is_in_the_audit_log(cluster: Cluster) -> None:
    cluster.create_pod(a_pod("noted", "true"))
    writes = {(event["verb"], event["objectRef"].get("name")) for event in cluster.plane.audit()}
    assert ("create", "noted") in writes


def test_a_pod_reaches_the_api_server_with_its_own_account() -> None:
    with Cluster.up(nodes=1, in_cluster=True) as cluster:
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        wait_for(lambda: cluster.api.get(f"{accounts}/default"), 30, "default account")
        folder = "/var/run/secrets/kubernetes.io/serviceaccount"
        script = f"test -s {folder}/token && nc -w 5 $KUBERNETES_SERVICE_HOST 443 </dev/null && echo reached"
        for name in ("own-network", "host-network"):
            pod = a_pod(name, script)
            pod["spec"]["hostNetwork"] = name == "host-network"
            cluster.create_pod(pod)
            cluster.wait_phase(name, "Succeeded")
            assert cluster.pod_log(name) == "reached\n"
        assert cluster.pod("own-network")["spec"]["serviceAccountName"] == "default"


def test_harness_leaves_nothing() -> None:
    with Cluster.up(nodes=1) as cluster:
        cluster.create_pod(a_pod("busy", "sleep infinity"))
        cluster.wait_phase("busy", "Running")
        run, subnet = cluster.run.id, cluster.run.slot.pod_subnet(1)
        host.redirect_service(run, cluster.run.slot.service_ip, cluster.plane.port)
        during = footprint(run, subnet)
    assert all(during.values()), during
    wait_for(lambda: not any(footprint(run, subnet).values()), 10, f"end of {during}")


def test_a_start_that_fails_midway_leaves_nothing_and_says_why() -> None:
    before = own_runs()
    with pytest.raises(HarnessError, match=r"(?s)kube-apiserver ended with status 1.*unknown flag: --no-such-flag"):
        Cluster.up(nodes=1, apiserver_args=["--no-such-flag"])
    assert own_runs() == before


def own_runs() -> set[str]:
    """The runs of this test process that are there."""
    owners = remnants.RUNS.glob(f"{remnants.PREFIX}*/owner")
    return {owner.parent.name for owner in owners if owner.read_text().startswith(f"{os.getpid()} ")}


def test_missing_tools_are_named_with_the_line_that_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(assets.MissingAsset, match=r"apt-get install containerd etcd-server runc$"):
        assets.require(["etcd", "containerd", "ctr", "runc"])


def test_a_version_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(assets.MissingAsset, match=r"KUBE_VERSION is 'latest': a version such as 1\."):
        assets.provide("latest")


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda end: end.name)
def test_whatever_ends_the_command_nothing_stays(end: signal.Signals) -> None:
    command = subprocess.Popen(
        [sys.executable, "-m", "tests.cluster", "--nodes", "1"], stdout=subprocess.PIPE, text=True
    )
    try:
        told = _until(command, "Ctrl-C")
        found = re.search(r"KUBECONFIG=/tmp/(gs-\w+)/", told)
        assert found, told
        run = found[1]
        assert remnants.processes(run)

        command.send_signal(end)
        status = command.wait(60)
    finally:
        command.kill()

    assert status == (-signal.SIGKILL if end is signal.SIGKILL else 0)
    remnants.sweep()  # as the next run does: what was killed could not tidy up
    wait_for(lambda: not (remnants.RUNS / run).exists(), 20, "removed folder")
    assert not remnants.processes(run)
    assert not cgroups.of_run(run)
    command.communicate()


def _until(command: subprocess.Popen[str], word: str) -> str:
    """What the command prints, up to the line with `word`."""
    assert command.stdout is not None
    told = ""
    for line in command.stdout:
        told += line
        if word in line:
            break
    return told


def footprint(run: str, subnet: str) -> dict[str, list[str]]:
    """Where a run shows on the machine, found by other means than the harness's own."""
    pids = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit() and int(entry.name) != os.getpid()]
    rules = subprocess.run(["iptables", "-t", "nat", "-S"], check=True, capture_output=True, text=True).stdout
    return {
        "processes": [pid for pid in pids if run in _read(pid, "cmdline")],
        "mounts": [pid for pid in pids if f"/{run}/" in _read(pid, "mountinfo")],
        "cgroups": [str(path) for tree in cgroups.trees() for path in tree.rglob(f"*{run}*")],
        "links": _links_into(subnet),
        "rules": [line for line in rules.splitlines() if run in line],
        "files": [str(path) for path in Path("/tmp").glob(f"*{run}*")],
    }


def _links_into(subnet: str) -> list[str]:
    """The network interfaces with a route into a pod subnet."""
    start = subnet.removesuffix(".0/24")
    routes = [line.split() for line in Path("/proc/net/route").read_text().splitlines()[1:]]
    addresses = ((route[0], socket.inet_ntoa(struct.pack("=L", int(route[1], 16)))) for route in routes)
    return [link for link, address in addresses if address.startswith(f"{start}.")]


def _read(pid: object, file: str) -> str:
    try:
        return Path(f"/proc/{pid}/{file}").read_text(errors="replace")
    except OSError:
        return ""
