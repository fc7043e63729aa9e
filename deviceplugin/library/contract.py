"""What a container gets, so that the library limits it: variables and mounts. Pure.

One number holds for all GPUs of a container: versions of the library differ in which GPU an index means. Source:
Project-HAMi/HAMi-core (README, src/multiprocess) and Project-HAMi/HAMi (its device plugin).
"""

from pathlib import Path

import msgspec

from protos.contract.selection import is_number
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as api

MEMORY = "CUDA_DEVICE_MEMORY_LIMIT"
"""Of all GPUs; with `_<n>`, of one."""
THREADS = "CUDA_DEVICE_SM_LIMIT"
"""Percent of all GPUs."""
POLICY, FORCE = "GPU_CORE_UTILIZATION_POLICY", "force"
"""Without it a monitor, which we do not have, would switch the cap on."""
REGION = "CUDA_DEVICE_MEMORY_SHARED_CACHE"

FOLDER = Path("/usr/local/vgpu")
"""In the container."""
LIBRARY, REGION_FILE = FOLDER / "libvgpu.so", FOLDER / "region.cache"
PRELOAD = Path("/etc/ld.so.preload")
PRELOAD_NAME = "ld.so.preload"
"""Beside the library on the host: its content is the library's path in containers."""
LOCKS = Path("/tmp/vgpulock")
"""Older versions lock a file in it, and wait for ever without the folder."""
MOST_GPUS = 16
"""Of one container: the size of the region's lists."""


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What one container gets."""

    gpus: int
    mib: int
    """Its memory limit on each GPU."""
    percent: int
    """Its cap on compute, 0 for none."""
    library: Path
    region: Path
    locks: Path
    """The last three on the host."""


def add(answer: api.ContainerAllocateResponse, given: Given) -> None:
    """Add variables and mounts of the library to a container's answer."""
    limit = f"{given.mib}m"
    answer.envs.update({MEMORY: limit, REGION: str(REGION_FILE)})
    answer.envs.update({f"{MEMORY}_{index}": limit for index in range(given.gpus)})
    if given.percent:
        answer.envs.update({THREADS: str(given.percent), POLICY: FORCE})
    mounts = (
        (given.library, LIBRARY, True),
        (given.library.with_name(PRELOAD_NAME), PRELOAD, True),
        (given.region, REGION_FILE, False),
        (given.locks, LOCKS, False),
    )
    for host, container, read_only in mounts:
        answer.mounts.add(host_path=str(host), container_path=str(container), read_only=read_only)


def limit_in(envs: dict[str, str]) -> int:
    """The memory limit in MiB that an answer of ours has, 0 without one."""
    number = envs.get(MEMORY, "").removesuffix("m")
    return int(number) if is_number(number) else 0
