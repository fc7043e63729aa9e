"""Allocations that gangshare did not write, on a cluster without our admission policies: they gain nothing.

(With the policies such pods and edits are refused at the API: `test_install.py`.) Its kube-scheduler shows the extender
a certificate, without which nobody has a pod bound.
"""

from __future__ import annotations

import ssl
import urllib.request
from collections.abc import Iterator

import pytest

from protos.contract import allocation, names
from protos.contract.allocation import Allocation, Share
from tests.cluster.api import Json
from tests.cluster.cluster import Cluster, a_pod
from tests.cluster.gangshare import Gangshare, a_gpu_pod
from tests.cluster.pki import Authority
from tests.cluster.process import wait_for


@pytest.fixture(scope="module")
def sharing(able_machine: None) -> Iterator[Gangshare]:
    with Cluster.up(nodes=1, scheduler=False) as cluster:
        yield Gangshare(cluster, {"node-1": "t4x4"}, policies=False, tls=True).start()


@pytest.fixture(autouse=True)
def tidy(sharing: Gangshare) -> Iterator[None]:
    yield
    sharing.cluster.delete_pods()


def gpus(sharing: Gangshare) -> list[str]:
    return [gpu["uuid"] for gpu in sharing.pair.inspect()["nodes"][0]["gpus"]]


def a_claim(uuids: list[str], mem: int = 14, whole: bool = True) -> str:
    shares = tuple(Share(uuid, i, mem, 100, whole) for i, uuid in enumerate(uuids))
    return allocation.encode(Allocation(1, 1024, 100, {"main": shares}))


def annotation(sharing: Gangshare, name: str) -> str | None:
    found: str | None = (sharing.cluster.pod(name)["metadata"].get("annotations") or {}).get(names.ALLOCATION)
    return found


def annotate(sharing: Gangshare, name: str, value: str | None) -> None:
    patch: Json = {"metadata": {"annotations": {names.ALLOCATION: value}}}
    sharing.cluster.api.patch(f"/api/v1/namespaces/default/pods/{name}", patch, fieldManager="somebody")


def reported(sharing: Gangshare, name: str, reason: str) -> None:
    wait_for(lambda: reason in [event.get("reason") for event in sharing.cluster.events(name)], 20, f"Event {reason}")


def used(sharing: Gangshare) -> list[int]:
    return [gpu["memUsed"] for gpu in sharing.pair.inspect()["nodes"][0]["gpus"]]


def test_an_allocation_set_at_creation_is_removed_and_the_pod_is_placed_by_its_limits(sharing: Gangshare) -> None:
    pod = a_gpu_pod("forged", mem=3, annotations={names.ALLOCATION: a_claim(gpus(sharing))})
    running = sharing.run(pod)
    assert len(sharing.annotated(running)["main"]) == 1
    reported(sharing, "forged", "AllocationForged")
    assert sharing.pair.metric("gangshare_errors_total") >= 1
    sharing.check_books()
    assert sorted(used(sharing)) == [0, 0, 0, 3]


def test_an_edit_after_the_bind_is_put_back(sharing: Gangshare) -> None:
    sharing.run(a_gpu_pod("edited", mem=3))
    true = annotation(sharing, "edited")
    for forged in (a_claim(gpus(sharing)), "{", '{"v":2}', None):
        annotate(sharing, "edited", forged)
        wait_for(lambda: annotation(sharing, "edited") == true, 20, f"{forged} put back")
    reported(sharing, "edited", "AllocationForged")
    assert sorted(used(sharing)) == [0, 0, 0, 3]
    sharing.pair.extender.kill()
    sharing.pair.start_extender()
    assert sorted(used(sharing)) == [0, 0, 0, 3], "what we put back is believed after a restart"
    sharing.check_books()


def test_a_claim_to_every_gpu_without_limits_is_charged_nothing(sharing: Gangshare) -> None:
    claim = {names.ALLOCATION: a_claim(gpus(sharing))}
    sharing.cluster.create_pod(a_gpu_pod("claimant", annotations=claim, nodeName="node-1"))
    reported(sharing, "claimant", "AllocationForged")
    wait_for(lambda: annotation(sharing, "claimant") is None, 20, "the claim is taken away")
    assert used(sharing) == [0, 0, 0, 0]
    whole = sharing.run(a_gpu_pod("whole", whole=4))
    assert len(sharing.annotated(whole)["main"]) == 4


