"""How many GPUs are of a class, written into the status of its GpuClass."""

from collections.abc import Mapping
from typing import Any

from extender.cluster.status import Condition, Json, conditions, write
from extender.engine.types.effects import ClassStatus
from protos.contract.gpu_class import API_VERSION, PLURAL
from protos.kube.client import ApiClient

UNREADABLE = "ClassUnreadable"
ACCEPTED = "Accepted"


async def write_status(client: ApiClient, said: ClassStatus) -> None:
    """Say this in the status of its class; what is there already is not written again. Raises the request's errors."""
    where = {"group_version": API_VERSION, "plural": PLURAL, "name": said.name}
    accepted = Condition(ACCEPTED, not said.problem, UNREADABLE if said.problem else ACCEPTED, said.problem)
    counts = {"gpus": said.gpus, "freeGpus": said.free, "nodes": said.nodes}

    def status(before: Mapping[str, Any], now: str) -> Json:
        return {**counts, "conditions": conditions([accepted], before, now, always=True)}

    await write(client, where, status)
