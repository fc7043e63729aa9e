"""The aggregated API on a real API server: what users see with kubectl, by their own rights."""

from __future__ import annotations

import json
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from extender.cli import inspection, through_api
from extender.cli.errors import CommandError
from extender.cli.options import port_forward
from extender.wire import answers, listings
from extender.wire import whatif as wire
from protos.contract import names
from tests.cluster import bare, front, host, pki
from tests.cluster.api import ApiError, Json
from tests.cluster.cluster import Cluster
from tests.cluster.front import API_SERVICE, in_namespace
from tests.cluster.gangshare import ROOT, Gangshare, a_gpu_pod
from tests.cluster.process import HarnessError, wait_for
from tests.unit.cli.run import gangshare

pytestmark = pytest.mark.core
NODE, GPUS = "node-a", 2
MINE, OTHERS, LEAVING = "team-a", "team-b", "team-c"
BIG = {f"big-{number}": "Pending" for number in range(3)}
KINDS = ["defragplans", "gangs", "gpunodes", "gpuoffers", "gpupods", "gpuqueues", "gpus", "whatifs"]


@pytest.fixture(scope="module")
def cluster(able_machine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with front.up(tmp_path_factory.mktemp("front")) as running:
        yield running


@pytest.fixture(scope="module")
def sharing(cluster: Cluster) -> Iterator[Gangshare]:
    """Gangshare with the component, and pods of two teams: bound ones, and pending ones."""
    cluster.api.post(bare.NODES, bare.a_node(NODE, GPUS))
    made = front.share(cluster)
    for namespace in (MINE, OTHERS):
        cluster.kubectl("create", "namespace", namespace)
        cluster.create_pod(in_namespace(namespace, a_gpu_pod("small", mem=2)))
    big = {names.GROUP: "big", names.MIN_MEMBER: "3"}
    for name in BIG:
        cluster.create_pod(in_namespace(MINE, a_gpu_pod(name, whole=1, annotations=big)))
    cluster.create_pod(in_namespace(MINE, a_gpu_pod("pending", whole=GPUS)))
    front.wait_available(cluster)
    for namespace in (MINE, OTHERS):
        wait_for(partial(is_bound, cluster, namespace, "small"), 60, "a bound pod")
    yield made
    made.stop()


def is_bound(cluster: Cluster, namespace: str, name: str) -> bool:
    return bool(cluster.pod(name, namespace)["spec"]["nodeName"] == NODE)


@pytest.fixture(scope="module")
def ada(cluster: Cluster, sharing: Gangshare) -> front.User:
    return front.User(cluster, "ada", MINE)


def table(cluster: Cluster, kubeconfig: Path, *what: str) -> list[list[str]]:
    """What `kubectl get` prints, by line and column."""
    printed = cluster.kubectl("get", *what, kubeconfig=kubeconfig)
    return [line.split() for line in printed.splitlines()]


def refusal(cluster: Cluster, kubeconfig: Path, *what: str) -> str:
    """What kubectl says when it fails."""
    with pytest.raises(HarnessError) as refused:
        cluster.kubectl(*what, kubeconfig=kubeconfig)
    return str(refused.value)


def test_a_user_sees_the_pods_of_their_namespace_as_a_table(cluster: Cluster, ada: front.User) -> None:
    heads, *pods = table(cluster, ada.kubeconfig, "gpupods", f"--namespace={MINE}")
    assert heads == ["NAME", "STATE", "NODE", "GPUS", "FOR", "WHY"]
    assert {pod[0]: pod[1] for pod in pods} == {"small": "Bound", "pending": "Pending", **BIG}
    assert next(pod[2] for pod in pods if pod[0] == "small") == NODE


def test_and_its_gangs_with_the_reason_why_they_are_pending(cluster: Cluster, ada: front.User) -> None:
    heads, *gangs = table(cluster, ada.kubeconfig, "gangs", f"--namespace={MINE}")
    assert heads == ["NAME", "PHASE", "FOR", "BOUND", "MINIMUM", "WHY"]
    ((name, phase, _, bound, least, *why),) = gangs
    assert (name, phase, bound, least) == ("big", "Waiting", "0/3", "3")
    assert " ".join(why).startswith("gang team-a/big waits until all its members fit: needs 3×1 whole GPU")


def test_a_pending_pod_is_explained(cluster: Cluster, ada: front.User) -> None:
    made = json.loads(
        cluster.kubectl("get", "gpupod", "pending", f"--namespace={MINE}", "-o", "json", kubeconfig=ada.kubeconfig)
    )
    assert (made["kind"], made["metadata"]["name"]) == ("GpuPod", "pending")
    assert made["status"]["code"] == "NoRoom"
    assert made["status"]["sentence"] == "no node with 2 whole GPUs free"
    assert (made["status"]["place"], made["status"]["inLine"]) == (2, 2)


def test_pods_of_other_namespaces_are_counted_and_not_named(cluster: Cluster, ada: front.User) -> None:
    heads, first, _ = table(cluster, ada.kubeconfig, "gpus", "--output=wide")
    assert heads[:3] == ["NAME", "NODE", "MODEL"]
    assert (first[0], first[1]) == (f"{NODE}-0", NODE)
    assert first[-3:-1] == ["2", f"{MINE}/small"], "two pods, one by name"
    for kind in ("gpus", "gpunodes", "gpuqueues"):
        assert OTHERS not in cluster.kubectl("get", kind, "--output=json", kubeconfig=ada.kubeconfig)
    admin = cluster.kubectl("get", "gpus", "--output=json")
    assert f'"namespace": "{OTHERS}"' in admin


def test_a_user_lists_no_other_namespace_and_not_all(cluster: Cluster, ada: front.User) -> None:
    for kind in ("gpupods", "gangs"):
        for where in (f"--namespace={OTHERS}", "--all-namespaces"):
            said = refusal(cluster, ada.kubeconfig, "get", kind, where)
            assert f'(Forbidden): {kind}.{names.VISIBILITY_GROUP} is forbidden: User "ada" cannot list' in said
    said = refusal(cluster, ada.kubeconfig, "get", "gpupod", "small", f"--namespace={OTHERS}")
    assert "(Forbidden)" in said


def test_the_pending_workloads_of_a_queue_come_in_order(cluster: Cluster, ada: front.User) -> None:
    queue = json.loads(cluster.kubectl("get", "gpuqueue", "default", "--output=json", kubeconfig=ada.kubeconfig))[
        "status"
    ]
    assert [(each["place"], each["kind"], each["name"]) for each in queue["pending"]] == [
        (1, "Gang", "big"),
        (2, "Pod", "pending"),
    ]
    assert queue["otherPending"] == 0


def test_what_is_not_there_is_not_found_and_a_watch_is_refused(cluster: Cluster, ada: front.User) -> None:
    assert 'gpus.visibility.gangshare.io "nothing" not found' in refusal(
        cluster, ada.kubeconfig, "get", "gpu", "nothing"
    )
    path = f"/apis/{names.VISIBILITY_GROUP}/{names.VISIBILITY_VERSION}/gpus"
    with pytest.raises(ApiError, match="watch is not supported on this resource") as refused:
        cluster.api.get(path, watch="1")
    assert refused.value.status == 405
    assert cluster.api.get(path)["kind"] == "GpuList"


def test_kubectl_knows_the_kinds_and_explains_them(cluster: Cluster, ada: front.User) -> None:
    known = cluster.kubectl(
        "api-resources", f"--api-group={names.VISIBILITY_GROUP}", "-o", "name", kubeconfig=ada.kubeconfig
    )
    assert sorted(line.partition(".")[0] for line in known.split()) == KINDS
    wait_for(lambda: "otherPods" in explained(cluster, "gpus.status", ada), 150, "the API server has read our OpenAPI")
    assert "big" in cluster.kubectl(
        "describe", "gangs.visibility.gangshare.io", "big", f"--namespace={MINE}", kubeconfig=ada.kubeconfig
    )


def explained(cluster: Cluster, what: str, user: front.User) -> str:
    """What kubectl explains, "" until the API server has read our OpenAPI, which it does in its own time."""
    try:
        return cluster.kubectl("explain", what, kubeconfig=user.kubeconfig)
    except HarnessError:
        return ""


def test_the_commands_read_it_with_the_users_own_kubeconfig(
    cluster: Cluster, sharing: Gangshare, ada: front.User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: str) -> bytes:
        found = through_api.page(path, "no such object")
        assert found is not None
        return found

    monkeypatch.setenv("KUBECONFIG", str(ada.kubeconfig))
    assert inspection.decode(read(f"explain/{MINE}/pending"), answers.Pod).code == "NoRoom"
    assert len(inspection.decode(read(f"explain/groups/{MINE}/big"), answers.Group).members) == len(BIG)
    assert len(inspection.decode(read(f"inspect/{NODE}"), answers.Node).gpus) == GPUS
    queue = inspection.decode(read("queues/default"), listings.QueuePage)
    assert (queue.in_line, [each.who for each in queue.line]) == (2, [f"{MINE}/big", f"{MINE}/pending"])
    uuid = inspection.decode(read(f"inspect/{NODE}"), answers.Node).gpus[0].uuid
    gpu = inspection.decode(read(f"gpus/{uuid}"), answers.GpuPage)
    assert (gpu.node, [pod.name for pod in gpu.gpu.pods], gpu.gpu.other_pods) == (NODE, ["small"], 1)
    (model,) = inspection.decode(read("classes"), listings.Classes).models
    assert (model.gpus, model.nodes) == (GPUS, 1)
    with pytest.raises(CommandError, match=r"it names pods of all namespaces, and User .ada. cannot list"):
        read(f"defrag/{MINE}/pending")
    with pytest.raises(CommandError, match="no such object"):
        read(f"explain/{MINE}/nothing")
    with pytest.raises(CommandError, match=r'the API server refuses: .*User "ada" cannot get'):
        read(f"explain/{OTHERS}/small")
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    everything = inspection.decode(read("inspect"), answers.Inspection)
    assert {pod.namespace for pod in everything.pods} == {MINE, OTHERS}
    assert [gang.name for gang in everything.groups] == ["big"]
    assert not inspection.decode(read(f"defrag/{MINE}/pending"), listings.Plan).fits
    assert inspection.decode(read("queues"), listings.Queues).queues[0].name == "default"


def a_question(**limits: Any) -> Json:
    """About a pod that requests so much."""
    made = a_gpu_pod("new", **limits)
    spec = {"pods": [{"template": {"metadata": {"name": "new"}, "spec": made["spec"]}}], "nodes": [{"like": NODE}]}
    return {"apiVersion": wire.API_VERSION, "kind": wire.KIND, "metadata": {"name": "new"}, "spec": spec}


def test_a_user_with_edit_asks_what_would_become_of_pods_and_nothing_is_stored(
    cluster: Cluster, ada: front.User
) -> None:
    create = ["create", "--validate=false", "--filename=-", "--output=json", f"--namespace={MINE}"]

    def asked(question: Json) -> Json:
        made: Json = json.loads(cluster.kubectl(*create, stdin=json.dumps(question), kubeconfig=ada.kubeconfig))
        return made

    wait_for(lambda: asked(a_question(mem=1)), 60, "an aggregated role")
    made = asked(a_question(mem=1))
    assert (made["kind"], made["metadata"]) == ("WhatIf", {"name": "new", "namespace": MINE})
    assert made["status"]["verdict"]["headline"] == f"would start now on {NODE}"
    full = asked(a_question(whole=GPUS))["status"]
    assert full["workloads"][0]["code"] == "NoRoom"
    assert full["further"]["verdict"]["headline"] == f"would start now on {NODE}+1"
    assert OTHERS not in json.dumps(full)
    pods = cluster.api.get(f"/api/v1/namespaces/{MINE}/pods")["items"]
    assert "new" not in {pod["metadata"]["name"] for pod in pods}
    assert "cannot list" in refusal(cluster, ada.kubeconfig, "get", "whatifs", f"--namespace={MINE}")
    with pytest.raises(HarnessError, match="GET is not supported on whatifs: expected create"):
        cluster.kubectl("get", "whatifs", f"--namespace={MINE}")
    for where in (OTHERS, "default"):
        question = json.dumps(a_question(mem=1))
        with pytest.raises(HarnessError, match=r'User "ada" cannot create resource "whatifs"'):
            cluster.kubectl(
                "create",
                "--validate=false",
                "--filename=-",
                f"--namespace={where}",
                stdin=question,
                kubeconfig=ada.kubeconfig,
            )
    with pytest.raises(HarnessError, match=r"spec\.pods is empty: expected pods"):
        asked(a_question(mem=1) | {"spec": {"pods": []}})


def test_the_command_asks_with_the_users_own_kubeconfig(
    cluster: Cluster,
    ada: front.User,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pod = a_gpu_pod("new", mem=1) | {"apiVersion": "v1", "kind": "Pod"}
    file = tmp_path / "pod.json"
    file.write_text(json.dumps(in_namespace(MINE, pod)))
    monkeypatch.setenv("KUBECONFIG", str(ada.kubeconfig))
    monkeypatch.setattr(inspection, "DEFAULT_SERVER", "http://127.0.0.1:1")
    ran = gangshare(capsys, "whatif", "-f", str(file), "--server", "http://127.0.0.1:1")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[0] == f"{MINE}/new would start now on {NODE}"


def test_the_page_behind_a_login_proxy_shows_everybody_what_they_may_see(
    cluster: Cluster, sharing: Gangshare, ada: front.User
) -> None:
    address = f"127.0.0.1:{host.free_port()}"
    nobody = pki.write_kubeconfig(cluster.dir / "nobody", server=cluster.plane.server, ca=cluster.plane.ca, user={})
    argv = [sys.executable, "-m", "extender", "ui", f"--behind-proxy={address}", f"--kubeconfig={nobody}"]
    served = cluster.process("page", argv, cwd=ROOT).start()

    def get(path: str, token: str) -> Json:
        asked = urllib.request.Request(f"http://{address}/api/{path}", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(asked, timeout=30) as answer:
            found: Json = json.load(answer)
        return found

    for namespace in (MINE, OTHERS):
        account = f"--serviceaccount={namespace}:viewer"
        cluster.kubectl("create", "serviceaccount", "viewer", f"--namespace={namespace}")
        cluster.kubectl("create", "rolebinding", "viewer", "--clusterrole=edit", account, f"--namespace={namespace}")
        cluster.kubectl(
            "create", "clusterrolebinding", f"{namespace}-page", "--clusterrole=gangshare-gpu-viewer", account
        )
    tokens = {namespace: cluster.plane.token(namespace, "viewer") for namespace in (MINE, OTHERS)}
    wait_for(lambda: get("snapshot", tokens[MINE]), 30, "the page")

    for namespace, token in tokens.items():

        def sees(namespace: str = namespace, token: str = token) -> bool:
            (gpu, *_) = get("snapshot", token)["nodes"][0]["gpus"]
            named = [each["pod"] for each in gpu["holders"] if each.get("pod")]
            return bool(named == [f"{namespace}/small"])

        wait_for(sees, 30, f"what {namespace} may see")

    def workloads() -> bool:
        return {one["name"] for one in get("snapshot", tokens[MINE])["workloads"]} == {"big", "pending", *BIG}

    wait_for(workloads, 30, "gangs and pending pods of the namespace")
    assert {one["namespace"] for one in get("snapshot", tokens[OTHERS])["workloads"]} <= {OTHERS}
    told = get(f"whatif?of=gpus&amount={GPUS}&namespace={MINE}&like={NODE}", tokens[MINE])["status"]
    assert told["further"]["verdict"]["headline"] == f"would start now on {NODE}+1"
    for path, token in (
        (f"whatif?of=gpus&namespace={OTHERS}", tokens[MINE]),
        (f"explain/{OTHERS}/small", tokens[MINE]),
    ):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            get(path, token)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        get("snapshot", "forged")
    served.stop()


def test_nobody_else_connects_and_the_extender_changes_nothing_but_whom_the_api_server_trusts(
    cluster: Cluster, sharing: Gangshare
) -> None:
    extender = cluster.account_kubeconfig(names.NAMESPACE, "gangshare-scheduler")
    change = ["patch", "apiservice", names.VISIBILITY_API_SERVICE, "--type=merge", "--dry-run=server", "--patch"]
    service = {"name": "another", "namespace": "default"}
    for body in ({"spec": {"service": service}}, {"metadata": {"labels": {"a": "b"}}}):
        said = refusal(cluster, extender, *change, json.dumps(body))
        assert "gangshare-scheduler changes the caBundle of its APIService, and may" in said
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    port = cluster.api.get(API_SERVICE)["spec"]["service"]["port"]
    asked = urllib.request.Request(f"https://127.0.0.1:{port}/apis", headers={"X-Remote-User": "admin"})
    with pytest.raises(OSError, match=r"(?i)certificate|reset|closed"):
        urllib.request.urlopen(asked, context=tls, timeout=10).read()


def test_without_the_extender_the_api_server_says_so_and_pods_are_bound_as_ever(
    cluster: Cluster, sharing: Gangshare, ada: front.User
) -> None:
    sharing.pair.extender.kill()
    said = refusal(
        cluster, ada.kubeconfig, "get", "--raw", f"/apis/{names.VISIBILITY_GROUP}/{names.VISIBILITY_VERSION}/gpus"
    )
    assert "ServiceUnavailable" in said or "error trying to reach service" in said or "503" in said
    sharing.pair.start_extender()
    cluster.create_pod(in_namespace(OTHERS, a_gpu_pod("later", mem=2)))
    wait_for(partial(is_bound, cluster, OTHERS, "later"), 60, "a bound pod")
    wait_for(lambda: front.available(cluster) == "True", 90, "an API that answers again")
    wait_for(lambda: table(cluster, ada.kubeconfig, "gpus")[1][-1] == "3", 60, "the third pod")


@pytest.mark.parametrize("where", [{}, {"port": 1}], ids=["a Service without endpoints", "a closed port"])
def test_while_the_api_is_not_available_pods_are_bound_as_ever(
    cluster: Cluster, sharing: Gangshare, where: dict[str, object]
) -> None:
    name = f"meanwhile-{len(where)}"
    with front.unavailable(cluster, **where):
        cluster.create_pod(in_namespace(OTHERS, a_gpu_pod(name, mem=2)))
        wait_for(partial(is_bound, cluster, OTHERS, name), 60, "a bound pod")
        assert front.available(cluster) == "False"


def test_and_the_commands_say_what_to_look_at(cluster: Cluster, sharing: Gangshare, ada: front.User) -> None:
    explain = ["explain", "pod", "pending", "-n", MINE]
    with front.unavailable(cluster):
        told = ada.gangshare(*explain)
        assert told.code == 1
        assert f"kubectl get apiservice {names.VISIBILITY_API_SERVICE}" in told.err
        assert port_forward() in told.err
        direct = ada.gangshare(*explain, "--server", f"http://127.0.0.1:{sharing.pair.status}")
        assert f"{MINE}/pending waits for" in direct.out
    wait_for(lambda: ada.gangshare(*explain).code == 0, 60, "the API that is back")


def test_a_namespace_is_emptied_while_the_api_is_not_available_and_waits_for_that_alone(
    cluster: Cluster, sharing: Gangshare
) -> None:
    """It is Kubernetes that keeps it: it deletes no namespace before it has seen all kinds that there are."""
    cluster.kubectl("create", "namespace", LEAVING)
    for number in range(2):
        cluster.create_pod(in_namespace(LEAVING, a_gpu_pod(f"p{number}", mem=2, terminationGracePeriodSeconds=0)))
    with front.unavailable(cluster):
        cluster.kubectl("delete", "namespace", LEAVING, "--wait=false")
        wait_for(lambda: kept_by(cluster) == {"NamespaceDeletionDiscoveryFailure"}, 60, "an empty namespace")
        assert cluster.pods(LEAVING) == []
    wait_for(lambda: f"namespace/{LEAVING}" not in cluster.kubectl("get", "namespaces", "-o", "name"), 90, "its end")


def kept_by(cluster: Cluster) -> set[str]:
    """Why the namespace is not gone."""
    conditions = cluster.api.get(f"/api/v1/namespaces/{LEAVING}")["status"]["conditions"]
    kept = {one["type"]: one["message"] for one in conditions if one["status"] == "True"}
    assert all(names.VISIBILITY_GROUP in message for message in kept.values()), kept
    return {*kept}


def test_kubectl_and_the_commands_print_the_warning_of_a_standby(
    cluster: Cluster,
    sharing: Gangshare,
    ada: front.User,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    listing = ["get", "gpupods", f"--namespace={MINE}", "--warnings-as-errors"]
    cluster.kubectl(*listing, kubeconfig=ada.kubeconfig)
    assert sharing.pair.scheduler is not None
    sharing.pair.scheduler.process.stop()
    wait_for(lambda: sharing.pair.metric("gangshare_leader") == 0, 60, "a scheduler without its Lease")
    assert "Warning: a standby replica answered: it may not know why pods are pending" in refusal(
        cluster, ada.kubeconfig, *listing
    )
    monkeypatch.setenv("KUBECONFIG", str(ada.kubeconfig))
    assert through_api.page(f"explain/{MINE}/pending", "") is not None
    assert "warning: a standby replica answered" in capsys.readouterr().err
