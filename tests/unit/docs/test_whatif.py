"""The examples of the page about what-if are what the command prints."""

from __future__ import annotations

import shlex

import msgspec
import pytest
import yaml

from extender.cli import console, manifests
from extender.cli import whatif as view
from extender.engine.types.events import PrioritySeen
from extender.server.visibility import whatifs
from extender.server.visibility.items import Sight
from extender.server.whatif import page as answers
from extender.wire import whatif as wire
from protos.contract import names
from protos.contract.bounds import WHAT_IF_PODS
from protos.contract.objects import ObjectMeta
from protos.contract.priority import PriorityClass
from tests.builders import a_node
from tests.unit.docs.pages import blocks, page, table
from tests.unit.docs.typed import steps
from tests.unit.engine.gang_story import members
from tests.unit.engine.preemption_story import PreemptionStory, a_single

PAGE = page("docs/whatif.md")
EXAMPLES = [block.text for block in blocks(PAGE, "console")]
JOB, OBJECT = [yaml.safe_load(block.text) for block in blocks(PAGE, "yaml")]
HIGH = JOB["spec"]["template"]["spec"] | {"priorityClassName": "high"}
URGENT = JOB | {"spec": JOB["spec"] | {"template": {"spec": HIGH}}}
FILES = {"job.yaml": JOB, "urgent.yaml": URGENT}


def cluster() -> PreemptionStory:
    """Two nodes of four GPUs: a gang has one of them for an hour, a pod has a GPU of the other."""
    story = PreemptionStory(a_node("gpu-a", *[80] * 4), a_node("gpu-b", *[80] * 4))
    story.tell(PrioritySeen(PriorityClass(ObjectMeta("high"), 1000)))
    hour, less = {names.EXPECTED_RUNTIME: "1h"}, {names.EXPECTED_RUNTIME: "45m"}
    story.start(*members(4, gang="llm", prefix="llm-", mem=0, whole=1, annotations=hour))
    story.runs(a_single("notebook", 40, annotations=less))
    story.later(20)
    return story


def printed(command: str) -> str:
    """What the command prints in that cluster."""
    _, _, *arguments = shlex.split(command)
    further = [arguments[i + 1] for i, word in enumerate(arguments) if word == "--with-node"]
    text = yaml.safe_dump(FILES[arguments[arguments.index("-f") + 1]])
    body = view.body(manifests.read(text, "FILE", "default", gang="--gang" in arguments), further)
    story = cluster()
    made = b"".join(answers.pieces(story.engine, body, lambda: story.now))
    return console.page(*view.render(msgspec.json.decode(made, type=wire.Status), further=further))


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_is_what_the_command_prints(example: str) -> None:
    command, _, output = example.partition("\n")
    assert output == printed(command.removeprefix("$ "))


def test_these_are_all_commands_of_the_section() -> None:
    assert [example.splitlines()[0].removeprefix("$ ") for example in EXAMPLES] == steps("docs/whatif.md", "Ask")


def test_the_object_of_the_page_is_a_question_of_the_api() -> None:
    story = cluster()
    body = msgspec.json.encode(OBJECT)
    made = b"".join(whatifs.pieces(story.engine, body, lambda: story.now, Sight(None), "team-a"))
    told = msgspec.json.decode(made)
    assert told["metadata"] == {"name": "train", "namespace": "team-a"}
    assert told["status"]["further"]["verdict"]["state"] == "now"


def test_the_page_names_every_kind_and_the_bounds() -> None:
    named = " ".join(kind for kind, _ in table(PAGE, "in the file", "pods"))
    assert {kind for _, kind in manifests.TABLE} <= set(named.replace(",", " ").split())
    assert f"{WHAT_IF_PODS.most:,} pods" in PAGE.read_text()
    assert f"{answers.LONGEST_S:.0f} seconds" in PAGE.read_text()
