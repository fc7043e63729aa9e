"""No pod names GPUs to the container runtime itself: a tenant with `edit` rights, against a real API server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from protos.contract import names
from tests.cluster import assets
from tests.cluster.api import Api, ApiError, Json
from tests.cluster.cluster import Cluster, a_pod
from tests.cluster.gangshare import beta_policies, kustomization, void_policy
from tests.cluster.process import HarnessError, wait_for

TEAM, TRUSTED = "team", "drivers"
PODS, CONFIG_MAPS, SECRETS = (f"/api/v1/namespaces/{TEAM}/{kind}" for kind in ("pods", "configmaps", "secrets"))
ALL = {"name": names.VISIBLE_DEVICES, "value": "all"}
OF_ANNOTATION = {"fieldRef": {"fieldPath": "metadata.annotations['mine']"}}
NULL = {"name": "null", "mountPath": f"{names.DEVICE_MOUNTS}/all"}

ENV = "no container may set NVIDIA_VISIBLE_DEVICES, but to void, none or nothing"
PREFIX = "no envFrom may have a prefix that NVIDIA_VISIBLE_DEVICES begins with"
MOUNT = "no container may mount a volume at /var/run/nvidia-container-devices"
ANNOTATION = "no pod may have annotations cdi.k8s.io/*"
TOO_MANY = "annotations: expected at most 512"
OWN_LIMIT = "no ConfigMap and no Secret may have the key NVIDIA_GPU_MEMORY_REQUEST or NVIDIA_GPU_MEMORY_LIMIT"
KEY = "no ConfigMap and no Secret may have the key NVIDIA_VISIBLE_DEVICES"


@pytest.fixture(scope="module")
def cluster(able_machine: None) -> Iterator[Cluster]:
    """An API server with manifests/base, containers that ask nothing told `void`, and no node."""
    with Cluster.up(nodes=0, scheduler=False, apiserver_args=beta_policies(assets.provide().minor)) as running:
        component = void_policy(running.plane.assets.minor)
        running.apply(kustomization(running, "base", *([component] if component else [])))
        for name, labels in ((TEAM, {}), (TRUSTED, {names.GPU_VISIBILITY: "all"})):
            running.api.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        wait_for(lambda: refuses(running.api), 30, "policies that work")
        yield running


def refuses(api: Api) -> bool:
    """Whether the API server follows the policies yet."""
    try:
        api.post(f"{PODS}?dryRun=All", forged(env=[ALL]))
        api.post(f"{CONFIG_MAPS}?dryRun=All", {"metadata": {"name": "x"}, "data": {names.VISIBLE_DEVICES: "all"}})
    except ApiError as error:
        return ENV in error.message or KEY in error.message
    return False


@pytest.fixture(scope="module")
def tenant(cluster: Cluster) -> Api:
    """Somebody with the ClusterRole `edit` in the team's namespace, who may debug as well, which that leaves out."""
    account = {"kind": "ServiceAccount", "name": "tenant", "namespace": TEAM}
    rights = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{TEAM}"
    rule = {"apiGroups": [""], "resources": ["pods/ephemeralcontainers"], "verbs": ["update", "patch"]}
    cluster.api.post(f"/api/v1/namespaces/{TEAM}/serviceaccounts", {"metadata": {"name": "tenant"}})
    cluster.api.post(f"{rights}/roles", {"metadata": {"name": "debug"}, "rules": [rule]})
    for kind, name in (("ClusterRole", "edit"), ("Role", "debug")):
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        cluster.api.post(f"{rights}/rolebindings", {"metadata": {"name": name}, "subjects": [account], "roleRef": role})
    api = Api(cluster.plane.port, cluster.plane.ca, token=cluster.plane.token(TEAM, "tenant"))
    wait_for(lambda: api.items(PODS) == [], 30, "rights of the tenant")
    return api


@pytest.fixture(autouse=True)
def tidy(cluster: Cluster) -> Iterator[None]:
    yield
    for folder in (PODS, CONFIG_MAPS, SECRETS):
        for one in cluster.api.items(folder):
            if one["metadata"]["name"] != "kube-root-ca.crt":
                cluster.api.delete(f"{folder}/{one['metadata']['name']}", gracePeriodSeconds="0")


