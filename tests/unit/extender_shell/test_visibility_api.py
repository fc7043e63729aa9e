"""The aggregated API as the API server meets it: over TLS, with its front proxy's certificate and a user's name."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from extender.cluster import front_proxy, serving_trust
from extender.engine.types.events import ClassSeen
from extender.server.visibility import api as visibility
from extender.server.visibility.documents import BASE
from extender.settings import Address
from extender.sim.apiserver import patch
from extender.sim.apiserver.api import Api
from extender.sim.apiserver.resources import APISERVICES, CONFIGMAPS, NAMESPACES, PODS, SECRETS
from protos.contract import names
from protos.contract.gpu_class import GpuClass
from tests.cluster.pki import Authority, Pair
from tests.unit.extender_shell import world
from tests.unit.extender_shell.world import ADMIN, Json, World, add_node, until

MINE, OTHERS = "team-a", "team-b"
GPU_VIEWER = {(verb, kind, "") for verb in ("get", "list") for kind in ("gpus", "gpunodes", "gpuqueues", "gpuoffers")}
MAY = {
    "ada": GPU_VIEWER
    | {(verb, kind, MINE) for verb in ("get", "list") for kind in ("gpupods", "gangs")}
    | {("get", "defragplans", MINE)},
    "admin": GPU_VIEWER
    | {("get", "defragplans", MINE)}
    | {("list", kind, where) for kind in ("gpupods", "gangs") for where in ("", MINE, OTHERS)},
    "nobody": set(),
}
"""Verb, resource and namespace."""
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


class Asking:
    """An API server before an extender that serves the aggregated API."""

    def __init__(self, cluster: World, port: int, proxy: Pair, stranger: Pair) -> None:
        self.cluster, self.proxy, self.stranger, self._port = cluster, proxy, stranger, port
        self.reviewed: list[tuple[str, str, str, str]] = []
        self.broken = False
        cluster.server.fault = self._review

    async def _review(self, request: web.BaseRequest) -> web.StreamResponse | None:
        if not request.path.endswith("subjectaccessreviews"):
            return None
        if self.broken:
            return web.json_response({"kind": "Status", "message": "no", "reason": "Forbidden"}, status=403)
        spec = msgspec.json.decode(await request.read())["spec"]
        asked = spec["resourceAttributes"]
        assert (asked["group"], asked["version"]) == (names.VISIBILITY_GROUP, names.VISIBILITY_VERSION)
        what = asked["verb"], asked["resource"], asked.get("namespace", "")
        self.reviewed.append((spec["user"], *what))
        return web.json_response({"status": {"allowed": what in MAY[spec["user"]] and spec["groups"] == ["people"]}})

    async def get(
        self,
        path: str,
        user: str = "ada",
        *,
        pair: Pair | None = None,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: Any = None,
    ) -> tuple[int, Any, dict[str, str]]:
        """Status, JSON and headers of an answer."""
        tls = ssl.create_default_context(cadata=trusted(self.cluster).decode())
        shown = pair or self.proxy
        tls.load_cert_chain(shown.certificate, shown.key)
        named = {"X-Remote-User": user, "X-Remote-Group": "people", **(headers or {})}
        url = f"https://127.0.0.1:{self._port}{path}"
        session, host = self.cluster.session, serving_trust.hosts(names.VISIBILITY)[0]
        data = {"json": body} if body is not None else {}
        async with session.request(method, url, headers=named, ssl=tls, server_hostname=host, **data) as answer:
            return answer.status, msgspec.json.decode(await answer.read()), dict(answer.headers)

    async def status(self, path: str, user: str = "ada") -> Any:
        """The status of an object that is there."""
        code, found, _ = await self.get(BASE + path, user)
        assert code == 200, found
        return found["status"]


def trusted(cluster: World) -> bytes:
    """The certificate that the API server trusts."""
    return base64.b64decode(cluster.api.get(APISERVICES, ("", names.VISIBILITY_API_SERVICE)).obj["spec"]["caBundle"])


def serves(cluster: World) -> bool:
    spec = cluster.api.get(APISERVICES, ("", names.VISIBILITY_API_SERVICE)).obj["spec"]
    return bool(spec.get("caBundle"))


def a_cluster(authority: Authority) -> Api:
    """With the objects of the manifests, a node with two GPUs, and a pod of each team on the first."""
    made = Api()
    for namespace in (names.NAMESPACE, MINE, OTHERS):
        made.create(NAMESPACES, "", {"metadata": {"name": namespace}}, ADMIN)
    made.create(SECRETS, names.NAMESPACE, {"metadata": {"name": names.VISIBILITY}}, ADMIN)
    spec = {"group": names.VISIBILITY_GROUP, "service": {"name": names.VISIBILITY}}
    made.create(APISERVICES, "", {"metadata": {"name": names.VISIBILITY_API_SERVICE}, "spec": spec}, ADMIN)
    ca, allowed = authority.ca.certificate.read_text(), '["front-proxy-client"]'
    data = {"requestheader-client-ca-file": ca, "requestheader-allowed-names": allowed}
    metadata = {"name": "extension-apiserver-authentication"}
    made.create(CONFIGMAPS, "kube-system", {"metadata": metadata, "data": data}, ADMIN)
    add_node(made, "node-a", gpus=2)
    return made


def a_pod(cluster: World, namespace: str, name: str, **limits: int) -> Json:
    amounts = {{"mem": names.GPU_MEM, "whole": names.WHOLE_GPU}[key]: str(n) for key, n in limits.items()}
    container = {"name": "main", "image": "x", "resources": {"limits": amounts}}
    spec = {"schedulerName": names.PROFILE, "containers": [container]}
    body = {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
    return world.whole(cluster.api.create(PODS, namespace, body, ADMIN))


async def known(cluster: World, pod: Json) -> None:
    await until(lambda: pod["metadata"]["uid"] in cluster.extender.engine.pods, "a pod that is known")


async def bound(cluster: World, namespace: str, name: str, **limits: int) -> None:
    """A pod that our extender bound."""
    pod = a_pod(cluster, namespace, name, **limits)
    await known(cluster, pod)
    await cluster.filter(pod, ["node-a"])
    assert not await cluster.bind(pod, "node-a")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "front-proxy")


@asynccontextmanager
async def serving(authority: Authority, **settings: Any) -> AsyncIterator[Asking]:
    async with world.world(a_cluster(authority), visibility_listen=Address("127.0.0.1", 0), **settings) as cluster:
        listener = cluster.extender.ports.visibility
        assert listener is not None
        proxy = authority.issue("proxy", user="front-proxy-client")
        yield Asking(cluster, listener.getsockname()[1], proxy, authority.issue("other", user="kubelet"))


@pytest.fixture
async def asking(authority: Authority) -> AsyncIterator[Asking]:
    async with serving(authority) as made:
        await made.cluster.ready()
        await until(lambda: serves(made.cluster), "trust")
        await bound(made.cluster, MINE, "mine", mem=2)
        await bound(made.cluster, OTHERS, "theirs", mem=3)
        yield made


async def test_discovery_names_the_kinds_for_everybody_whom_the_api_server_knows(asking: Asking) -> None:
    code, found, _ = await asking.get(BASE, "nobody")
    assert (code, found["kind"]) == (200, "APIResourceList")
    assert {one["name"]: (one["namespaced"], one["verbs"]) for one in found["resources"]} == {
        "gpus": (False, ["get", "list"]),
        "gpunodes": (False, ["get", "list"]),
        "gpupods": (True, ["get", "list"]),
        "gangs": (True, ["get", "list"]),
        "gpuqueues": (False, ["get", "list"]),
        "gpuoffers": (False, ["get", "list"]),
        "defragplans": (True, ["get"]),
        "whatifs": (True, ["create"]),
    }
    for path in ("/apis", f"/apis/{names.VISIBILITY_GROUP}", "/openapi/v2", "/openapi/v3", f"/openapi/v3{BASE}"):
        assert (await asking.get(path, "nobody"))[0] == 200
    assert not asking.reviewed


async def test_who_may_list_pods_of_a_namespace_sees_them_as_a_table(asking: Asking) -> None:
    code, found, headers = await asking.get(f"{BASE}/namespaces/{MINE}/gpupods", headers=TABLE)
    assert (code, found["kind"], found["apiVersion"]) == (200, "Table", "meta.k8s.io/v1")
    assert [column["name"] for column in found["columnDefinitions"]][:4] == ["Name", "State", "Node", "GPUs"]
    (row,) = found["rows"]
    assert row["cells"][:4] == ["mine", "Bound", "node-a", "0"]
    assert len(row["cells"]) == len(found["columnDefinitions"])
    assert (row["object"]["kind"], row["object"]["metadata"]["namespace"]) == ("PartialObjectMetadata", MINE)
    assert "Warning" not in headers
    assert asking.reviewed == [("ada", "list", "gpupods", MINE)]


async def test_who_looks_again_gets_what_has_changed(asking: Asking) -> None:
    _, first, _ = await asking.get(f"{BASE}/gpunodes?changedSince=")
    assert ([item["metadata"]["name"] for item in first["items"]], first["metadata"]["partial"]) == (["node-a"], False)
    again = f"{BASE}/gpunodes?changedSince={first['metadata']['resourceVersion']}"
    _, same, _ = await asking.get(again)
    assert (same["items"], same["gone"], same["metadata"]) == ([], [], {**first["metadata"], "partial": True})
    assert (await asking.get(again, "admin"))[1]["metadata"]["partial"] is False
    await bound(asking.cluster, MINE, "more", mem=1)
    changed = same
    async with asyncio.timeout(10.0):
        while not changed["items"]:  # a look serves for a moment
            _, changed, _ = await asking.get(again)
    (node,) = changed["items"]
    assert [pod["name"] for pod in node["status"]["gpus"][0]["pods"]] == ["mine", "more"]


async def test_pending_pods_can_be_listed_alone(asking: Asking) -> None:
    await known(asking.cluster, a_pod(asking.cluster, MINE, "late", mem=99))
    _, found, _ = await asking.get(f"{BASE}/namespaces/{MINE}/gpupods?fieldSelector=status.state%3Dwaiting")
    assert [item["metadata"]["name"] for item in found["items"]] == ["late"]


async def test_and_plain_objects_where_no_table_is_asked_for(asking: Asking) -> None:
    code, found, _ = await asking.get(f"{BASE}/namespaces/{MINE}/gpupods")
    assert (code, found["kind"]) == (200, "GpuPodList")
    (item,) = found["items"]
    assert (item["kind"], item["metadata"]["name"], item["status"]["node"]) == ("GpuPod", "mine", "node-a")
    _, table, _ = await asking.get(f"{BASE}/namespaces/{MINE}/gpupods?includeObject=Object", headers=TABLE)
    assert table["rows"][0]["object"] == item


async def test_without_the_right_nothing_is_shown(asking: Asking) -> None:
    for path in (f"/namespaces/{OTHERS}/gpupods", f"/namespaces/{OTHERS}/gangs/g", "/gpupods", "/gangs"):
        code, found, _ = await asking.get(BASE + path)
        assert (code, found["kind"], found["reason"]) == (403, "Status", "Forbidden")
        assert 'is forbidden: User "ada" cannot' in found["message"]
    assert (await asking.get(f"{BASE}/gpus", "nobody"))[0] == 403


async def test_pods_of_namespaces_that_a_caller_may_not_list_are_counted(asking: Asking) -> None:
    first = await asking.status("/gpus/node-a-0")
    assert [pod["name"] for pod in first["pods"]] == ["mine"]
    assert (first["otherPods"], first["memUsed"], first["node"]) == (1, 5, "node-a")
    (node,) = (await asking.get(f"{BASE}/gpunodes"))[1]["items"]
    assert node["status"]["gpus"][0] == first
    assert ("ada", "list", "gpupods", OTHERS) in asking.reviewed
    everything = await asking.status("/gpus/node-a-0", "admin")
    assert sorted(pod["name"] for pod in everything["pods"]) == ["mine", "theirs"]
    assert "otherPods" not in everything or everything["otherPods"] == 0


async def test_namespaces_beyond_the_bound_are_not_asked_about(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visibility, "MOST_NAMESPACES", 0)
    first = await asking.status("/gpus/node-a-0")
    assert (first["pods"], first["otherPods"]) == ([], 2)


async def test_a_pending_pod_is_explained_and_pending_workloads_of_others_are_counted(asking: Asking) -> None:
    for namespace in (OTHERS, MINE):
        pod = a_pod(asking.cluster, namespace, "waits", whole=2)
        await known(asking.cluster, pod)
        await asking.cluster.filter(pod, ["node-a"])
    found = await asking.status(f"/namespaces/{MINE}/gpupods/waits")
    assert (found["code"], found["inLine"]) == ("NoRoom", 2)
    queue = await asking.status("/gpuqueues/default")
    assert [(each["place"], each["kind"], each["name"]) for each in queue["pending"]] == [
        (found["place"], "Pod", "waits")
    ]
    assert queue["otherPending"] == 1


async def test_a_queue_is_told_as_the_status_port_tells_it_without_names_of_others(asking: Asking) -> None:
    for namespace in (OTHERS, MINE):
        pod = a_pod(asking.cluster, namespace, "waits", whole=2)
        await known(asking.cluster, pod)
        await asking.cluster.filter(pod, ["node-a"])
    queue = await asking.status("/gpuqueues/default")
    assert queue["verdict"]["headline"] == "is open: 2 pods run, 2 wait"
    assert (queue["inLine"], sorted(each["who"] for each in queue["line"])) == (
        2,
        ["another namespace", f"{MINE}/waits"],
    )
    everything = await asking.status("/gpuqueues/default", "admin")
    assert sorted(each["who"] for each in everything["line"]) == [f"{MINE}/waits", f"{OTHERS}/waits"]


async def test_gpus_and_nodes_come_with_a_verdict(asking: Asking) -> None:
    assert (await asking.status("/gpunodes/node-a"))["verdict"]["headline"] == "takes new pods: 1 of 2 GPUs wholly free"
    first = await asking.status("/gpus/node-a-0")
    assert first["verdict"]["headline"] == f"takes new pods: {first['mem'] - 5} of {first['mem']} units free, used by 2"


async def test_models_and_classes_are_offers(asking: Asking) -> None:
    extender = asking.cluster.extender
    extender.core.tell(ClassSeen(GpuClass(name="large", description="for training")))
    await until(lambda: sum(extender.engine.ledger.stock.free.values()) == 1, "a free GPU that is counted")
    _, table, _ = await asking.get(f"{BASE}/gpuoffers", headers=TABLE)
    rows = {row["cells"][0]: row["cells"][1:] for row in table["rows"]}
    assert rows["large"] == [2, 1, 1, "class: for training"]
    (model,) = rows.keys() - {"large"}
    assert (rows[model][:3], model) == ([2, 1, 1], model.lower())
    assert (await asking.status(f"/gpuoffers/{model}"))["model"]["gpus"] == 2
    assert (await asking.get(f"{BASE}/gpuoffers/none"))[0] == 404


async def test_a_plan_of_moves_is_for_those_who_may_see_all_pods(asking: Asking) -> None:
    pod = a_pod(asking.cluster, MINE, "waits", whole=2)
    await known(asking.cluster, pod)
    await asking.cluster.filter(pod, ["node-a"])
    plan = f"{BASE}/namespaces/{MINE}/defragplans"
    code, found, _ = await asking.get(f"{plan}/waits")
    assert (code, found["reason"]) == (403, "Forbidden")
    assert 'it names pods of all namespaces, and User "ada" cannot list resource "gpupods"' in found["message"]
    code, found, _ = await asking.get(f"{plan}/waits?max-moves=2&keep=a%2Fb&keep=c%2Fd", "admin")
    assert (code, found["kind"], found["status"]["for"], found["status"]["fits"]) == (
        200, "DefragPlan", f"{MINE}/waits", False,
    )  # fmt: skip
    code, found, _ = await asking.get(f"{plan}/waits?max-moves=many", "admin")
    assert (code, found["reason"]) == (422, "Invalid")
    assert (await asking.get(f"{plan}/nothing", "admin"))[0] == 404
    code, found, _ = await asking.get(plan, "admin")
    assert (code, found["message"]) == (405, "defragplans cannot be listed: expected a name")


async def test_what_is_not_there_is_not_found(asking: Asking) -> None:
    for path in (
        "/gpus/node-a-7", "/gpus/none", "/gpunodes/none", "/gpuqueues/none",
        f"/namespaces/{MINE}/gpupods/none", f"/namespaces/{MINE}/gangs/none",
    ):  # fmt: skip
        code, found, _ = await asking.get(BASE + path)
        assert (code, found["reason"]) == (404, "NotFound")
        assert "not found" in found["message"]


async def test_a_watch_is_refused_as_a_method_that_is_not_there(asking: Asking) -> None:
    code, found, headers = await asking.get(f"{BASE}/gpus?watch=1")
    assert (code, found["reason"], headers["Allow"]) == (405, "MethodNotAllowed", "GET")
    code, found, _ = await asking.get(f"{BASE}/gpus", method="DELETE")
    assert (code, found["reason"]) == (405, "MethodNotAllowed")


async def test_while_the_api_server_reviews_nobody_nothing_is_shown(asking: Asking) -> None:
    asking.broken = True
    code, found, headers = await asking.get(f"{BASE}/gpus")
    assert (code, found["reason"], headers["Retry-After"]) == (503, "ServiceUnavailable", "1")
    asking.broken = False
    assert (await asking.get(f"{BASE}/gpus"))[0] == 200


async def test_only_the_front_proxy_is_believed(asking: Asking, tmp_path: Path) -> None:
    code, found, _ = await asking.get(f"{BASE}/gpus", "admin", pair=asking.stranger)
    assert (code, found["reason"]) == (401, "Unauthorized")
    assert "the client certificate is of kubelet" in found["message"]
    forged = Authority(tmp_path / "others").issue("forged", user="front-proxy-client")
    with pytest.raises((aiohttp.ClientError, OSError)):
        await asking.get(f"{BASE}/gpus", "admin", pair=forged)
    assert not asking.reviewed


async def test_a_user_in_many_groups_is_known(asking: Asking) -> None:
    more = {f"X-Remote-Extra-{number}": "a" for number in range(200)}
    assert (await asking.get(f"{BASE}/gpus", headers=more))[0] == 200


async def test_a_new_front_proxy_is_believed_and_the_former_one_no_more(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_proxy, "LOOK_S", 0.05)
    async with serving(authority) as asking:
        await until(lambda: serves(asking.cluster), "trust")
        await asking.cluster.ready()
        other = Authority(tmp_path / "new")
        key = ("kube-system", "extension-apiserver-authentication")
        changed = {"data": {"requestheader-client-ca-file": other.ca.certificate.read_text()}}
        asking.cluster.api.patch(CONFIGMAPS, key, changed, patch.MERGE, ADMIN)
        new = other.issue("proxy", user="front-proxy-client")

        async def answers() -> bool:
            try:
                return (await asking.get(f"{BASE}/gpus", pair=new))[0] == 200
            except (aiohttp.ClientError, OSError):
                return False

        for _ in range(500):
            if await answers():
                break
            await asyncio.sleep(0.02)
        with pytest.raises((aiohttp.ClientError, OSError)):
            await asking.get(f"{BASE}/gpus")


async def test_a_standby_answers_from_its_own_books_and_says_so(authority: Authority) -> None:
    async with serving(authority, leader_election="own") as asking:
        await until(lambda: serves(asking.cluster), "trust")
        await until(lambda: not asking.cluster.extender.health.not_ready, "ready")
        asking.cluster.extender.gate.close("another replica leads")
        code, _, headers = await asking.get(f"{BASE}/namespaces/{MINE}/gpupods")
        assert code == 200
        assert "standby" in headers["Warning"]
        asking.cluster.extender.watches.replayed.clear()
        code, found, _ = await asking.get(f"{BASE}/gpus")
        assert (code, found["reason"]) == (503, "ServiceUnavailable")
        assert (await asking.get(BASE))[0] == 200
