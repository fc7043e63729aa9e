"""What the answer to an Allocate adds for a part of a GPU that MPS serves. Pure.

With version 3 of MPS the limits are those of the container's own namespace, and its answer names only that folder. With
version 2 the environment sets them, below the limits of the server: a container can take them off.
"""

import msgspec

from deviceplugin.mps.exchange import Holder
from protos.contract.allocation import Share
from protos.contract.inventory import Inventory
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as api

PIPES = "CUDA_MPS_PIPE_DIRECTORY"
MEMORY = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
THREADS = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
SHM = "/dev/shm"
ONLY_GPU = "0"
"""A container that MPS serves sees one GPU. An entry for another one would void all limits."""


class Pipes(msgspec.Struct, frozen=True, kw_only=True):
    """How a container connects to MPS."""

    folder: str
    """The pipes, at the same path in the container."""
    shm: str
    """The shared memory of the daemon."""
    own_limits: bool
    """Its environment sets its limits: version 2."""
    holder: Holder


def holder(uid: str, container: str, share: Share, inventory: Inventory, *, mps: bool) -> Holder:
    """A container's part of a GPU as MPS counts it: a limit that it does not have is 0."""
    percent = -(-share.slices * 100 // inventory.slices_per_gpu)
    return Holder(
        pod=uid,
        container=container,
        gpu=share.uuid,
        mps=mps,
        mem_mib=share.mem * inventory.unit_mib if mps else 0,
        percent=min(percent, 100) if mps else 0,
    )


def add(answer: api.ContainerAllocateResponse, pipes: Pipes) -> None:
    """Add the environment and the mounts of MPS to a container's answer."""
    answer.envs[PIPES] = pipes.folder
    if pipes.own_limits:
        if pipes.holder.mem_mib:
            answer.envs[MEMORY] = f"{ONLY_GPU}={pipes.holder.mem_mib}M"
        if pipes.holder.percent:
            answer.envs[THREADS] = str(pipes.holder.percent)
    answer.mounts.add(container_path=pipes.folder, host_path=pipes.folder)
    answer.mounts.add(container_path=SHM, host_path=pipes.shm)
