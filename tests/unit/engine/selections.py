"""GPUs of several models, classes of them, and pods that name those."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from extender.engine.types.effects import ClassStatus, Effect, Requeue
from extender.engine.types.events import ClassSeen
from protos.contract import gpu_class, inventory, names
from protos.contract.objects import Node, Pod
from tests.builders import a_node, a_pod, an_inventory
from tests.unit.engine.story import Story


def a_machine(
    name: str,
    model: str,
    *mems: int,
    links: tuple[inventory.Link, ...] = (),
    numa: Sequence[int] = (),
    **gpu: Any,
) -> Node:
    """A node whose GPUs are all of this model."""
    plain = an_inventory(*mems, node=name, links=links, numa=numa)
    gpus = tuple(msgspec.structs.replace(each, model=model, **gpu) for each in plain.gpus)
    return a_node(name, annotations={names.GPUS: inventory.encode(msgspec.structs.replace(plain, gpus=gpus))})


def named(name: str = "p", of: str = "large", **fields: Any) -> Pod:
    annotations = {names.GPU_CLASS: of, **fields.pop("annotations", {})}
    return a_pod(name, annotations=annotations, **{"mem": 4, **fields})


def a_class(name: str = "large", **spec: Any) -> ClassSeen:
    return ClassSeen(gpu_class.decode(msgspec.json.encode({"metadata": {"name": name}, "spec": spec})))


def woken(effects: list[Effect]) -> list[str]:
    return [effect.pod.name for effect in effects if isinstance(effect, Requeue)]


def statuses(effects: list[Effect]) -> list[ClassStatus]:
    return [effect for effect in effects if isinstance(effect, ClassStatus)]


def refusal(story: Story, pod: Pod) -> str:
    """The sentence for kube-scheduler, with the numbers that people get."""
    verdict = story.engine.filter(pod, sorted(story.engine.nodes), story.now)
    assert verdict.nodes == ()
    assert verdict.reason is not None
    return str(story.engine.explain(story.engine.pods[pod.metadata.uid]))
