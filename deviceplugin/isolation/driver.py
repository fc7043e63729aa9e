"""Memory limits of control groups in NVIDIA's driver: NVML of branch r615 and later.

The getter needs no privilege, the setter needs root. Older drivers and older versions of nvidia-ml-py lack them, so
they are looked up in the loaded library.
Sources: nvml.h of CUDA 13.4 (nvmlGetMemoryLimits_v1_t), NVML API reference, "MPS v3 Memory Partitioning".
"""

import ctypes
import os
from typing import Any

from deviceplugin.machine import MemoryLimit

GETTER, SETTER = "nvmlDeviceGetMemoryLimits_v1", "nvmlDeviceSetMemoryLimits_v1"
NO_LIMIT = 2**64 - 1


class Limits(ctypes.Structure):
    """nvmlGetMemoryLimits_v1_t, in bytes."""

    _fields_ = (
        ("nameSpace", ctypes.c_char_p),
        ("softLimit", ctypes.c_ulonglong),
        ("hardLimit", ctypes.c_ulonglong),
        ("currentUsed", ctypes.c_ulonglong),
    )


class NewLimits(ctypes.Structure):
    """nvmlSetMemoryLimits_v1_t, in bytes."""

    _fields_ = (
        ("nameSpace", ctypes.c_char_p),
        ("softLimit", ctypes.c_ulonglong),
        ("hardLimit", ctypes.c_ulonglong),
    )


def version(nvml: Any) -> str:
    """The driver's version, "" if it does not tell."""
    try:
        return str(nvml.nvmlSystemGetDriverVersion())
    except nvml.NVMLError:
        return ""


def limits_memory(nvml: Any) -> bool:
    """Whether the library has the call; NVML must be initialised."""
    try:
        nvml._nvmlGetFunctionPointer(GETTER)
    except nvml.NVMLError:
        return False
    return True


def memory_limit(nvml: Any, handle: Any, cgroup: str) -> MemoryLimit | None:
    """The limit of a control group on one GPU, None if it has none; raises NVMLError.

    Without a limit the driver answers "not found", without a limit above it either some say "not supported".
    """
    limits = Limits(os.fsencode(cgroup), 0, 0, 0)
    try:
        nvml._nvmlCheckReturn(nvml._nvmlGetFunctionPointer(GETTER)(handle, ctypes.byref(limits)))
    except (nvml.NVMLError_NotFound, nvml.NVMLError_NotSupported):
        return None
    return None if limits.hardLimit == NO_LIMIT else MemoryLimit(limits.hardLimit, limits.currentUsed)


def set_memory_limit(nvml: Any, handle: Any, cgroup: str, hard: int) -> None:
    """Limit a control group on one GPU to so many bytes; raises NVMLError.

    Nothing is guaranteed (soft limit 0): guarantees are summed into the groups above, and stay there when a group is
    removed without a reset, as the kubelet does.
    """
    limits = NewLimits(os.fsencode(cgroup), 0, hard)
    nvml._nvmlCheckReturn(nvml._nvmlGetFunctionPointer(SETTER)(handle, ctypes.byref(limits)))
