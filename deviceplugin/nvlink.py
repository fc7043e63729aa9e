"""How the GPUs of this machine are linked, by NVML: NVLinks first, PCIe for the rest."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

from deviceplugin.machine import Gpu
from protos.contract.inventory import Link


class Links:
    """How each two GPUs are linked: NVLinks (direct, or through switches as a full mesh), else PCIe closeness."""

    def __init__(self, nvml: Any, gpus: list[tuple[Gpu, Any]]) -> None:
        self.nvml, self.gpus = nvml, gpus
        self.by_bus = {gpu.pci: gpu.index for gpu, _ in gpus if gpu.pci}
        self.switched: dict[int, int] = {}
        self.direct: dict[tuple[int, int], int] = {}
        self.pcie = {
            nvml.NVML_TOPOLOGY_INTERNAL: "PIX",
            nvml.NVML_TOPOLOGY_SINGLE: "PIX",
            nvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
            nvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
            nvml.NVML_TOPOLOGY_NODE: "NODE",
            nvml.NVML_TOPOLOGY_SYSTEM: "SYS",
        }

    def all(self) -> tuple[Link, ...]:
        if len(self.gpus) < 2:
            return ()
        for gpu, handle in self.gpus:
            for link in range(self.nvml.NVML_NVLINK_MAX_LINKS):
                self._count(gpu.index, handle, link)
        kinds = ((a.index, b.index, self._kind(a, ha, b, hb)) for (a, ha), (b, hb) in combinations(self.gpus, 2))
        return tuple((a, b, kind) for a, b, kind in kinds if kind)

    def _count(self, index: int, handle: Any, link: int) -> None:
        nvml = self.nvml
        if self._said(nvml.nvmlDeviceGetNvLinkState, handle, link) != nvml.NVML_FEATURE_ENABLED:
            return
        kind = self._said(nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
        remote = self._said(nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
        peer = self.by_bus.get(bus_id(remote.busId)) if remote is not None else None
        if peer is not None and peer != index:
            self.direct[index, peer] = self.direct.get((index, peer), 0) + 1
        elif kind in (None, nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH):
            self.switched[index] = self.switched.get(index, 0) + 1

    def _kind(self, a: Gpu, handle_a: Any, b: Gpu, handle_b: Any) -> str:
        pair = (a.index, b.index)
        links = max(self.direct.get(pair, 0), self.direct.get(pair[::-1], 0))
        links += min(self.switched.get(a.index, 0), self.switched.get(b.index, 0))
        if links:
            return f"NV{links}"
        return self.pcie.get(self._said(self.nvml.nvmlDeviceGetTopologyCommonAncestor, handle_a, handle_b), "")

    def _said(self, getter: Callable[..., Any], *args: Any) -> Any:
        """What NVML says, None where it does not."""
        try:
            return getter(*args)
        except self.nvml.NVMLError:
            return None


def bus_id(raw: str | bytes) -> str:
    """A PCI bus ID as Linux writes it: `0000:07:00.0`, where NVML says `00000000:07:00.0`."""
    text = (raw.decode() if isinstance(raw, bytes) else raw).lower()
    domain, _, rest = text.partition(":")
    return f"{domain.lstrip('0'):0>4}:{rest}"
