"""An API server with a front proxy, the aggregated API behind it, and users who see both with their own rights.

Nodes are objects: pods are bound there and never run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from protos.contract import names
from tests.cluster import host
from tests.cluster.api import Json
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import Gangshare
from tests.cluster.pki import Authority
from tests.cluster.process import HarnessError, wait_for
from tests.scenarios import commands

API_SERVICE = f"/apis/apiregistration.k8s.io/v1/apiservices/{names.VISIBILITY_API_SERVICE}"
FRONT_PROXY = "front-proxy-client"
NOBODY = "nobody"
"""A Service without endpoints."""


def up(folder: Path, more: Sequence[str] = ()) -> Cluster:
    """A cluster without nodes and schedulers, whose API server resolves no Services but those of external names.

    `more`: further flags of the API server.
    """
    authority = Authority(folder / "proxy")
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
        *more,
    ]
    controllers = ["--controllers=*,-node-lifecycle-controller"]
    return Cluster.up(nodes=0, scheduler=False, apiserver_args=flags, controller_manager_args=controllers)


def share(cluster: Cluster, args: Sequence[str] = ()) -> Gangshare:
    """Gangshare with the component, started; the API is asked for at the extender's own port."""
    port = host.free_port()
    made = Gangshare(
        cluster, {}, components=["visibility"], extender_args=[f"--visibility-listen=127.0.0.1:{port}", *args]
    )
    external = {"type": "ExternalName", "externalName": "localhost"}
    nobody = {"selector": {"app": NOBODY}, "ports": [{"port": 443}]}
    for name, spec in ((names.VISIBILITY, external), (NOBODY, nobody)):
        metadata = {"name": name, "namespace": names.NAMESPACE}
        cluster.apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    point_at(cluster, port=port)
    return made.start()


def point_at(cluster: Cluster, **service: object) -> Json:
    """The API server looks for the API at this Service now; at which it did before."""
    before: Json = cluster.api.get(API_SERVICE)["spec"]["service"]
    cluster.api.patch(API_SERVICE, {"spec": {"service": service}})
    return before


def available(cluster: Cluster) -> str:
    """`True` while the API server reaches the API, else `False`."""
    conditions = {one["type"]: one for one in cluster.api.get(API_SERVICE)["status"]["conditions"]}
    status: str = conditions["Available"]["status"]
    return status


def wait_available(cluster: Cluster, status: str = "True") -> None:
    wait_for(lambda: available(cluster) == status, 60, f"an APIService whose condition Available is {status}")


@contextmanager
def unavailable(cluster: Cluster, **service: object) -> Iterator[None]:
    """The API is not where the API server looks for it: at this Service, by default at one without endpoints."""
    before = point_at(cluster, **(service or {"name": NOBODY, "port": 443}))
    try:
        wait_available(cluster, "False")
        yield
    finally:
        point_at(cluster, **before)
    wait_available(cluster)


def in_namespace(namespace: str, pod: Json) -> Json:
    pod["metadata"]["namespace"] = namespace
    return pod


class User:
    """Somebody with `edit` in one namespace, who may see GPUs."""

    def __init__(self, cluster: Cluster, name: str, namespace: str) -> None:
        self.namespace, self._cluster = namespace, cluster
        cluster.kubectl(
            "create", "rolebinding", name, "--clusterrole=edit", f"--user={name}", f"--namespace={namespace}"
        )
        cluster.kubectl("create", "clusterrolebinding", name, "--clusterrole=gangshare-gpu-viewer", f"--user={name}")
        self.kubeconfig = cluster.plane.user_kubeconfig(name)
        wait_for(self._lists, 60, "aggregated roles, and a group that is discovered")

    def _lists(self) -> bool:
        try:
            self.kubectl("get", "gpupods")
        except HarnessError:
            return False
        return True

    def kubectl(self, *arguments: str) -> str:
        """What kubectl prints in the user's namespace."""
        return self._cluster.kubectl(*arguments, f"--namespace={self.namespace}", kubeconfig=self.kubeconfig)

    def apply(self, *objects: Json) -> str:
        """Apply; the warnings of it."""
        apply = ["apply", "--filename=-", f"--namespace={self.namespace}"]
        made = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        return self._cluster.kubectl_says(*apply, stdin=made, kubeconfig=self.kubeconfig)[1]

    def events(self, kind: str, name: str) -> str:
        """What `kubectl describe` shows of Events, on one line."""
        return " ".join(self.kubectl("describe", kind, name).partition("Events:")[2].split())

    def told(self, name: str, code: str) -> str:
        """The Events of a pod, once one has this reason."""

        def found() -> str:
            events = self.events("pods", name)
            assert code in events, events
            return events

        return wait_for(found, 60, f"an Event {code} about {name}")

    def why(self, kind: str, name: str) -> str:
        """The last column of `kubectl get` of an object of the aggregated API."""
        heads, row = self.kubectl("get", kind, name).splitlines()
        return row[heads.index("WHY") :].strip()

    def gangshare(self, *arguments: str) -> commands.Ran:
        """`gangshare` with the user's own kubeconfig, and no port-forward."""
        return commands.run(*arguments, env={"KUBECONFIG": str(self.kubeconfig)})
