"""The specification of an embedded cluster: its nodes, and the commands of extender and plugins."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from extender.sim.kubelet.kubelet import Settings as KubeletSettings
from extender.sim.kubelet.status import NodeSpec


class ExtenderPlace(msgspec.Struct, frozen=True):
    """The addresses of a cluster's extender."""

    kubeconfig: Path
    listen: str  # host:port for kube-scheduler
    status_listen: str

    @property
    def url_prefix(self) -> str:
        return f"http://{self.listen}/scheduler"

    @property
    def status_url(self) -> str:
        return f"http://{self.status_listen}"


class PluginPlace(msgspec.Struct, frozen=True):
    """The files of one node's plugin. The cluster may edit ``profile``."""

    node: str
    profile: Path
    kubelet_dir: Path
    pod_resources: Path  # a socket
    kubeconfig: Path
    partitioner: Path | None = None  # the folder of the partitioner, if MIG instances are made on demand

    @property
    def partitioner_socket(self) -> Path | None:
        return self.partitioner / "asked.sock" if self.partitioner else None


def gangshare_extender(place: ExtenderPlace) -> list[str]:
    """The command of our extender."""
    addresses = ["--listen", place.listen, "--status-listen", place.status_listen]
    return [sys.executable, "-m", "extender", "extender", "--kubeconfig", str(place.kubeconfig), *addresses]


def gangshare_plugin(place: PluginPlace) -> list[str]:
    """The command of our device plugin."""
    node = ["--fake", str(place.profile), "--node-name", place.node, "--kubeconfig", str(place.kubeconfig)]
    sockets = ["--kubelet-dir", str(place.kubelet_dir), "--pod-resources", str(place.pod_resources)]
    cut = (
        ["--mig-strategy", "mixed", "--partitioner-socket", str(place.partitioner_socket)] if place.partitioner else []
    )
    return [sys.executable, "-m", "deviceplugin", *node, *sockets, *cut]


def gangshare_partitioner(place: PluginPlace) -> list[str]:
    """The command of our partitioner."""
    node = ["--fake", str(place.profile), "--node-name", place.node]
    files = ["--state-dir", str(place.partitioner), "--socket", str(place.partitioner_socket)]
    return [sys.executable, "-m", "deviceplugin.partitioner", *node, *files]


class ClusterSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that makes a cluster."""

    nodes: tuple[NodeSpec, ...]
    scheduler_config: Callable[[str], str]
    """Maps the extender's urlPrefix to the text of a KubeSchedulerConfiguration."""
    extender_command: Callable[[ExtenderPlace], Sequence[str]] = gangshare_extender
    plugin_command: Callable[[PluginPlace], Sequence[str]] = gangshare_plugin
    kubelet: KubeletSettings = KubeletSettings(status_seconds=1.0)
    job_backoff_seconds: float = 10.0
    """Delay before a Job replaces its first failed pod."""
