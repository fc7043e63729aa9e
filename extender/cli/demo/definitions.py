"""The CustomResourceDefinitions of the demo's queue and class, with the columns that those of the manifests have."""

from __future__ import annotations

from extender.sim.definitions import definition
from extender.sim.podspec import Object
from protos.contract import gpu_class, queue

_ACCEPTED = '.status.conditions[?(@.type=="Accepted")]'
_CLASS_COLUMNS = {
    "GPUs": (".status.gpus", "integer", 0),
    "Free": (".status.freeGpus", "integer", 0),
    "Nodes": (".status.nodes", "integer", 0),
    "Accepted": (f"{_ACCEPTED}.status", "string", 0),
    "Age": (".metadata.creationTimestamp", "date", 0),
    "Description": (".spec.description", "string", 1),
    "Message": (f"{_ACCEPTED}.message", "string", 1),
}
"""JSONPath, type and priority: 1 for those of `-o wide`."""
_QUEUE_COLUMNS = {
    "Parent": (".spec.parent", "string", 0),
    "FairShare": (".status.fairShare.gpus", "string", 0),
    "Allocated": (".status.allocated.gpus", "string", 0),
    "Requested": (".status.requested.gpus", "string", 0),
    "Share": (".status.share", "string", 0),
    "Waiting": (".status.waiting", "integer", 0),
    "Running": (".status.running", "integer", 0),
    "State": (".status.state", "string", 0),
    "Accepted": (f"{_ACCEPTED}.status", "string", 0),
    "Age": (".metadata.creationTimestamp", "date", 0),
    "Message": ('.status.conditions[?(@.status=="False")].message', "string", 1),
}


def definitions() -> list[Object]:
    """They must exist before the extender starts to look for queues and classes."""
    return [
        _definition(gpu_class.API_VERSION, gpu_class.KIND, gpu_class.PLURAL, _CLASS_COLUMNS),
        _definition(queue.API_VERSION, queue.KIND, queue.PLURAL, _QUEUE_COLUMNS),
    ]


def _definition(api_version: str, kind: str, plural: str, columns: dict[str, tuple[str, str, int]]) -> Object:
    shown = [
        {"name": name, "type": form, "jsonPath": path} | ({"priority": priority} if priority else {})
        for name, (path, form, priority) in columns.items()
    ]
    return definition(api_version, kind, plural, namespaced=False, columns=shown)
