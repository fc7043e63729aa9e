"""Whom an error of ours is told about: the object in the API server that was set aside."""

from extender.engine.types.subject import Subject
from protos.contract import gpu_class, queue_sources, training
from protos.kube.events import Reference

_KINDS = {
    "node": ("v1", "Node"),
    "class": (gpu_class.API_VERSION, gpu_class.KIND),
    "budget": ("policy/v1", "PodDisruptionBudget"),
    "priority": ("scheduling.k8s.io/v1", "PriorityClass"),
}
_QUEUES = {source.api_version: source.kind for source in queue_sources.SOURCES}


def about(subject: Subject) -> Reference | None:
    """The object; None of pods and gangs, which are told by their pods, and of parts of the engine."""
    namespace, _, name = subject.key.rpartition("/")
    match subject.kind:
        case "queue" if subject.source in _QUEUES:
            return Reference(subject.source, _QUEUES[subject.source], name, namespace)
        case "scaler":
            return Reference(training.API_VERSION, subject.source, name, namespace)
        case kind if kind in _KINDS:
            uid = name if kind == "node" else ""  # as the kubelet's own Events have it
            return Reference(*_KINDS[kind], name, namespace, uid)
        case _:
            return None
