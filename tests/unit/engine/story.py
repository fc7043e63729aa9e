"""A small cluster and its clock, in which tests tell their stories of the engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from extender.engine.cycle.engine import Engine
from extender.engine.types.effects import Effect, PostBinding, Requeue, SetAnnotation
from extender.engine.types.events import BindDone, NodeSeen, PodSeen, Tick
from extender.engine.types.settings import Settings
from protos.contract import names
from protos.contract.objects import Pod
from tests.builders import MAKER, a_ref, newer


class Story:
    """An engine, the API server's objects as far as needed, and a clock."""

    def __init__(self, *nodes: Any, **settings: Any) -> None:
        self.engine = Engine(Settings(**settings))
        self.now = 100.0
        for node in nodes:
            self.tell(NodeSeen(node))

    def tell(self, event: Any) -> list[Effect]:
        effects = self.engine.step(event, self.now)
        assert self.engine.check() == []
        return effects

    def filter(self, pod: Pod, nodes: list[str] | None = None) -> list[str]:
        self.now += 0.01
        found = self.engine.filter(pod, nodes or sorted(self.engine.nodes), self.now)
        assert self.engine.check() == []
        return list(found.nodes)

    def bind(self, pod: Pod, node: str) -> Any:
        answer = self.engine.bind(a_ref(pod), node, self.now)
        assert self.engine.check() == []
        return answer

    def run(self, pod: Pod) -> str:
        """Schedule the pod as kube-scheduler would, taking our first node; returns `node:gpu,…` or ""."""
        nodes = self.filter(pod)
        if not nodes:
            return ""
        answer = self.bind(pod, nodes[0])
        assert isinstance(answer, PostBinding), answer
        self.tell(PodSeen(bound(pod, answer)))
        self.tell(BindDone(pod.metadata.uid, "bound"))
        assert answer.allocation is not None
        indexes = sorted({share.index for given in answer.allocation.containers.values() for share in given})
        return f"{answer.node}:{','.join(map(str, indexes))}"

    def wakes(self, after: float = 0.3) -> list[str]:
        """Who is woken by a tick and what the engine does until the next."""
        self.now += after
        effects = self.tell(Tick())
        while self.engine.run_slice(self.now):
            effects += self.engine.effects()
        effects += self.engine.effects()
        return [effect.pod.name for effect in effects if isinstance(effect, Requeue)]


def bound(pod: Pod, place: PostBinding, managed: list[dict[str, Any]] | None = None, **annotations: str) -> Pod:
    """The pod as the API server shows it after this Binding."""
    return changed(pod, {**pod.metadata.annotations, **place.annotations, **annotations}, managed, place.node)


def changed(
    pod: Pod, annotations: Mapping[str, str], managed: list[dict[str, Any]] | None = None, node: str = "", **status: str
) -> Pod:
    """The pod with other annotations, owned as `managed` says."""
    raw = msgspec.Raw(msgspec.json.encode(managed)) if managed is not None else pod.metadata.managed_fields
    replace = msgspec.structs.replace
    metadata = newer(pod.metadata, annotations=dict(annotations), managed_fields=raw)
    spec = replace(pod.spec, node_name=node or pod.spec.node_name)
    return replace(pod, metadata=metadata, spec=spec, status=replace(pod.status, **status))


def put_back(edited: Pod, text: str | None) -> SetAnnotation:
    """What makes the allocation this again, of the pod as it was edited."""
    return SetAnnotation(a_ref(edited), names.ALLOCATION, text, edited.metadata.resource_version)


def asks_for_room(pod: Pod, said: Mapping[str, str] | None = None, by: str = names.DEFRAG) -> Pod:
    """The pod with these annotations too; its reservation was written by this manager, through pods/status."""
    annotations = {**pod.metadata.annotations, **(said or {})}
    return changed(pod, annotations, [MAKER, *owned_by(by, "status", names.RESERVATION)])


def owned_by(manager: str, subresource: str = "", annotation: str = names.ALLOCATION) -> list[dict[str, Any]]:
    fields: dict[str, Any] = {"f:metadata": {"f:annotations": {f"f:{annotation}": {}}}}
    return [{"manager": manager, "operation": "Update", "subresource": subresource, "fieldsV1": fields}]
