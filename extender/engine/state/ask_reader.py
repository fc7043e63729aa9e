"""What pods ask of GPUs, read once for each template: most pods come from few.

A template is what a pod says of its request, and nothing else of the pod is read. The key of a reading is the template,
with what is given from outside. So a pod never gets the reading of another that says something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from extender.engine.types.settings import Settings
from gangfilter import dialects
from protos.contract import ask as asks
from protos.contract import mistakes, names, visibility
from protos.contract.ask import AskError, PodAsk
from protos.contract.bounds import RESOURCES_PER_POD
from protos.contract.isolation import Demanded
from protos.contract.objects import Container, ObjectMeta, Pod, PodSpec, SchedulingGroup
from protos.contract.reason import Reason
from protos.contract.remembered import Remembered
from protos.contract.selection import Selection

TEMPLATES, TEMPLATE_BYTES = 2048, 2**20
"""Templates that are kept, and the bytes of all of them."""
UNREAD = mistakes.WRITTEN | mistakes.GROUP_KEYS | {names.RESIZE}
"""Our keys whose values say nothing of the request; often each pod or gang has its own."""
ANY_NODE = "n"
OfClass = Selection | Reason | None
"""The selection of the GpuClass that a pod names, or why the pod waits for the class; None without one."""


class Reading(NamedTuple):
    """What a pod asks."""

    asked: PodAsk | Reason | None
    """Its GPU request, or why that is invalid."""
    mistake: Reason | None
    """A key that we do not read, if it has one and no node."""


class Template(NamedTuple):
    """What a pod says of its GPU request."""

    annotations: Mapping[str, str]
    """All keys; "" stands for a value that says nothing of it. So in the labels."""
    labels: Mapping[str, str]
    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...]
    ephemeral_containers: tuple[Container, ...]
    on_node: bool
    in_group: bool
    """A field of its spec names a group."""

    @classmethod
    def of(cls, pod: Pod) -> Template:
        meta, spec = pod.metadata, pod.spec
        return cls(
            annotations=_said(meta.annotations),
            labels=_said(meta.labels),
            containers=_lean(spec.containers),
            init_containers=_lean(spec.init_containers),
            ephemeral_containers=_lean(spec.ephemeral_containers),
            on_node=bool(spec.node_name),
            in_group=spec.scheduling_group is not None or spec.workload_ref is not None,
        )

    def pod(self) -> Pod:
        """A pod that says this and no more."""
        spec = PodSpec(
            containers=self.containers,
            init_containers=self.init_containers,
            ephemeral_containers=self.ephemeral_containers,
            node_name=ANY_NODE if self.on_node else None,
            scheduling_group=SchedulingGroup() if self.in_group else None,
        )
        return Pod(ObjectMeta("template", annotations=dict(self.annotations), labels=dict(self.labels)), spec)


def _said(values: Mapping[str, str]) -> Mapping[str, str]:
    return {key: value if _says(key) else "" for key, value in values.items()}


def _says(key: str) -> bool:
    return key not in UNREAD if key.startswith(mistakes.PREFIX) else mistakes.reads_value(key)


def _lean(containers: Iterable[Container]) -> tuple[Container, ...]:
    """The containers without most variables: operators give those of each pod other values."""
    return tuple(
        Container(
            name=each.name,
            resources=each.resources,
            restart_policy=each.restart_policy,
            env=tuple([variable for variable in each.env if visibility.reads(variable.name)]),
            env_from=each.env_from,
            volume_mounts=each.volume_mounts,
        )
        for each in containers
    )


_Key = tuple[bytes, OfClass, Demanded]


def _weight(key: _Key) -> int:
    template, of_class, _ = key
    return len(template) + (of_class.length if isinstance(of_class, Selection) else len(str(of_class or "")))


class AskReader:
    """Reads what pods ask under the settings of this process."""

    def __init__(self, settings: Settings) -> None:
        self._resources, self._slices = settings.resources, settings.slices_per_gpu
        self._warns = settings.unknown_keys == "warn"
        self._known: Remembered[_Key, Reading] = Remembered(TEMPLATES, TEMPLATE_BYTES, _weight)

    def read(self, pod: Pod, of_class: OfClass, isolation: Demanded = "any") -> Reading:
        """What the pod asks. What is given from outside, but for the settings, must be in the key.

        `isolation` is what a pod demands that says nothing of it.
        """
        template = Template.of(pod)
        key = msgspec.json.encode(template), of_class, isolation
        return self._known.get(key) or self._known.put(key, self.fresh(template.pod(), of_class, isolation))

    def fresh(self, pod: Pod, of_class: OfClass, isolation: Demanded = "any") -> Reading:
        """The same, read from the pod itself."""
        asked, mistake = self._asked(pod, of_class, isolation), self._mistake(pod)
        passes = isinstance(asked, Reason) or self._warns
        return Reading(asked if passes else mistake or asked, mistake)

    def _asked(self, pod: Pod, of_class: OfClass, isolation: Demanded) -> PodAsk | Reason | None:
        """The pod's GPU request by the keys that we read, or why it is invalid."""
        try:
            asked: PodAsk | Reason | None = asks.parse(pod, self._resources, isolation=isolation)
            if asked is not None and of_class is not None:
                asked = (
                    of_class if isinstance(of_class, Reason) else asks.parse(pod, self._resources, of_class, isolation)
                )
        except AskError as error:
            return error.reason
        if isinstance(asked, PodAsk) and (many := len(named(pod))) > RESOURCES_PER_POD.most:
            return Reason("AskTooMany", RESOURCES_PER_POD.exceeded(many))
        return asked

    def _mistake(self, pod: Pod) -> Reason | None:
        """A key that we do not read.

        Members of a gang may select GPUs and ask for none: a launcher often has the annotations of the workers.
        """
        if pod.spec.node_name:
            return None
        mistake = mistakes.first(pod, self._resources, self._slices)
        return mistake if mistake or dialects.speaks(pod) else mistakes.without_gpus(pod, self._resources)


def named(pod: Pod) -> set[str]:
    """The resources that the pod's containers name."""
    given = [each.resources for each in (*pod.spec.containers, *pod.spec.init_containers) if each.resources is not None]
    return {name for each in given for name in (*each.limits, *each.requests)}
