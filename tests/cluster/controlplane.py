"""etcd, kube-apiserver, kube-controller-manager and any number of kube-schedulers, as ordinary processes."""

from __future__ import annotations

import http.client
import json
import shutil
import ssl
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.cluster import host, pki
from tests.cluster.api import Api, Json
from tests.cluster.assets import Assets
from tests.cluster.process import Process
from tests.cluster.run import Run

_START_SECONDS = 90  # two cores that others share
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "verbs": ["create", "update", "patch", "delete"]}, {"level": "None"}],
}


class Scheduler:
    """One kube-scheduler process and the port of its own healthz and metrics."""

    def __init__(self, process: Process, port: int) -> None:
        self.process = process
        self.port = port

    def text(self, path: str) -> str:
        """GET of a path anybody may read (/healthz, /readyz, /livez); raises OSError when it is not well."""
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=5, context=ssl._create_unverified_context()
        )
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read().decode(errors="replace")
        finally:
            connection.close()
        if response.status != 200:
            raise OSError(f"GET {path}: {response.status}: {body}")
        return body


class ControlPlane:
    """`start()` leaves an API server that is ready, with `api` as its administrator."""

    def __init__(
        self,
        run: Run,
        assets: Assets,
        *,
        in_cluster: bool = False,
        audited: bool = True,
        apiserver_args: Sequence[str] = (),
        controller_manager_args: Sequence[str] = (),
    ) -> None:
        """With `audited`, the API server writes down every write that it answered, which costs it time."""
        self.run = run
        self.assets = assets
        self.in_cluster, self.audited = in_cluster, audited
        self.port = host.free_port()
        self.server = f"https://127.0.0.1:{self.port}"
        self.audit_log = run.dir / "audit.log"
        self.schedulers: dict[str, Scheduler] = {}
        self._authority = pki.Authority(run.dir / "pki")
        self._admin = self._authority.issue("admin", user="admin", groups=["system:masters"])
        self._token_keys = self._authority.signing_key("serviceaccounts")
        self.admin_kubeconfig = self._write_kubeconfig("admin", pki.client_certificate(self._admin))
        self.api = Api(self.port, self.ca, certificate=self._admin)
        self.etcd_url = f"http://127.0.0.1:{host.free_port()}"
        self.etcd_data = run.dir / "etcd"
        self.etcd = run.process("etcd", self._etcd_argv())
        self.apiserver = run.process("kube-apiserver", [*self._apiserver_argv(), *apiserver_args])
        manager_argv = [*self._controller_manager_argv(), *controller_manager_args]
        self.controller_manager = run.process("kube-controller-manager", manager_argv)

    @property
    def ca(self) -> Path:
        return self._authority.ca.certificate

    def launch(self) -> None:
        """Start etcd and the API server without waiting."""
        self.etcd.start()
        self.apiserver.start()
        if self.in_cluster:
            host.redirect_service(self.run.id, self.run.slot.service_ip, self.port)

    def wait_ready(self) -> None:
        """Wait for the API server, then start the controller manager."""
        self.apiserver.wait_until(lambda: self.api.text("/readyz") == "ok", _START_SECONDS, "ready API server")
        self.controller_manager.start()

    def restart_apiserver(self) -> None:
        self.apiserver.restart()
        self.apiserver.wait_until(lambda: self.api.text("/readyz") == "ok", _START_SECONDS, "ready API server")

    def stop(self) -> None:
        """End the API server and etcd, as before a restore."""
        self.apiserver.stop()
        self.etcd.stop()

    def restored(self, data: Path) -> None:
        """Start on other data; kube-controller-manager and the schedulers start anew."""
        shutil.rmtree(self.etcd_data)
        data.rename(self.etcd_data)
        self.etcd.start()
        self.apiserver.start()
        self.apiserver.wait_until(lambda: self.api.text("/readyz") == "ok", _START_SECONDS, "ready API server")
        for process in (self.controller_manager, *(each.process for each in self.schedulers.values())):
            process.restart()

    def scheduler(
        self,
        name: str = "kube-scheduler",
        config: Mapping[str, Any] | None = None,
        *,
        kubeconfig: Path | None = None,
        hostname: str | None = None,
        args: Sequence[str] = (),
    ) -> Scheduler:
        """Start a kube-scheduler and wait for its healthz.

        `config` is a KubeSchedulerConfiguration, by default the stock one without leader election; its kubeconfig
        (default: the administrator's) is filled in. Replicas of one machine need a `hostname` each.
        """
        port = host.free_port()
        file = self.run.dir / f"{name}.json"
        file.write_text(json.dumps(_scheduler_config(config, kubeconfig or self.admin_kubeconfig)))
        argv = [str(self.assets.program("kube-scheduler")), f"--config={file}", "--bind-address=127.0.0.1"]
        argv += [f"--secure-port={port}", *args]
        process = self.run.process(name, argv, hostname=hostname)
        made = self.schedulers[name] = Scheduler(process.start(), port)
        process.wait_until(lambda: made.text("/healthz") == "ok", _START_SECONDS, f"healthy {name}")
        return made

    def user_kubeconfig(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig for `user`, by a client certificate."""
        name = user.replace(":", "-").replace("/", "-")
        pair = self._authority.issue(name, user=user, groups=groups)
        return self._write_kubeconfig(name, pki.client_certificate(pair))

    def token_kubeconfig(self, name: str, token: str) -> Path:
        """A kubeconfig for the bearer of `token`."""
        return self._write_kubeconfig(name, {"token": token})

    def token(self, namespace: str, account: str, *, bound_to: Json | None = None, seconds: int = 86400) -> str:
        """A token of a ServiceAccount (TokenRequest), bound to the API object `bound_to` if given."""
        spec: Json = {"expirationSeconds": seconds}
        if bound_to:
            meta = bound_to["metadata"]
            reference = {"kind": bound_to["kind"], "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}
            spec["boundObjectRef"] = reference
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        answer = self.api.post(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
        return str(answer["status"]["token"])

    def audit(self) -> Iterator[Json]:
        """Every write the API server answered, as audit events at level Metadata, oldest first."""
        if self.audit_log.exists():
            with self.audit_log.open() as lines:
                for line in lines:
                    if line.endswith("\n"):
                        yield json.loads(line)

    def _write_kubeconfig(self, name: str, user: Mapping[str, str]) -> Path:
        path = self.run.dir / f"{name}.kubeconfig"
        return pki.write_kubeconfig(path, server=self.server, ca=self.ca, user=user)

    def _etcd_argv(self) -> list[str]:
        url = self.etcd_url
        argv = ["etcd", f"--data-dir={self.etcd_data}", f"--listen-client-urls={url}"]
        argv += [f"--advertise-client-urls={url}", f"--listen-peer-urls=http://127.0.0.1:{host.free_port()}"]
        return [*argv, "--unsafe-no-fsync"]

    def _apiserver_argv(self) -> list[str]:
        service_ip = self.run.slot.service_ip
        sans = ["IP:127.0.0.1", f"IP:{service_ip}", "DNS:localhost", "DNS:kubernetes.default.svc"]
        serving = self._authority.issue("kube-apiserver", user="kube-apiserver", sans=sans)
        address = "0.0.0.0" if self.in_cluster else "127.0.0.1"
        flags = {
            "etcd-servers": self.etcd_url,
            "bind-address": address,
            "secure-port": self.port,
            "advertise-address": "127.0.0.1",
            "endpoint-reconciler-type": "none",
            "service-cluster-ip-range": self.run.slot.service_range,
            "tls-cert-file": serving.certificate,
            "tls-private-key-file": serving.key,
            "client-ca-file": self.ca,
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": self._token_keys.certificate,
            "service-account-signing-key-file": self._token_keys.key,
            "authorization-mode": "Node,RBAC",
            "allow-privileged": "true",
            "kubelet-client-certificate": self._admin.certificate,
            "kubelet-client-key": self._admin.key,
            "kubelet-preferred-address-types": "InternalIP",
        }
        if self.audited:
            flags["audit-policy-file"] = policy = self.run.dir / "audit-policy.json"
            policy.write_text(json.dumps(_AUDIT_POLICY))
            flags["audit-log-path"] = self.audit_log
        if not self.in_cluster:  # else a pod would have to wait for the controller manager's default account
            flags["disable-admission-plugins"] = "ServiceAccount"
        return [str(self.assets.program("kube-apiserver")), *(f"--{name}={value}" for name, value in flags.items())]

    def _controller_manager_argv(self) -> list[str]:
        return [
            str(self.assets.program("kube-controller-manager")),
            f"--kubeconfig={self.admin_kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={host.free_port()}",
            "--leader-elect=false",
            f"--service-account-private-key-file={self._token_keys.key}",
            f"--root-ca-file={self.ca}",
        ]


def _scheduler_config(config: Mapping[str, Any] | None, kubeconfig: Path) -> Json:
    given = config or {"leaderElection": {"leaderElect": False}}
    connection = {"kubeconfig": str(kubeconfig), **given.get("clientConnection", {})}
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return {**kind, **given, "clientConnection": connection}
