"""The annotations of a pod that say more of its GPU request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from protos.contract import names, selection
from protos.contract.bounds import GPU_COUNT, NAME
from protos.contract.gpu_class import CLASS_NAME
from protos.contract.isolation import Demanded
from protos.contract.objects import Pod
from protos.contract.reason import AskError
from protos.contract.selection import Selection, SelectionError, is_number
from protos.contract.timestamps import epoch_seconds, timestamp

T = TypeVar("T")


def count(annotations: Mapping[str, str]) -> int:
    """How many GPUs each container with parts gets; raises AskError."""
    text = annotations.get(names.GPU_COUNT, "1")
    if not is_number(text) or not 1 <= int(text) <= GPU_COUNT.most:
        raise AskError(
            "AskMalformed",
            f"{names.GPU_COUNT} is {text[:40]!r}: expected a whole number from 1 to {GPU_COUNT.most}",
        )
    return int(text)


def gpu_class(pod: Pod) -> str:
    """The name of the pod's GpuClass, "" without one; raises AskError for an invalid name."""
    name = pod.metadata.annotations.get(names.GPU_CLASS)
    if name is None:
        return ""
    if len(name) > NAME.most or not CLASS_NAME.fullmatch(name):
        raise AskError("AskMalformed", f"{names.GPU_CLASS} is {name[:40]!r}: expected the name of a GpuClass")
    return name


def chosen(annotations: Mapping[str, str], wide: Selection, isolation: Demanded) -> Selection:
    """What the pod selects within its GpuClass; raises AskError."""

    def read(key: str, parse: Callable[[str], T], default: T) -> T:
        return selection.read(key, annotations.get(key), parse, default)

    try:
        own = Selection(
            models=read(names.GPU_MODEL, _globs, ()),
            uuids=read(names.GPU_UUID, selection.uuids, ()),
            min_mem_mib=read(names.MIN_GPU_MEMORY, selection.memory, 0),
            min_clock_mhz=read(names.MIN_CLOCK_MHZ, _clock, 0),
            min_cc=read(names.MIN_COMPUTE_CAPABILITY, selection.compute_capability, (0, 0)),
            link=read(names.LINK, selection.link, selection.LINKS[0]),
            spread=read(names.PLACEMENT, _second("pack", "spread"), False),
            mixed=read(names.MIXED_MODELS, _second("deny", "allow"), False),
            profile=read(names.MIG_PROFILE, selection.mig_profile, ""),
            isolation=read(names.ISOLATION, selection.isolation, isolation),
        )
        if own.profile and wide.profile not in ("", own.profile):
            raise SelectionError(
                f"{names.MIG_PROFILE} is {own.profile!r}: expected {wide.profile}, as its GpuClass says"
            )
    except SelectionError as error:
        raise AskError("AskMalformed", str(error)) from error
    return wide.narrowed(own, link_said=names.LINK in annotations)


def notes(annotations: Mapping[str, str]) -> None:
    """Raise AskError for annotations that would count as not set once the pod runs."""
    if annotations.get(names.RESTARTABLE, "true") not in ("true", "false"):
        told = annotations[names.RESTARTABLE][:40]
        raise AskError("AskMalformed", f"{names.RESTARTABLE} is {told!r}: expected true or false")
    try:
        epoch_seconds(annotations.get(names.CHECKPOINT, timestamp(0)))
    except ValueError as error:
        told = annotations[names.CHECKPOINT][:40]
        raise AskError(
            "AskMalformed", f"{names.CHECKPOINT} is {told!r}: expected a time like 2026-01-31T12:00:00Z"
        ) from error


def _globs(text: str) -> tuple[str, ...]:
    return selection.globs(text.split(","))


def _clock(text: str) -> int:
    if not is_number(text):
        raise SelectionError("a clock in MHz, like 1400")
    return int(text)


def _second(*words: str) -> Callable[[str], bool]:
    def is_second(text: str) -> bool:
        if text not in words:
            raise SelectionError(", ".join(words))
        return text == words[1]

    return is_second
