"""The spans of each pending pod, from the steps that the extender tells. Pure: times come with the calls.

A trace has one root, from the first sight of the pod until it is bound or gone. Below it are one span for each reason
for which the pod waited, and one for each bind, whose parts are the wait for its gang and the write of the Binding.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from extender.engine.types.effects import PodRef
from protos.contract.reason import Reason

ROOT, BIND, GANG, WRITE = "schedule pod", "bind", "wait for the gang", "write the Binding"
MOST_PODS = 20_000
"""Pending pods that are followed at the same time; further ones are not."""
MOST_PARTS = 64
"""Spans kept of one pod or bind: the last ones."""
SHOWN = 300
"""Characters of a reason."""
Attributes = Mapping[str, str | int]


class Span(msgspec.Struct):
    """One span; times in ns since 1970, `end` is 0 while it lasts."""

    name: str
    start: int
    end: int = 0
    attributes: dict[str, str | int] = {}
    parts: list[Span] = []
    failed: str = ""
    """Why it failed, "" if it did not."""


class Story(msgspec.Struct):
    """What happened to one pending pod so far."""

    ref: PodRef
    root: Span
    waits: Span | None = None
    """While it waits for a reason, or since nodes were offered."""
    bind: Span | None = None
    questions: int = 0


class Stories:
    """Those of all pods that are followed."""

    def __init__(self, sample: float) -> None:
        """`sample`: the part of all pods that is followed, 0 to 1."""
        self._below = int(sample * 2**64)
        self._open: dict[str, Story] = {}
        """By UID."""

    def begin(self, ref: PodRef, attributes: Attributes, now: int) -> None:
        """Follow a pending pod, if it is one of the sample and there is room."""
        if ref.uid not in self._open and len(self._open) < MOST_PODS and self._sampled(ref.uid):
            about = {"k8s.pod.uid": ref.uid, "k8s.pod.name": ref.name, "k8s.namespace.name": ref.namespace}
            self._open[ref.uid] = Story(ref, Span(ROOT, now, attributes={**about, **attributes}))

    def _sampled(self, uid: str) -> bool:
        return int.from_bytes(hashlib.sha256(uid.encode()).digest()[:8], "big") < self._below

    def followed(self, uid: str) -> bool:
        """Whether the pod is followed."""
        return uid in self._open

    def answered(self, uid: str, reason: Reason | None, now: int) -> None:
        """filter was answered: nodes were offered, or the reason why none was."""
        story = self._open.get(uid)
        if story is None:
            return
        story.questions += 1
        code = reason.code if reason else "Offered"
        if story.waits is None or story.waits.name != code:
            _close(story.waits, now)
            story.waits = _part(story.root, Span(code, now))
            if reason:
                story.waits.attributes["gangshare.reason"] = reason.sentence[:SHOWN]

    def bind_asked(self, uid: str, node: str, now: int) -> None:
        """bind was asked, and was not refused at once."""
        story = self._open.get(uid)
        if story is not None and story.bind is None:
            _close(story.waits, now)
            story.waits = None
            story.bind = _part(story.root, Span(BIND, now, attributes={"k8s.node.name": node}))
            _part(story.bind, Span(GANG, now))

    def released(self, uid: str, now: int) -> None:
        """The bind is no longer held; its Binding is written now."""
        story = self._open.get(uid)
        if story is not None and story.bind is not None:
            _close_parts(story.bind, now)
            _part(story.bind, Span(WRITE, now))

    def bind_ended(self, uid: str, code: str, now: int) -> Story | None:
        """bind was answered; the whole story if the pod is bound."""
        story = self._open.get(uid)
        if story is None or story.bind is None:
            return None
        bind, story.bind = story.bind, None
        _close_parts(bind, now)
        bind.end, bind.failed = now, "" if code == "Bound" else code
        return self._ended(uid, now, "") if code == "Bound" else None

    def gone(self, uid: str, now: int) -> Story | None:
        """The pod was deleted before it was bound; its story, if it was followed."""
        return self._ended(uid, now, "the pod was deleted") if uid in self._open else None

    def forget(self, uid: str) -> None:
        """Follow the pod no longer if no bind of ours is under way: others bound it."""
        story = self._open.get(uid)
        if story is not None and story.bind is None:
            del self._open[uid]

    def _ended(self, uid: str, now: int, failed: str) -> Story:
        story = self._open.pop(uid)
        _close(story.waits, now)
        if story.bind is not None:
            _close_parts(story.bind, now)
            _close(story.bind, now)
        story.root.end, story.root.failed = now, failed
        story.root.attributes["gangshare.filter.count"] = story.questions
        return story


def _part(of: Span, part: Span) -> Span:
    """The part; beyond the bound the oldest is dropped."""
    of.parts = [*of.parts[-(MOST_PARTS - 1) :], part]
    return part


def _close(span: Span | None, now: int) -> None:
    if span is not None and not span.end:
        span.end = now


def _close_parts(span: Span, now: int) -> None:
    for part in span.parts:
        _close(part, now)
