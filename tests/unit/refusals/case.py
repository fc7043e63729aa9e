"""What a case of a refusal is: the sentence for users, and how to reach it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from protos.contract.objects import Pod
from protos.contract.reason import Reason
from tests.builders import a_node
from tests.unit.engine.story import Story

_GAP = re.compile(r"(<[^<>]+>)")
_JOINT = re.compile(r"[\"']\s+f?[\"']")
"""Between two parts of a text in Python."""
RUN = 3
"""So many words of a sentence in a row prove that a test expects it."""


class Case(NamedTuple):
    """A sentence of refusal."""

    code: str
    sentence: str
    """`<what>` stands for what differs from pod to pod."""
    reach: Callable[[], Reason]
    """Makes a pod or an object, and returns why it is refused."""
    advice: str = ""
    """What to do, "" where the extender's own advice for the code says it."""
    meaning: str = ""
    """What it means, "" where the section or the extender's verdict on the code says it."""


class Section(NamedTuple):
    """Refusals that are met in one place."""

    title: str
    text: str
    cases: Sequence[Case]
    meaning: str = ""
    """What they mean, "" where the extender's verdict on the code says it."""


def literals(sentence: str) -> list[str]:
    """The parts of the sentence that are always the same."""
    return [part for part in _GAP.split(sentence) if part and not _GAP.fullmatch(part)]


def words(text: str) -> list[str]:
    """The words of a text, or of the texts in a source, without punctuation marks."""
    return [word for part in re.findall(r"[\w./*-]+", _JOINT.sub("", text)) if (word := part.strip(".-"))]


def expects(source: str, sentence: str) -> bool:
    """Whether a test's source has some words of the sentence in a row: RUN, or all of its longest part."""
    told, parts = " ".join(words(source)), [words(part) for part in literals(sentence)]
    run = min(RUN, max(map(len, parts)))
    return any(" ".join(part[i : i + run]) in told for part in parts for i in range(len(part) - run + 1))


def pattern(sentence: str) -> re.Pattern[str]:
    """What the sentence may look like in a cluster."""
    parts = _GAP.split(sentence)
    return re.compile("".join(".+" if _GAP.fullmatch(part) else re.escape(part) for part in parts), re.DOTALL)


def refusal(story: Story, pod: Pod) -> Reason:
    """Why filter refuses the pod."""
    story.now += 0.01
    found = story.engine.filter(pod, sorted(story.engine.nodes), story.now)
    assert found.reason is not None, "it is not refused"
    return found.reason


def on_one_node(pod: Pod, **settings: Any) -> Reason:
    """Why the pod is refused in a cluster of one node with a GPU of 16 units."""
    return refusal(Story(a_node("n", 16), **settings), pod)


def after(*events: Any, pod: Pod) -> Reason:
    """Why filter refuses the pod there after these events."""
    story = Story(a_node("n", 16))
    for event in events:
        story.tell(event)
    return refusal(story, pod)