def forged(name: str = "forged", *, asks: bool = False, kind: str = "app", **fields: Any) -> Json:
    """A pod in which a container of this kind has these fields; it asks for a GPU, or nothing in the pod does."""
    pod = a_pod(name, "sleep infinity")
    main = pod["spec"]["containers"][0]
    pod["spec"] |= {"schedulerName": "nobody", "volumes": [{"name": "null", "emptyDir": {}}]}
    if asks:
        main["resources"] = {"limits": {names.WHOLE_GPU: "1"}}
    if kind == "app":
        main |= fields
    else:
        other = {**main, "name": "other", "resources": {}, **fields}
        pod["spec"]["initContainers"] = [{**other, **({"restartPolicy": "Always"} if kind == "sidecar" else {})}]
    return pod


def source(kind: str, prefix: str) -> Json:
    return {"envFrom": [{"prefix": prefix, f"{kind}Ref": {"name": "mine", "optional": True}}]}


WAYS: dict[str, tuple[dict[str, Any], str]] = {
    "env": ({"env": [ALL]}, ENV),
    "env from an annotation": ({"env": [{"name": names.VISIBLE_DEVICES, "valueFrom": OF_ANNOTATION}]}, ENV),
    "envFrom of a ConfigMap": (source("configMap", "NVIDIA_"), PREFIX),
    "envFrom of a Secret": (source("secret", "NVIDIA_VISIBLE_DEVICE"), PREFIX),
    "a mount": ({"volumeMounts": [NULL]}, MOUNT),
    "a mount by a crooked path": ({"volumeMounts": [{**NULL, "mountPath": "/run//nvidia-container-devices/"}]}, MOUNT),
}  # fmt: skip


@pytest.mark.core
@pytest.mark.parametrize("asks", [True, False], ids=["asks a GPU", "asks nothing"])
@pytest.mark.parametrize("kind", ["app", "init", "sidecar"])
@pytest.mark.parametrize("way", WAYS)
def test_no_container_of_any_pod_names_gpus(tenant: Api, way: str, kind: str, asks: bool) -> None:
    fields, sentence = WAYS[way]
    with pytest.raises(ApiError) as refused:
        tenant.post(PODS, forged(kind=kind, asks=asks, **fields))
    assert sentence in refused.value.message
    assert "by its resource limits alone" in refused.value.message


@pytest.mark.core
@pytest.mark.parametrize("way", WAYS)
def test_no_ephemeral_container_names_gpus(tenant: Api, way: str) -> None:
    fields, sentence = WAYS[way]
    tenant.post(PODS, forged("debugged"))
    with pytest.raises(ApiError) as refused:
        debug(tenant, "debugged", "debugger", **fields)
    assert sentence in refused.value.message
    debug(tenant, "debugged", "harmless", env=[{"name": "MINE", "value": "1"}])
    debug(tenant, "debugged", "another")


def debug(api: Api, pod: str, container: str, **fields: Any) -> Json:
    """Add an ephemeral container, as `kubectl debug` does."""
    found = api.get(f"{PODS}/{pod}")
    main = found["spec"]["containers"][0]
    added = {"name": container, "image": main["image"], **fields}
    found["spec"].setdefault("ephemeralContainers", []).append(added)
    return api.put(f"{PODS}/{pod}/ephemeralcontainers", found)


def annotated(pod: Json, value: str) -> Json:
    pod["metadata"]["annotations"] = {"cdi.k8s.io/mine": value}
    return pod


@pytest.mark.core
def test_no_annotation_names_devices_of_cdi(tenant: Api) -> None:
    with pytest.raises(ApiError, match="no pod may have annotations"):
        tenant.post(PODS, annotated(forged(), "nvidia.com/gpu=all"))
    tenant.post(PODS, forged("plain"))
    with pytest.raises(ApiError, match="no pod may have annotations"):
        tenant.patch(f"{PODS}/plain", annotated({"metadata": {}}, "nvidia.com/gpu=all"))
    tenant.patch(f"{PODS}/plain", {"metadata": {"annotations": {"example.com/mine": "1"}}})


def with_annotations(pod: Json, count: int) -> Json:
    pod["metadata"]["annotations"] = {f"example.com/{i}": "" for i in range(count)}
    return pod


