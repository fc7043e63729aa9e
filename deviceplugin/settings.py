"""The plugin's settings: one frozen value, filled from flags and the environment, printed at start, read by all."""

from __future__ import annotations

from math import inf
from pathlib import Path

import msgspec

from deviceplugin import cdi
from deviceplugin.devices import Sharing
from deviceplugin.health import COOL_DOWN_S, IGNORED_XIDS
from deviceplugin.slices import TimeSlicing
from deviceplugin.strategies import Strategy
from protos.contract import names


class SettingsError(ValueError):
    """A setting that cannot be used: names it, its value and what was expected."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All that the plugin can be told."""

    node_name: str
    fake: str = ""
    """Profile of a machine without GPUs; "" = real GPUs, by NVML."""
    standalone: bool = False
    """No extender places pods: this plugin does, on its own node."""
    kubelet_dir: Path = Path(names.DEVICE_PLUGIN_DIR)
    """The kubelet's device plugin folder, with kubelet.sock in it."""
    pod_resources: Path = Path(names.POD_RESOURCES_SOCKET)
    """The kubelet's PodResources socket."""
    kubeconfig: str = ""
    """File or files of the API server's credentials; "" = the pod's service account, else $KUBECONFIG."""
    resources: names.Resources = names.Resources()
    """The extended resource names that pods ask for."""
    unit_mib: int = names.DEFAULT_UNIT_MIB
    """MiB per unit of GPU memory; the same in the whole cluster."""
    slices_per_gpu: int = names.DEFAULT_SLICES_PER_GPU
    gpushare: bool = False
    """Serve as gpushare does: its resource, device IDs, annotations and environment."""
    time_slicing: TimeSlicing = TimeSlicing()
    """Replicas of whole GPUs, from NVIDIA's configuration file."""
    device_list_strategy: Strategy = Strategy.ENVVAR
    """How the container runtime is told of a container's GPUs."""
    cdi_kind: str = names.CDI_KIND
    """vendor/class of the GPUs' CDI devices."""
    cdi_spec_dirs: tuple[Path, ...] = cdi.SPEC_DIRS
    """Folders with CDI specifications, as the container runtime reads them."""
    ignored_xids: frozenset[int] = IGNORED_XIDS
    """Errors that do not make a GPU sick."""
    cool_down_s: float = COOL_DOWN_S
    """Seconds without trouble until a GPU is well again."""
    metrics_port: int = 0
    """Port of the Prometheus metrics on every interface; 0 = none."""
    drain_s: float = 3.0
    """Seconds between saying `leaving` and going."""

    def __post_init__(self) -> None:
        if not self.node_name:
            raise SettingsError("node_name is empty: expected the name of this node (--node-name or NODE_NAME)")
        for name, least in (("unit_mib", 1), ("slices_per_gpu", 1), ("cool_down_s", 0), ("drain_s", 0)):
            if not least <= getattr(self, name) < inf:
                raise SettingsError(f"{name} is {getattr(self, name)}: expected {least} or more")
        if not cdi.KIND.fullmatch(self.cdi_kind):
            raise SettingsError(f"cdi_kind is {self.cdi_kind!r}: expected vendor/class, like {names.CDI_KIND}")
        if not 0 <= self.metrics_port <= 65535:
            raise SettingsError(f"metrics_port is {self.metrics_port}: expected a port, or 0 for none")
        if len(set(self.resources.all)) < len(self.resources.all):
            raise SettingsError(f"resources are {', '.join(self.resources.all)}: expected different names")

    @property
    def sharing(self) -> Sharing:
        """How GPUs are cut up."""
        return Sharing(
            resources=self.resources,
            unit_mib=self.unit_mib,
            slices_per_gpu=self.slices_per_gpu,
            replicas=self.time_slicing.replicas,
            gpushare=self.gpushare,
        )


def xids(text: str) -> frozenset[int]:
    """Error numbers divided by commas; raises SettingsError."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise SettingsError(f"{text!r} is no list of XIDs: expected numbers divided by commas, like 13,31")
    return frozenset(map(int, parts))