@pytest.mark.parametrize("claim", ["{", '{"v":2,"gpus":"all"}', a_claim(["GPU-of-nobody"], mem=1, whole=False)])
def test_a_pod_bound_with_a_claim_of_its_own_gets_what_it_asks_and_no_more(sharing: Gangshare, claim: str) -> None:
    before = sharing.run(a_gpu_pod("before", mem=10))
    running = sharing.run(a_gpu_pod("bound", mem=3, annotations={names.ALLOCATION: claim}, nodeName="node-1"))

    def corrected() -> bool:
        found = annotation(sharing, "bound")
        assert found not in (None, claim), found
        return True

    wait_for(corrected, 20, "the plugin's own allocation")
    running = sharing.cluster.pod("bound")
    assert len(sharing.annotated(running)["main"]) == 1
    wait_for(lambda: sum(used(sharing)) == 13, 20, "13 units in the books")
    sharing.check_books()
    assert sharing.visible("before") == sharing.annotated(before)["main"], "nobody else is affected"


def test_a_resource_quota_on_gpu_memory_counts(sharing: Gangshare) -> None:
    cluster = sharing.cluster
    quota: Json = {"metadata": {"name": "gpu"}, "spec": {"hard": {f"requests.{names.GPU_MEM}": "10"}}}
    cluster.api.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
    cluster.api.post("/api/v1/namespaces/team/resourcequotas", quota)
    path = "/api/v1/namespaces/team/resourcequotas/gpu"
    wait_for(lambda: cluster.api.get(path).get("status", {}).get("hard"), 20, "the quota's status")
    for name, amount in (("first", 8), ("second", 4)):
        pod = a_gpu_pod(name, mem=amount)
        pod["metadata"]["namespace"] = "team"
        if name == "first":
            cluster.create_pod(pod)
            cluster.wait_phase("first", "Running", namespace="team")
        else:
            with pytest.raises(OSError, match="exceeded quota: gpu"):
                cluster.create_pod(pod)
    wait_for(lambda: cluster.api.get(path)["status"]["used"][f"requests.{names.GPU_MEM}"] == "8", 20, "8 used")
    cluster.delete_pods("team")


def test_who_shows_no_certificate_of_the_schedulers_authority_has_no_pod_bound(sharing: Gangshare) -> None:
    assert len(sharing.annotated(sharing.run(a_gpu_pod("asked", mem=3)))["main"]) == 1, "kube-scheduler does"
    assert sharing.tls is not None
    body = b'{"PodName": "p", "PodNamespace": "default", "PodUID": "u", "Node": "node-1"}'
    server_only = ssl.create_default_context(cafile=str(sharing.tls.ca.certificate))
    other = Authority(sharing.cluster.dir / "other-pki").issue("tls", user="kube-scheduler")
    strange = ssl.create_default_context(cafile=str(sharing.tls.ca.certificate))
    strange.load_cert_chain(other.certificate, other.key)
    for context in (server_only, strange):
        with pytest.raises(OSError, match=r"certificate|alert|reset|EOF|closed"):
            urllib.request.urlopen(f"https://127.0.0.1:{sharing.pair.verbs}/bind", body, timeout=10, context=context)


def test_texts_that_the_api_server_does_not_bound_keep_nobody_from_a_gpu(sharing: Gangshare) -> None:
    """The extender searched such a controller's name for hours, and the plugin refused all pods of the node."""
    owner = {"apiVersion": "example.com/v1", "kind": "Thing", "uid": "u" * 1000, "controller": True}
    hostile = a_pod("hostile", "sleep 60", node="node-1")
    hostile["spec"]["schedulerName"] = "s" * 300
    hostile["metadata"]["ownerReferences"] = [{**owner, "name": "1" * 1_000_000 + "x"}]
    sharing.cluster.create_pod(hostile)
    sharing.cluster.wait_phase("hostile", "Running", timeout=60)
    running = sharing.run(a_gpu_pod("victim", mem=3))
    assert len(sharing.annotated(running)["main"]) == 1
    sharing.check_books()
