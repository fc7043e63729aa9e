"""The aggregated API on a real API server: what users see with kubectl, by their own rights.

Nodes are objects: pods are bound there and never run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from protos.contract import names
from tests.cluster import bare, host
from tests.cluster.api import Json
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import Gangshare, a_gpu_pod
from tests.cluster.pki import Authority
from tests.cluster.process import wait_for

pytestmark = pytest.mark.core
NODE, GPUS = "node-a", 2
MINE, OTHERS = "team-a", "team-b"
API_SERVICE = f"/apis/apiregistration.k8s.io/v1/apiservices/{names.VISIBILITY_API_SERVICE}"
FRONT_PROXY = "front-proxy-client"


@pytest.fixture(scope="module")
def cluster(able_machine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An API server with a front proxy, which resolves no Services but those of external names."""
    authority = Authority(tmp_path_factory.mktemp("front") / "proxy")
    proxy = authority.issue("proxy", user=FRONT_PROXY)
    flags = [
        "--disable-admission-plugins=TaintNodesByCondition,ServiceAccount",
        f"--requestheader-client-ca-file={authority.ca.certificate}",
        f"--requestheader-allowed-names={FRONT_PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={proxy.certificate}",
        f"--proxy-client-key-file={proxy.key}",
    ]
    controllers = ["--controllers=*,-node-lifecycle-controller"]
    with Cluster.up(nodes=0, scheduler=False, apiserver_args=flags, controller_manager_args=controllers) as running:
        yield running


@pytest.fixture(scope="module")
def sharing(cluster: Cluster) -> Iterator[Gangshare]:
    """Gangshare with the component, and pods of two teams: bound ones, and pending ones."""
    port = host.free_port()
    args = [f"--visibility-listen=127.0.0.1:{port}"]
    made = Gangshare(cluster, {}, components=["visibility"], extender_args=args)
    service = {"name": names.VISIBILITY, "namespace": names.NAMESPACE}
    external = {"type": "ExternalName", "externalName": "localhost"}
    cluster.apply({"apiVersion": "v1", "kind": "Service", "metadata": service, "spec": external})
    cluster.api.patch(API_SERVICE, {"spec": {"service": {**service, "port": port}}})
    cluster.api.post(bare.NODES, bare.a_node(NODE, GPUS))
    made.start()
    for namespace in (MINE, OTHERS):
        cluster.kubectl("create", "namespace", namespace)
        cluster.create_pod(in_namespace(namespace, a_gpu_pod("small", mem=2)))
    big = {names.GROUP: "big", names.MIN_MEMBER: "3"}
    for number in range(3):
        cluster.create_pod(in_namespace(MINE, a_gpu_pod(f"big-{number}", whole=1, annotations=big)))
    cluster.create_pod(in_namespace(MINE, a_gpu_pod("pending", whole=GPUS)))
    wait_for(lambda: available(cluster), 60, "an API that is available")
    for namespace in (MINE, OTHERS):
        wait_for(lambda n=namespace: cluster.pod("small", n)["spec"]["nodeName"] == NODE, 60, "a bound pod")
    yield made
    made.stop()


def in_namespace(namespace: str, pod: Json) -> Json:
    pod["metadata"]["namespace"] = namespace
    return pod


def available(cluster: Cluster) -> bool:
    conditions = {one["type"]: one for one in cluster.api.get(API_SERVICE)["status"]["conditions"]}
    assert conditions["Available"]["status"] == "True", conditions
    return True


@pytest.fixture(scope="module")
def ada(cluster: Cluster, sharing: Gangshare) -> Path:
    """Somebody with `edit` in one namespace, who may see GPUs."""
    cluster.kubectl("create", "rolebinding", "ada", "--clusterrole=edit", "--user=ada", f"--namespace={MINE}")
    cluster.kubectl("create", "clusterrolebinding", "ada", "--clusterrole=gangshare-gpu-viewer", "--user=ada")
    kubeconfig = cluster.plane.user_kubeconfig("ada")
    may = ["auth", "can-i", "list", f"gpupods.{names.VISIBILITY_GROUP}", f"--namespace={MINE}"]
    wait_for(lambda: "yes" in cluster.kubectl(*may, kubeconfig=kubeconfig), 30, "aggregated roles")
    return kubeconfig


def table(cluster: Cluster, kubeconfig: Path, *what: str) -> list[list[str]]:
    """What `kubectl get` prints, by line and column."""
    printed = cluster.kubectl("get", *what, kubeconfig=kubeconfig)
    return [line.split() for line in printed.splitlines()]


def test_a_user_sees_the_pods_and_gangs_of_their_namespace_as_tables(cluster: Cluster, ada: Path) -> None:
    pods = table(cluster, ada, "gpupods", f"--namespace={MINE}")
    assert pods[0] == ["NAME", "STATE", "NODE", "GPUS", "FOR", "WHY"]
    assert {line[0]: line[1] for line in pods[1:]}["small"] == "Bound"
    gangs = table(cluster, ada, "gangs", f"--namespace={MINE}")
    assert gangs[0] == ["NAME", "PHASE", "FOR", "BOUND", "MINIMUM", "WHY"]
    assert [line[0] for line in gangs[1:]] == ["big"]
