"""What an embedded cluster is made of: its nodes, and the commands of the extender and the plugins."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from extender.sim.kubelet.kubelet import Settings as KubeletSettings
from extender.sim.kubelet.status import NodeSpec


class ExtenderPlace(msgspec.Struct, frozen=True):
    """Where the extender of this cluster lives."""

    kubeconfig: Path
    listen: str  # host:port of the scheduler's verbs
    status_listen: str

    @property
    def url_prefix(self) -> str:
        return f"http://{self.listen}/scheduler"

    @property
    def status_url(self) -> str:
        return f"http://{self.status_listen}"


class PluginPlace(msgspec.Struct, frozen=True):
    """Where the plugin of one node lives. ``profile`` is a copy that the cluster may edit."""

    node: str
    profile: Path
    kubelet_dir: Path
    pod_resources: Path  # a socket
    kubeconfig: Path


def gangshare_extender(place: ExtenderPlace) -> list[str]:
    """The command of our extender."""
    where = ["--listen", place.listen, "--status-listen", place.status_listen]
    return [sys.executable, "-m", "extender", "extender", "--kubeconfig", str(place.kubeconfig), *where]


def gangshare_plugin(place: PluginPlace) -> list[str]:
    """The command of our device plugin."""
    node = ["--fake", str(place.profile), "--node-name", place.node, "--kubeconfig", str(place.kubeconfig)]
    sockets = ["--kubelet-dir", str(place.kubelet_dir), "--pod-resources", str(place.pod_resources)]
    return [sys.executable, "-m", "deviceplugin", *node, *sockets]


class ClusterSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to build."""

    nodes: tuple[NodeSpec, ...]
    scheduler_config: Callable[[str], str]
    """The text of a KubeSchedulerConfiguration, given the extender's urlPrefix."""
    extender_command: Callable[[ExtenderPlace], Sequence[str]] = gangshare_extender
    plugin_command: Callable[[PluginPlace], Sequence[str]] = gangshare_plugin
    kubelet: KubeletSettings = KubeletSettings(status_seconds=1.0)
    job_backoff_seconds: float = 10.0
    """Until a Job makes another pod after its first has failed."""
    establish_seconds: float = 0.2
    """Until a new CustomResourceDefinition is served."""
    history: int = 20_000
    """Changes kept per resource for watches."""
    token: str = ""
    """Bearer token that clients of the API server must show; the kubeconfig has it."""
    seed: int = 0
