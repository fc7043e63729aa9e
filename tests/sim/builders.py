"""Manifests, configurations and clusters for the tests of the embedded cluster."""

import sys
from typing import Any

import yaml

from extender.sim.kubelet.kubelet import Settings
from extender.sim.kubelet.status import NodeSpec
from extender.sim.spec import ClusterSpec, ExtenderPlace, PluginPlace
from tests.sim.standin_plugin import RESOURCE


def a_container(name: str = "main", /, **limits: object) -> dict[str, Any]:
    """``gpu=2`` asks two example.com/gpu."""
    known = {"gpu": RESOURCE}
    return {"name": name, "image": "busybox", "resources": {"limits": {known.get(k, k): v for k, v in limits.items()}}}


def a_pod(
    name: str, *containers: dict[str, Any], labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None, **spec: Any,
) -> dict[str, Any]:  # fmt: skip
    metadata = {"name": name, "namespace": "default", "labels": labels or {}, "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {"containers": list(containers) or [a_container()], **spec}}


def a_node(name: str = "node-1", cpu: str = "8", memory: str = "16Gi", **more: Any) -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": memory, "pods": "110", **more}
    ready = {"type": "Ready", "status": "True"}
    return {"metadata": {"name": name}, "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}}


def a_config(url: str = "", timeout: str = "5s", split: bool = False, **more: Any) -> str:
    """A KubeSchedulerConfiguration with one extender (none without ``url``) and no in-tree preemption; ``split``:
    bind has an entry of its own, with a timeout of 30 s."""
    common: dict[str, Any] = {"urlPrefix": url, "nodeCacheCapable": True}
    decide = {"filterVerb": "filter", "httpTimeout": timeout}
    bind = {"bindVerb": "bind", "httpTimeout": "30s"}
    entries = [{**common, **decide}, {**common, **bind}] if split else [{**common, **bind, **decide}]
    profile = {"schedulerName": "default-scheduler", "plugins": {"postFilter": {"disabled": [{"name": "*"}]}}}
    election = {"leaderElect": True, "leaseDuration": "3s", "renewDeadline": "2s", "retryPeriod": "500ms"}
    return yaml.safe_dump(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "percentageOfNodesToScore": 100,
            "leaderElection": election,
            "profiles": [profile],
            "extenders": entries if url else [],
            **more,
        }
    )


def a_cluster(*nodes: NodeSpec, kubelet: Settings | None = None) -> ClusterSpec:
    """A cluster whose extender and plugins are the stand-ins of these tests."""

    def extender(place: ExtenderPlace) -> list[str]:
        ports = [address.rpartition(":")[2] for address in (place.listen, place.status_listen)]
        return [sys.executable, "-m", "tests.sim.standin_extender", *ports, str(place.kubeconfig)]

    def plugin(place: PluginPlace) -> list[str]:
        return [sys.executable, "-m", "tests.sim.standin_plugin", str(place.kubelet_dir)]

    return ClusterSpec(
        nodes=nodes or (NodeSpec(name="node-1", profile="t4x4"),),
        scheduler_config=a_config,
        extender_command=extender,
        plugin_command=plugin,
        kubelet=kubelet or Settings(status_seconds=0.1),
    )
