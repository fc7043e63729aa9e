"""Which pods are born gated and who may remove the gate, on a real API server; nothing else runs on it."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from extender.engine.types.effects import PodRef, Requeue
from protos.contract import names
from protos.kube import credentials
from tests import gating
from tests.cluster import assets, builds, host
from tests.cluster.api import Json
from tests.cluster.cluster import Cluster, a_pod
from tests.cluster.gangshare import ROLLED_OUT, beta_policies, gate_policy, get, kustomization
from tests.cluster.process import HarnessError, Process, wait_for
from tests.cluster.test_groups import at_work, until
from tests.gating import CASES

pytestmark = pytest.mark.core
PODS = "/api/v1/namespaces/default/pods"
ADMISSION = "/apis/admissionregistration.k8s.io"
WEBHOOK = f"{ADMISSION}/v1/mutatingwebhookconfigurations/{names.WEBHOOK}"
SECRET = f"/api/v1/namespaces/{names.NAMESPACE}/secrets/{names.WEBHOOK}"


@pytest.fixture(scope="module")
def cluster(able_machine: None) -> Iterator[Cluster]:
    with Cluster.up(nodes=0, scheduler=False, apiserver_args=beta_policies(assets.provide().minor)) as running:
        running.apply(kustomization(running, "base", "gate"))
        yield running


def born(cluster: Cluster, pod: Json) -> Json:
    """The pod as it would be created."""
    return cluster.api.post(f"{PODS}?dryRun=All", pod)


def is_gated(cluster: Cluster) -> bool:
    """Whether pods of groups are born gated by now."""
    return names.PLAN_GATE in gating.gates(born(cluster, gating.a_new_pod(annotations=gating.IN_A_GROUP)))


# Whoever puts the gate on pods decides the same.


def by_policy(cluster: Cluster) -> Iterator[None]:
    component = gate_policy(cluster.plane.assets.minor)
    if not component:
        pytest.skip("this Kubernetes has no MutatingAdmissionPolicy")
    cluster.apply(kustomization(cluster, "base", component))
    wait_for(lambda: is_gated(cluster), 30, "a policy that works")
    yield
    version = component.removeprefix("gate-policy").removeprefix("-") or "v1"
    for kind in ("mutatingadmissionpolicybindings", "mutatingadmissionpolicies"):
        cluster.api.delete(f"{ADMISSION}/{version}/{kind}/gangshare-plan")
    wait_for(lambda: not is_gated(cluster), 30, "no policy")


def by_webhook(cluster: Cluster) -> Iterator[None]:
    webhook = Webhook(cluster)
    yield
    webhook.end()


class Webhook:
    """An extender whose webhook the API server asks, without its Service: there is no node on which that could be."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._port = cluster, host.free_port()
        self.apply()
        self.extender = a_webhook(cluster, self._port)
        wait_for(lambda: is_gated(cluster), 60, "a webhook that works")

    def apply(self) -> None:
        """Apply the manifests, once more maybe."""
        text = self._cluster.kubectl("kustomize", str(kustomization(self._cluster, "base", "gate-webhook")))
        objects = [found for found in yaml.safe_load_all(text) if found["kind"] not in ROLLED_OUT]
        for webhook in [one for found in objects for one in found.get("webhooks", ())]:
            webhook["clientConfig"] = {"url": f"https://localhost:{self._port}{names.WEBHOOK_PATH}"}
        self._cluster.apply(objects)

    def end(self) -> None:
        self.extender.stop()
        self._cluster.api.delete(WEBHOOK)


def a_webhook(cluster: Cluster, port: int) -> Process:
    """An extender that serves it there."""
    status = host.free_port()
    kubeconfig = cluster.account_kubeconfig(names.NAMESPACE, "gangshare-scheduler")
    argv = [sys.executable, "-m", "extender", "extender", f"--kubeconfig={kubeconfig}", "--leader-election=none"]
    argv += ["--listen=127.0.0.1:0", f"--status-listen=127.0.0.1:{status}", f"--scheduler-names={names.PROFILE}"]
    argv += [f"--gate-webhook-listen=127.0.0.1:{port}", "--log-format=json", "--log-level=debug"]
    extender = cluster.process("webhook", argv, cwd=builds.ROOT)
    extender.start()
    extender.wait_until(lambda: get(status, "/readyz"), 60, "ready extender")
    return extender


