"""Finds the pods in manifests by a table: where a kind has its pod templates, and how many pods of each it makes.

Reads YAML or JSON. Kinds that are not in the table are refused, as nobody knows which pods they would make.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from extender.cli.errors import CommandError
from gangfilter.podgroups import KINDS as GROUPS
from protos.contract import bounds, names

Object = Mapping[str, Any]
MOST_BYTES, MOST_OBJECTS = 1 << 20, 256
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Part(NamedTuple):
    """Pods of one template."""

    each: str
    """The path of a list or map of such parts; "" for the object itself."""
    template: str
    """The path of the template from there."""
    counts: Sequence[str] = ()
    """The paths of numbers whose product is the number of pods; a missing number is 1."""
    most: str = ""
    """The path of a number that limits it."""


def _replicas(path: str) -> tuple[Part, ...]:
    return (Part(path, "template", ("replicas",)),)


SCALED = (Part("", "spec.template", ("spec.replicas",)),)
TABLE: Mapping[tuple[str, str], tuple[Part, ...]] = {
    ("", "Pod"): (Part("", ""),),
    ("", "ReplicationController"): SCALED,
    ("apps", "Deployment"): SCALED,
    ("apps", "ReplicaSet"): SCALED,
    ("apps", "StatefulSet"): SCALED,
    ("batch", "Job"): (Part("", "spec.template", ("spec.parallelism",), "spec.completions"),),
    ("batch", "CronJob"): (
        Part(
            "",
            "spec.jobTemplate.spec.template",
            ("spec.jobTemplate.spec.parallelism",),
            "spec.jobTemplate.spec.completions",
        ),
    ),
    ("jobset.x-k8s.io", "JobSet"): (
        Part("spec.replicatedJobs", "template.spec.template", ("replicas", "template.spec.parallelism")),
    ),
    ("kubeflow.org", "PyTorchJob"): _replicas("spec.pytorchReplicaSpecs"),
    ("kubeflow.org", "TFJob"): _replicas("spec.tfReplicaSpecs"),
    ("kubeflow.org", "MPIJob"): _replicas("spec.mpiReplicaSpecs"),
    ("kubeflow.org", "XGBoostJob"): _replicas("spec.xgbReplicaSpecs"),
    ("kubeflow.org", "PaddleJob"): _replicas("spec.paddleReplicaSpecs"),
    ("kubeflow.org", "JAXJob"): _replicas("spec.jaxReplicaSpecs"),
    ("batch.volcano.sh", "Job"): _replicas("spec.tasks"),
    ("ray.io", "RayCluster"): (
        Part("", "spec.headGroupSpec.template"),
        Part("spec.workerGroupSpecs", "template", ("replicas",)),
    ),
    ("ray.io", "RayJob"): (
        Part("", "spec.rayClusterSpec.headGroupSpec.template"),
        Part("spec.rayClusterSpec.workerGroupSpecs", "template", ("replicas",)),
    ),
}
"""By API group and kind. Sources: the CRDs of JobSet v0.8, Kubeflow's trainer v1, Volcano v1.11, KubeRay v1.3."""
GROUP_KINDS = frozenset((kind.api_version, kind.kind) for kind in GROUPS)
ACCEPTED = ", ".join(sorted({kind for _, kind in TABLE} | {kind for _, kind in GROUP_KINDS}))


class Found(NamedTuple):
    """The pods and PodGroups of a file, as the extender takes them."""

    pods: list[dict[str, Any]]
    groups: list[Object]

    @property
    def namespaces(self) -> set[str]:
        return {each["template"]["metadata"]["namespace"] for each in self.pods}


def read(text: str, source: str, namespace: str, *, gang: bool) -> Found:
    """The pods in a file; raises CommandError. `gang`: the pods of each object start together."""
    if len(text) > MOST_BYTES:
        raise CommandError(f"{source} has {len(text)} characters: expected at most {MOST_BYTES}")
    if bounds.depth(text) > bounds.FILE_DEPTH.most:
        raise CommandError(f"{source}: {bounds.FILE_DEPTH.exceeded(bounds.depth(text))}")
    try:
        objects = list(_objects(yaml.load_all(text, Loader=LOADER), source))
    except (yaml.YAMLError, RecursionError) as error:
        raise CommandError(f"{source} is no YAML: {error}") from error
    pods, groups = list[dict[str, Any]](), list[Object]()
    for each in objects:
        placed = _in(each, source, namespace)
        if _kind(each) in GROUP_KINDS:
            groups.append(placed)
        else:
            made = [alike for part in _parts(each, source) for alike in _pods(placed, part)]
            pods += _together(made, each) if gang else made
    if not pods:
        raise CommandError(f"{source} has no pods: expected {ACCEPTED}")
    return Found(pods, groups)