@pytest.mark.core
def test_more_annotations_than_the_policy_searches_are_refused(tenant: Api) -> None:
    tenant.post(PODS, with_annotations(forged(), 512))
    for count in (513, 10_000):
        with pytest.raises(ApiError, match=f"the pod has {count} {TOO_MANY}"):
            tenant.post(PODS, with_annotations(forged("many"), count))
    with pytest.raises(ApiError, match=f"the pod has 513 {TOO_MANY}"):
        tenant.patch(f"{PODS}/forged", {"metadata": {"annotations": {"example.com/more": ""}}})


def config_map(**data: str) -> Json:
    return {"metadata": {"name": "mine"}, "data": data}


KEYS: dict[str, Callable[[Api], Json]] = {
    "a ConfigMap": lambda api: api.post(CONFIG_MAPS, config_map(NVIDIA_VISIBLE_DEVICES="all")),
    "a Secret": lambda api: api.post(SECRETS, config_map(NVIDIA_VISIBLE_DEVICES="YWxs")),
    "a Secret in plain text": lambda api: api.post(
        SECRETS, {"metadata": {"name": "mine"}, "stringData": {names.VISIBLE_DEVICES: "all"}}
    ),
    "a ConfigMap that was harmless": lambda api: (
        api.post(CONFIG_MAPS, config_map(OTHER="1")),
        api.patch(f"{CONFIG_MAPS}/mine", {"data": {names.VISIBLE_DEVICES: "all"}}),
    )[1],
    "a Secret that was harmless": lambda api: (
        api.post(SECRETS, config_map(OTHER="YWxs")),
        api.patch(f"{SECRETS}/mine", {"stringData": {names.VISIBLE_DEVICES: "all"}}),
    )[1],
}


@pytest.mark.core
@pytest.mark.parametrize("way", KEYS)
def test_nothing_that_env_from_may_take_has_the_variables_name(tenant: Api, way: str) -> None:
    with pytest.raises(ApiError) as refused:
        KEYS[way](tenant)
    assert KEY in refused.value.message


@pytest.mark.core
@pytest.mark.parametrize("path", [CONFIG_MAPS, SECRETS])
@pytest.mark.parametrize("key", [names.MEMORY_REQUEST, names.MEMORY_LIMIT])
def test_nothing_that_env_from_may_take_limits_gpu_memory(tenant: Api, path: str, key: str) -> None:
    with pytest.raises(ApiError, match=OWN_LIMIT):
        tenant.post(path, config_map(**{key: "YWxs"}))


def test_ordinary_pods_and_config_maps_pass(tenant: Api) -> None:
    tenant.post(CONFIG_MAPS, config_map(MODEL="llama", VISIBLE_DEVICES="all", CUDA_MPS_PIPE_DIRECTORY="/mps"))
    for i, fields in enumerate(
        [
            {"env": [{"name": names.VISIBLE_DEVICES, "value": "void"}]},
            {"env": [{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "all"}, {"name": "CUDA_VISIBLE_DEVICES"}]},
            source("configMap", ""),
            source("secret", "MY_"),
            source("secret", "NVIDIA_VISIBLE_DEVICES"),
            {"volumeMounts": [{"name": "null", "mountPath": "/data"}]},
            {"env": [{"name": f"V{n}", "value": "x"} for n in range(2000)]},
        ]
    ):
        tenant.post(PODS, forged(f"ordinary-{i}", asks=bool(i % 2), **fields))


def test_what_was_there_before_the_policies_can_still_be_changed_otherwise(cluster: Cluster, tenant: Api) -> None:
    selector = {names.GPU_VISIBILITY: "all"}
    namespace = f"/api/v1/namespaces/{TEAM}"
    cluster.api.patch(namespace, {"metadata": {"labels": selector}})
    wait_for(lambda: tenant.post(PODS, annotated(forged("old", env=[ALL]), "nvidia.com/gpu=all")), 20, "exemption")
    tenant.post(PODS, with_annotations(forged("many"), 513))
    tenant.post(CONFIG_MAPS, config_map(NVIDIA_VISIBLE_DEVICES="void"))
    cluster.api.patch(namespace, {"metadata": {"labels": dict.fromkeys(selector)}})
    wait_for(lambda: refuses(cluster.api), 20, "end of the exemption")
    tenant.patch(f"{PODS}/old", {"metadata": {"labels": {"a": "b"}, "finalizers": []}})
    tenant.patch(f"{CONFIG_MAPS}/mine", {"data": {"OTHER": "1"}})
    with pytest.raises(ApiError, match=KEY):
        tenant.patch(f"{CONFIG_MAPS}/mine", {"data": {names.VISIBLE_DEVICES: "all"}})
    with pytest.raises(ApiError, match="no pod may have annotations"):
        tenant.patch(f"{PODS}/old", annotated({"metadata": {}}, "nvidia.com/gpu=0"))
    tenant.patch(f"{PODS}/many", {"metadata": {"labels": {"a": "b"}, "finalizers": []}})
    with pytest.raises(ApiError, match=TOO_MANY):
        tenant.patch(f"{PODS}/many", {"metadata": {"annotations": {"example.com/0": "changed"}}})