@pytest.fixture(params=[by_policy, by_webhook], ids=lambda door: door.__name__)
def door(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[None]:
    yield from request.param(cluster)


def test_pods_of_groups_are_born_gated_and_no_others(cluster: Cluster, door: None) -> None:
    wrong = [case for case, (pod, _) in CASES.items() if not gating.as_expected(case, born(cluster, pod))]
    assert wrong == []
    if cluster.plane.assets.minor >= 36:
        assert gating.gates(born(cluster, gating.IN_SPEC)) == [names.PLAN_GATE]


def test_a_webhook_that_is_gone_stops_nobody_and_one_that_is_back_needs_no_help(cluster: Cluster) -> None:
    webhook = Webhook(cluster)
    shown = cluster.api.get(SECRET)["data"]["tls.crt"]
    webhook.extender.kill()
    assert not is_gated(cluster)
    webhook.extender.start()
    wait_for(lambda: is_gated(cluster), 60, "a webhook that works again")
    webhook.apply()
    assert cluster.api.get(SECRET)["data"]["tls.crt"] == shown
    assert cluster.api.get(WEBHOOK)["webhooks"][0]["clientConfig"]["caBundle"] == shown
    webhook.end()


def test_the_extender_changes_nothing_of_its_webhook_but_whom_the_api_server_trusts(
    cluster: Cluster, extender: Path
) -> None:
    cluster.apply(kustomization(cluster, "base", "gate-webhook"))
    mine = {"name": "plan.gangshare.io"}

    def change(body: Json) -> str:
        flags = [
            "--patch",
            json.dumps(body),
            "--type=strategic",
            "--dry-run=server",
            "--output=jsonpath={.metadata.name}",
        ]
        return cluster.kubectl("patch", "mutatingwebhookconfiguration", names.WEBHOOK, *flags, kubeconfig=extender)

    everything = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}
    wrong: tuple[Json, ...] = (
        {"webhooks": [{**mine, "rules": [everything]}]},
        {"webhooks": [{**mine, "failurePolicy": "Fail"}]},
        {"webhooks": [{**mine, "matchConditions": [{"$patch": "replace"}]}]},
        {"webhooks": [{**mine, "clientConfig": {"service": {"namespace": "default", "name": "other"}}}]},
        {"webhooks": [{**mine, "$patch": "delete"}]},
        {"metadata": {"labels": {"a": "b"}}},
    )

    def refused(body: Json) -> bool:
        try:
            change(body)
        except HarnessError as error:
            return "changes the caBundle of its webhook, and may" in str(error)
        return False

    wait_for(lambda: refused(wrong[0]), 30, "a policy that works")
    assert [body for body in wrong if not refused(body)] == []
    authority = base64.b64encode(Path(cluster.plane.ca).read_bytes()).decode()
    assert change({"webhooks": [{**mine, "clientConfig": {"caBundle": authority}}]}) == names.WEBHOOK
    cluster.api.delete(WEBHOOK)


# Who removes it.


@pytest.fixture(scope="module")
def extender(cluster: Cluster) -> Path:
    """The kubeconfig of the extender's account."""
    return cluster.account_kubeconfig(names.NAMESPACE, "gangshare-scheduler")


@pytest.fixture
def pod(cluster: Cluster) -> Iterator[str]:
    made = a_pod("gated", "true")
    made["metadata"] |= {"labels": {"app": "gated"}, "annotations": gating.IN_A_GROUP}
    gates = [{"name": gating.OTHERS_GATE}, {"name": names.PLAN_GATE}]
    made["spec"] |= {"schedulerName": names.PROFILE, "schedulingGates": gates}
    cluster.create_pod(made)
    yield "gated"
    cluster.api.delete(f"{PODS}/gated")


def patched(cluster: Cluster, kubeconfig: Path, body: Json) -> Json:
    """The pod after a strategic merge patch by this account; raises HarnessError with what the API server says."""
    flags = ["--patch", json.dumps(body), "--output=json"]
    found: Json = json.loads(cluster.kubectl("patch", "pod", "gated", *flags, kubeconfig=kubeconfig))
    return found