def _objects(documents: Iterator[Any], source: str) -> Iterator[Object]:
    for number, document in enumerate(documents):
        if number >= MOST_OBJECTS:
            raise CommandError(f"{source} has more than {MOST_OBJECTS} objects")
        if document is None:
            continue
        if not isinstance(document, Mapping):
            raise CommandError(f"{source}: document {number + 1} is {_short(document)}: expected an object")
        items = document.get("items")
        if document.get("kind") == "List" and isinstance(items, list):
            yield from _objects(iter(items), source)
        else:
            yield document


def _kind(made: Object) -> tuple[str, str]:
    return f"{made.get('apiVersion')}", f"{made.get('kind')}"


def _in(made: Object, source: str, namespace: str) -> dict[str, Any]:
    """The object in its namespace, or in this one."""
    metadata = _map(made.get("metadata"))
    own = metadata.get("namespace") or namespace
    if not isinstance(own, str):
        raise CommandError(f"{source}: metadata.namespace is {_short(own)}: expected a name")
    return {**made, "metadata": {**metadata, "namespace": own}}


def _parts(made: Object, source: str) -> tuple[Part, ...]:
    version, kind = _kind(made)
    parts = TABLE.get((version.rpartition("/")[0], kind))
    if parts is None:
        given = f"{_short(version)} {_short(kind)}"
        raise CommandError(f"{source}: {given} makes pods that are not known: expected {ACCEPTED}")
    return parts


def _pods(made: Object, part: Part) -> Iterator[dict[str, Any]]:
    metadata = made["metadata"]
    base = metadata.get("name") or f"{metadata.get('generateName') or 'pod-'}".rstrip("-")
    for role, element in _elements(made, part.each):
        template = _at(element, part.template)
        if not isinstance(template, Mapping):
            continue
        own = _map(template.get("metadata"))
        name = f"{base}-{role}" if role else base
        count = _count(element, part)
        if count:
            kept = {key: own[key] for key in ("labels", "annotations", "ownerReferences") if own.get(key)}
            meta = {**kept, "name": name, "namespace": metadata["namespace"]}
            yield {"template": {"metadata": meta, "spec": template.get("spec") or {}}, "count": count, "role": role}


def _elements(made: Object, path: str) -> Iterator[tuple[str, Object]]:
    """The parts at a path, with their names."""
    found = _at(made, path) if path else None
    if not path:
        yield "", made
    elif isinstance(found, Mapping):
        yield from ((str(name).lower(), _map(element)) for name, element in found.items())
    elif isinstance(found, list):
        for number, element in enumerate(found):
            named = _map(element)
            yield str(named.get("name") or named.get("groupName") or number), named


def _count(element: Object, part: Part) -> int:
    count = 1
    for path in part.counts:
        count *= _number(_at(element, path), path)
    return min(count, _number(_at(element, part.most), part.most)) if part.most and _at(element, part.most) else count


def _number(value: Any, path: str) -> int:
    if value is None:
        return 1
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= bounds.MEMBERS.most:
        raise CommandError(f"{path} is {_short(value)}: expected a number of pods")
    return value


def _together(made: list[dict[str, Any]], of: Object) -> list[dict[str, Any]]:
    """These pods as one gang of all of them; those that name a group keep it."""
    name, total = made[0]["template"]["metadata"]["name"] if made else "", sum(each["count"] for each in made)
    group = _map(of.get("metadata")).get("name") or name
    for each in made:
        metadata = each["template"]["metadata"]
        own = _map(metadata.get("annotations"))
        said = {names.GROUP: group, names.MIN_MEMBER: f"{total}"} | ({names.ROLE: each["role"]} if each["role"] else {})
        metadata["annotations"] = own if names.GROUP in own else {**own, **said}
    return made


def _at(value: Any, path: str) -> Any:
    """The value at a path of keys; None if there is none."""
    for key in path.split(".") if path else ():
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _short(value: Any) -> str:
    return repr(value)[:60]