def test_a_namespace_of_drivers_is_exempt_and_no_tenant_makes_its_own_one(cluster: Cluster, tenant: Api) -> None:
    pod = forged("monitor", env=[ALL], volumeMounts=[NULL])
    pod["metadata"]["namespace"] = TRUSTED
    cluster.create_pod(pod)
    cluster.api.delete(f"/api/v1/namespaces/{TRUSTED}/pods/monitor", gracePeriodSeconds="0")
    with pytest.raises(ApiError) as refused:
        tenant.patch(f"/api/v1/namespaces/{TEAM}", {"metadata": {"labels": {names.GPU_VISIBILITY: "all"}}})
    assert refused.value.status == 403


def test_with_the_component_the_api_server_warns_and_does_not_refuse(cluster: Cluster, tenant: Api) -> None:
    """What a cluster has is seen before it is refused."""
    component = void_policy(cluster.plane.assets.minor)
    parts = [component] if component else []
    cluster.apply(kustomization(cluster, "base", "warn-gpu-visibility", *parts))
    wait_for(lambda: not refuses(cluster.api), 30, "policies that warn")
    pod, apply = json.dumps(forged("warned", env=[ALL])), ["apply", "--dry-run=server", "--filename=-"]
    cluster.kubectl(*apply, f"--namespace={TEAM}", stdin=pod)
    with pytest.raises(HarnessError, match=ENV):
        cluster.kubectl(*apply, f"--namespace={TEAM}", "--warnings-as-errors", stdin=pod)
    cluster.apply(kustomization(cluster, "base", *parts))
    wait_for(lambda: refuses(cluster.api), 30, "policies that refuse")


@pytest.fixture
def void(cluster: Cluster) -> None:
    if not void_policy(cluster.plane.assets.minor):
        pytest.skip("MutatingAdmissionPolicies need Kubernetes 1.34")
    wait_for(lambda: visible(cluster.api.post(f"{PODS}?dryRun=All", forged()))["main"] == ["void"], 30, "void")


def visible(pod: Json) -> dict[str, list[str]]:
    """The values of the variable that each container's own environment has."""
    spec = pod["spec"]
    every = [*spec.get("initContainers", []), *spec["containers"], *spec.get("ephemeralContainers", [])]
    return {
        container["name"]: [
            str(variable.get("value")) for variable in container.get("env", []) if variable["name"] == ALL["name"]
        ]
        for container in every
    }


@pytest.mark.usefixtures("void")
def test_a_container_that_asks_nothing_is_told_that_it_sees_nothing(tenant: Api) -> None:
    assert visible(tenant.post(PODS, forged("nothing"))) == {"main": ["void"]}
    for kind in ("init", "sidecar"):
        assert visible(tenant.post(PODS, forged(f"with-{kind}", asks=True, kind=kind))) == {
            "other": ["void"],
            "main": [],
        }
    zero = forged("zero")
    zero["spec"]["containers"][0]["resources"] = {"limits": {names.WHOLE_GPU: "0"}}
    assert visible(tenant.post(PODS, zero)) == {"main": ["void"]}
    assert visible(debug(tenant, "nothing", "debugger"))["debugger"] == ["void"]


@pytest.mark.usefixtures("void")
def test_void_leaves_everything_else_of_a_container_as_it_is(tenant: Api) -> None:
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)"}, {"name": "A", "value": "2"}]
    made = tenant.post(PODS, forged("twice", env=env, **source("configMap", "")))
    (container,) = made["spec"]["containers"]
    assert [one for one in container["env"] if one["name"] != ALL["name"]] == env
    assert visible(made) == {"main": ["void"]}
    said = tenant.post(PODS, forged("said", env=[{"name": names.VISIBLE_DEVICES, "value": "none"}]))
    assert visible(said) == {"main": ["none"]}