def without(gate: str, **spec: object) -> Json:
    return {"spec": {"schedulingGates": [{"name": gate, "$patch": "delete"}], **spec}}


def test_the_extender_removes_our_gate_as_often_as_it_likes(cluster: Cluster, extender: Path, pod: str) -> None:
    for _ in range(2):
        assert gating.gates(patched(cluster, extender, without(names.PLAN_GATE))) == [gating.OTHERS_GATE]
    assert gating.gates(patched(cluster, cluster.kubeconfig, without(gating.OTHERS_GATE))) == []
    assert gating.gates(patched(cluster, extender, without(names.PLAN_GATE))) == []


IMAGE = [{"name": "main", "image": "localhost/another:1"}]
REFUSED: dict[str, tuple[Json, str]] = {
    "another gate": (without(gating.OTHERS_GATE), "and no other: default/gated had"),
    "all gates": ({"spec": {"schedulingGates": None}}, "and no other: default/gated had"),
    "an image": ({"spec": {"containers": IMAGE}}, "and no other: default/gated had"),
    "an image beside the gate": (without(names.PLAN_GATE, containers=IMAGE), "nothing else of its spec"),
    "a node selector beside it": (without(names.PLAN_GATE, nodeSelector={"a": "b"}), "nothing else of its spec"),
    "a toleration beside it": (
        without(names.PLAN_GATE, tolerations=[{"key": "a", "operator": "Exists"}]),
        "nothing else of its spec",
    ),
    "its deadline beside it": (without(names.PLAN_GATE, activeDeadlineSeconds=1), "nothing else of its spec"),
    "a label beside it": (without(names.PLAN_GATE) | {"metadata": {"labels": {"app": "b"}}}, "not change its metadata"),
    "an annotation beside it": (
        without(names.PLAN_GATE) | {"metadata": {"annotations": {names.GROUP: None}}},
        "not change its metadata",
    ),
    "a finalizer beside it": (
        without(names.PLAN_GATE) | {"metadata": {"finalizers": ["example.com/stay"]}},
        "not change its metadata",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_the_extender_may_not_change(cluster: Cluster, extender: Path, pod: str, what: str) -> None:
    body, sentence = REFUSED[what]
    before = cluster.pod(pod)
    with pytest.raises(HarnessError, match=sentence):
        patched(cluster, extender, body)
    assert cluster.pod(pod) == before


def test_without_the_component_it_may_not_patch_pods_at_all(cluster: Cluster, extender: Path, pod: str) -> None:
    may = ["auth", "can-i", "patch", "pods"]
    assert cluster.kubectl(*may, kubeconfig=extender).strip() == "yes"
    binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/gangshare-gate"
    cluster.api.delete(binding)
    with pytest.raises(HarnessError, match='cannot patch resource "pods"'):
        wait_for(lambda: not patched(cluster, extender, without(names.PLAN_GATE)), 10, "a refusal")
    cluster.apply(kustomization(cluster, "base", "gate"))


def test_nobody_else_of_ours_removes_gates_and_a_pods_owner_changes_it_as_ever(cluster: Cluster, pod: str) -> None:
    plugin = cluster.account_kubeconfig(names.NAMESPACE, "gangshare-plugin")
    with pytest.raises(HarnessError, match='cannot patch resource "pods"'):
        patched(cluster, plugin, without(names.PLAN_GATE))
    (changed,) = patched(cluster, cluster.kubeconfig, {"spec": {"containers": IMAGE}})["spec"]["containers"]
    assert changed["image"] == IMAGE[0]["image"]


async def test_a_wake_nominates_the_node_and_then_removes_the_gate(cluster: Cluster, extender: Path, pod: str) -> None:
    uid = cluster.pod(pod)["metadata"]["uid"]
    async with at_work(await credentials.load(str(extender))) as bench:
        for ref in (PodRef("default", pod, "the-former"), PodRef("default", "never", "u"), PodRef("default", pod, uid)):
            bench.do(Requeue(ref, "node-7", gated=True))
        await until(lambda: gating.gates(cluster.pod(pod)) == [gating.OTHERS_GATE], "our gate is gone")
        assert cluster.pod(pod)["status"]["nominatedNodeName"] == "node-7"
        assert bench.failed == []
