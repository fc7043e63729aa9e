"""How the GPUs of this machine are linked, read by NVML: NVLinks first, else PCIe closeness."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

from deviceplugin.machine import Gpu
from protos.contract.inventory import Link


def links(nvml: Any, gpus: Sequence[tuple[Gpu, Any]]) -> tuple[Link, ...]:
    """The link of each pair of GPUs, given with their handles. Links to switches count as a full mesh."""
    if len(gpus) < 2:
        return ()
    pcie = {
        nvml.NVML_TOPOLOGY_INTERNAL: "PIX",
        nvml.NVML_TOPOLOGY_SINGLE: "PIX",
        nvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
        nvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
        nvml.NVML_TOPOLOGY_NODE: "NODE",
        nvml.NVML_TOPOLOGY_SYSTEM: "SYS",
    }
    direct, switched = _nvlinks(nvml, gpus)
    found = []
    for (a, handle_a), (b, handle_b) in combinations(gpus, 2):
        count = max(direct[a.index, b.index], direct[b.index, a.index]) + min(switched[a.index], switched[b.index])
        if count:
            found.append((a.index, b.index, f"NV{count}"))
        elif kind := pcie.get(_read(nvml, nvml.nvmlDeviceGetTopologyCommonAncestor, handle_a, handle_b)):
            found.append((a.index, b.index, kind))
    return tuple(found)


def _nvlinks(nvml: Any, gpus: Sequence[tuple[Gpu, Any]]) -> tuple[Counter[tuple[int, int]], Counter[int]]:
    """The number of NVLinks from each GPU to each other, and from each GPU to switches, by index."""
    by_bus = {gpu.pci: gpu.index for gpu, _ in gpus if gpu.pci}
    direct: Counter[tuple[int, int]] = Counter()
    switched: Counter[int] = Counter()
    for gpu, handle in gpus:
        for link in range(nvml.NVML_NVLINK_MAX_LINKS):
            if _read(nvml, nvml.nvmlDeviceGetNvLinkState, handle, link) != nvml.NVML_FEATURE_ENABLED:
                continue
            kind = _read(nvml, nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
            remote = _read(nvml, nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
            peer = by_bus.get(bus_id(remote.busId)) if remote is not None else None
            if peer is not None and peer != gpu.index:
                direct[gpu.index, peer] += 1
            elif kind in (None, nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH):
                switched[gpu.index] += 1
    return direct, switched


def _read(nvml: Any, getter: Callable[..., Any], *args: Any) -> Any:
    """What NVML answers, None for an error."""
    try:
        return getter(*args)
    except nvml.NVMLError:
        return None


def bus_id(raw: str | bytes) -> str:
    """A PCI bus ID as Linux writes it: `0000:07:00.0`, where NVML writes `00000000:07:00.0`."""
    text = (raw.decode() if isinstance(raw, bytes) else raw).lower()
    domain, _, rest = text.partition(":")
    return f"{domain.lstrip('0'):0>4}:{rest}"
