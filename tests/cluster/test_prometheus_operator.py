"""What the Prometheus Operator makes of our monitors and alerts, on a real API server with its definitions."""

from __future__ import annotations

import base64
import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from protos.contract import names
from tests.cluster import assets, host, needed
from tests.cluster.api import ApiError, Json
from tests.cluster.cluster import Cluster
from tests.cluster.process import wait_for
from tests.monitoring.files import COMPONENTS, rules
from tests.unit.manifests.conftest import Chart

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]  # it builds the operator
GROUP, NAMESPACE, CHARTED = "monitoring.coreos.com", "monitoring", "gpus"
SELECTORS = ("Selector", "NamespaceSelector")
EVERYTHING: Json = {f"{kind}{which}": {} for kind in ("serviceMonitor", "podMonitor", "rule") for which in SELECTORS}
PROMETHEUS: Json = {
    "apiVersion": f"{GROUP}/v1",
    "kind": "Prometheus",
    "metadata": {"name": "all", "namespace": NAMESPACE},
    "spec": {"version": "v2.42.0", **EVERYTHING},
}
VALUES: Json = {
    "usage": {"enabled": True},
    "prometheus": {part: {"enabled": True} for part in ("serviceMonitor", "podMonitor", "rules")},
}
JOBS = {
    *(f"podMonitor/{names.NAMESPACE}/gangshare-{part}/0" for part in ("scheduler", "plugin", "usage")),
    *(f"podMonitor/{CHARTED}/gangshare-{part}/0" for part in ("plugin", "usage")),
    f"serviceMonitor/{CHARTED}/gangshare-scheduler/0",
}


def charted(helm: Path) -> list[Json]:
    """The monitors and alerts of the chart in another namespace."""
    found = Chart(helm).objects(VALUES, namespace=CHARTED).all
    return [one for one in found if one["apiVersion"].startswith(f"{GROUP}/")]


@pytest.fixture(scope="module")
def cluster(able_machine: None) -> Iterator[Cluster]:
    """A cluster with the operator, our monitors and alerts twice, and a Prometheus that selects everything."""
    with needed.or_skip():
        (program, definitions), helm = assets.prometheus_operator(), assets.helm()
    with Cluster.up(nodes=0, scheduler=False) as running:
        running.kubectl("apply", "--server-side", "--filename", str(definitions))
        running.kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=60s")
        for namespace in (NAMESPACE, names.NAMESPACE, CHARTED):
            running.kubectl("create", "namespace", namespace)
        applied = ["apply", "--server-side", "--validate=strict", "--filename"]
        for file in ("pod-monitors.yaml", "prometheus-rule.yaml"):
            running.kubectl(*applied, str(COMPONENTS / "monitoring" / file))
        running.kubectl(*applied, "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": charted(helm)}))
        running.apply(PROMETHEUS)
        argv = [str(program), f"--web.listen-address=127.0.0.1:{host.free_port()}"]
        operator = running.process("operator", argv, env={**os.environ, "KUBECONFIG": str(running.kubeconfig)}).start()
        operator.wait_until(lambda: configuration(running), 60, "a configuration of Prometheus")
        yield running
        operator.stop()


def configuration(cluster: Cluster) -> str:
    """That of Prometheus, "" until there is one."""
    try:
        data = cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/prometheus-all")["data"]
    except ApiError:
        return ""
    return gzip.decompress(base64.b64decode(data["prometheus.yaml.gz"])).decode()


def test_the_operator_takes_every_monitor(cluster: Cluster) -> None:
    def jobs() -> dict[str, Json]:
        found = yaml.safe_load(configuration(cluster) or "{}")
        return {one["job_name"]: one for one in found.get("scrape_configs") or ()}

    wait_for(lambda: set(jobs()) == JOBS, 60, "a job for each monitor")
    for name, job in jobs().items():
        labels = {rule.get("target_label") for rule in job["relabel_configs"]}
        assert "node" in labels or "plugin" not in name, name
        assert bool(job.get("honor_labels")) == ("usage" in name), name


def test_the_operator_takes_the_alerts(cluster: Cluster) -> None:
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/prometheus-all-rulefiles-0"

    def files() -> dict[str, str]:
        try:
            found: dict[str, str] = cluster.api.get(path).get("data") or {}
        except ApiError:
            return {}
        return found

    wait_for(lambda: len(files()) == 2, 60, "the alerts of both namespaces")
    for name, text in files().items():
        namespace = next(each for each in (names.NAMESPACE, CHARTED) if name.startswith(each))
        alerts = {rule["alert"] for group in yaml.safe_load(text)["groups"] for rule in group["rules"]}
        assert alerts == {rule["alert"] for group in rules()["groups"] for rule in group["rules"]}, namespace
        assert names.NAMESPACE in text if namespace == names.NAMESPACE else names.NAMESPACE not in text
