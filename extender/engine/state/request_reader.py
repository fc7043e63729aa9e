"""What pods request, read once for each template: most pods come from few.

A reading is of the pod's template, which leaves out what says nothing of the request, and of what the caller gives. The
key has both whole, and nothing else of the pod is read. So no pod can get the reading of another that differs in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from extender.engine.state.intree import Amounts
from extender.engine.types.requests import requests, resizable
from extender.engine.types.settings import Settings
from gangfilter import dialects
from protos.contract import ask as asks
from protos.contract import bounds, mistakes, visibility
from protos.contract.ask import AskError, PodAsk
from protos.contract.objects import (
    Container,
    ObjectMeta,
    Pod,
    PodSpec,
    Quantities,
    Resources,
    SchedulingGroup,
)
from protos.contract.reason import Reason
from protos.contract.remembered import Remembered
from protos.contract.selection import Selection

TEMPLATES, TEMPLATE_BYTES = 2048, 2**21
"""Templates that are kept, and the bytes of all of them."""
NATIVE = ("cpu", "memory", "ephemeral-storage", "pods")
"""Resources of every node."""
UNREAD = mistakes.WRITTEN | mistakes.GROUP_KEYS
"""Our keys whose values say nothing of the request; often each pod or gang has its own."""
SOMEWHERE = "n"
"""Stands for whichever node a pod is on."""
OfClass = Selection | Reason | None
"""The selection of the GpuClass that a pod names, or why it waits for the class; None without one."""


class Reading(NamedTuple):
    """What a pod requests."""

    asked: PodAsk | Reason | None
    """Its GPU request, or why that is invalid."""
    mistake: Reason | None
    """A key that we do not read, if it has one and no node."""
    requests: Amounts
    """Its in-tree requests."""


class Template(NamedTuple):
    """The parts of a pod that say what it requests. Of all other annotations and labels, only their keys are left."""

    annotations: Mapping[str, str]
    labels: Mapping[str, str]
    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...]
    ephemeral_containers: tuple[Container, ...]
    resources: Resources | None
    overhead: Quantities
    on_node: bool
    in_group: bool
    """A field of its spec names a group."""

    @classmethod
    def of(cls, pod: Pod) -> Template:
        meta, spec = pod.metadata, pod.spec
        return cls(
            _said(meta.annotations),
            _said(meta.labels),
            _lean(spec.containers),
            _lean(spec.init_containers),
            _lean(spec.ephemeral_containers),
            spec.resources,
            spec.overhead,
            bool(spec.node_name),
            spec.scheduling_group is not None or spec.workload_ref is not None,
        )

    def pod(self) -> Pod:
        """A pod that has these parts and no others."""
        spec = PodSpec(
            containers=self.containers,
            init_containers=self.init_containers,
            ephemeral_containers=self.ephemeral_containers,
            resources=self.resources,
            overhead=self.overhead,
            node_name=SOMEWHERE if self.on_node else None,
            scheduling_group=SchedulingGroup() if self.in_group else None,
        )
        return Pod(ObjectMeta("template", annotations=dict(self.annotations), labels=dict(self.labels)), spec)


def _said(values: Mapping[str, str]) -> dict[str, str]:
    """The annotations or labels; "" stands for a value that says nothing of the request."""
    return {key: value if _says(key) else "" for key, value in values.items()}


def _says(key: str) -> bool:
    return key not in UNREAD if key.startswith(mistakes.PREFIX) else mistakes.reads_value(key)


def _lean(containers: tuple[Container, ...]) -> tuple[Container, ...]:
    """The containers without the variables that are not read: operators give each pod its own."""
    return tuple([
        Container(
            name=each.name,
            resources=each.resources,
            restart_policy=each.restart_policy,
            env=tuple([variable for variable in each.env if variable.name in visibility.VARIABLES]),
            env_from=each.env_from,
            volume_mounts=each.volume_mounts,
        )
        for each in containers
    ])  # fmt: skip


_Key = tuple[bytes, OfClass]


def _weight(key: _Key) -> int:
    template, of_class = key
    return len(template) + (of_class.length if isinstance(of_class, Selection) else len(str(of_class)))


class RequestReader:
    """Reads what pods request under the settings of this process."""

    def __init__(self, settings: Settings) -> None:
        self._resources, self._slices = settings.resources, settings.slices_per_gpu
        self._warns = settings.unknown_keys == "warn"
        self._known: Remembered[_Key, Reading] = Remembered(TEMPLATES, TEMPLATE_BYTES, _weight)

    def read(self, pod: Pod, of_class: OfClass) -> Reading:
        """The reading of this pod."""
        found = self._of_template(pod, of_class)
        return found._replace(requests=self._requests(pod)) if resizable(pod) else found

    def requests(self, pod: Pod, of_class: OfClass) -> Amounts:
        """The requests of the pod's reading."""
        return self._requests(pod) if resizable(pod) else self._of_template(pod, of_class).requests

    def _of_template(self, pod: Pod, of_class: OfClass) -> Reading:
        template = Template.of(pod)
        key = msgspec.json.encode(template), of_class
        return self._known.get(key) or self._known.put(key, self._fresh(template.pod(), of_class))

    def _fresh(self, pod: Pod, of_class: OfClass) -> Reading:
        asked, mistake = self._asked(pod, of_class), self._mistake(pod)
        passes = isinstance(asked, Reason) or self._warns
        return Reading(asked if passes else mistake or asked, mistake, self._requests(pod))

    def _mistake(self, pod: Pod) -> Reason | None:
        """A key that we do not read.

        Members of a gang may select GPUs and ask for none: a launcher often has the annotations of the workers.
        """
        if pod.spec.node_name:
            return None
        mistake = mistakes.first(pod, self._resources, self._slices)
        return mistake if mistake or dialects.speaks(pod) else mistakes.without_gpus(pod, self._resources)

    def _asked(self, pod: Pod, of_class: OfClass) -> PodAsk | Reason | None:
        """The pod's GPU request by the keys that we read, or why it is invalid."""
        try:
            asked: PodAsk | Reason | None = asks.parse(pod, self._resources)
            if asked is not None and of_class is not None:
                asked = of_class if isinstance(of_class, Reason) else asks.parse(pod, self._resources, of_class)
        except AskError as error:
            return error.reason
        named = len({name for each in given(pod) for name in (*each.limits, *each.requests)})
        if isinstance(asked, PodAsk) and named > bounds.RESOURCES_PER_POD.most:
            return Reason("AskTooMany", bounds.RESOURCES_PER_POD.exceeded(named))
        return asked

    def _requests(self, pod: Pod) -> Amounts:
        """The pod's in-tree requests. Of too many resources, native ones and ours count before others."""
        taken, most = requests(pod), bounds.RESOURCES_PER_POD.most
        if len(taken) > most:
            first = (*NATIVE, *self._resources.all)
            taken = sorted(sorted(taken, key=lambda each: (each[0] not in first, each[0]))[:most])
        return tuple(taken)


def given(pod: Pod) -> Iterator[Resources]:
    """What its containers request, where they say so."""
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    return (each.resources for each in containers if each.resources is not None)
