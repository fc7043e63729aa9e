"""Texts of a pod that the API server does not bound: they are cut, or read at any length, and cost next to nothing."""

from __future__ import annotations

from collections import Counter
from difflib import SequenceMatcher
from typing import Any

import pytest

from extender.engine.state import pod_info
from extender.engine.types.events import PodGone, PodSeen
from gangfilter import agreement, amounts
from gangfilter.group import Declaration
from protos.contract import mistakes, names
from protos.contract.bounds import LIKENESSES, NAME, RESOURCE_NAME
from tests import growth
from tests.builders import a_node, a_pod
from tests.unit.engine.story import Story

LONG = 200_000
R = names.Resources()


def owned(number: int, **more: str) -> Any:
    text = f"{number}{'1' * LONG}x"
    owner = {"apiVersion": text, "kind": text, "name": text, "uid": text, "controller": True, **more}
    return a_pod(f"p{number}", mem=1, ownerReferences=[owner])


def test_the_name_of_a_controller_may_have_any_length() -> None:
    """A name of a million digits stopped the extender for hours: the API server bounds no field of an owner."""
    pod = owned(1)
    (owner,) = pod.metadata.owner_references
    assert {len(text) for text in (owner.kind, owner.name, owner.uid, owner.api_version)} == {NAME.most}
    assert pod_info.owner_of(pod) is not None


def test_names_of_controllers_leave_nothing_behind() -> None:
    growth.forget()
    story = Story(a_node("a", 16, 16))
    for number in range(50):
        pod = owned(number)
        story.tell(PodSeen(pod))
        story.filter(pod)
        story.tell(PodGone(pod.metadata.uid))
    kept = growth.sizes(engine=story.engine, functions=growth.remembered(), tables=growth.tables())
    assert growth.texts(kept) < 50 * 10 * NAME.most


def test_a_scheduler_may_have_a_name_of_any_length() -> None:
    """Such a pod could not be decoded: its node's plugin refused all GPUs, and its CPU did not count."""
    story = Story(a_node("a", 16))
    pod = a_pod("long", spec={"schedulerName": "s" * 300, "nodeName": "a"})
    story.tell(PodSeen(pod))
    assert len(story.engine.pods[pod.metadata.uid].info.scheduler) <= NAME.most + 1
    assert story.engine.nodes["a"].used["pods"] == 1


def test_declarations_with_long_texts_are_not_remembered_beyond_a_bound() -> None:
    growth.forget()
    for number in range(200):
        resources = tuple((f"example.com/{number}-{i}-{'r' * 250}", 1) for i in range(64))
        agreement.shared(Declaration(source="test", min_member=1, min_resources=resources))
    assert growth.texts(growth.sizes(known=agreement._known)) < 2 * agreement.WEIGHT


def test_a_resource_that_no_node_can_have_counts_for_nothing() -> None:
    assert amounts.amounts({"example.com/" + "r" * RESOURCE_NAME.most: "1", "example.com/r": 2}) == (
        ("example.com/r", 2),
    )


def test_many_domains_that_are_nearly_ours_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison of texts takes 30 µs, and each pod could bring 512 new ones."""
    compared: Counter[str] = Counter()
    ratio = SequenceMatcher.ratio

    def counting(self: SequenceMatcher[str]) -> float:
        compared["ratio"] += 1
        return ratio(self)

    monkeypatch.setattr(SequenceMatcher, "ratio", counting)
    few = {f"gangshra{number:02}.io/x": "" for number in range(LIKENESSES.most)}
    assert mistakes.first(a_pod(annotations={"ganghsare.io/gpu-model": "x", **dict(list(few.items())[1:])}), R, 100)
    assert 0 < compared["ratio"] <= 2 * LIKENESSES.most
    compared.clear()
    many = few | {f"gangshar{number:03}.io/x": "" for number in range(400)}
    assert mistakes.first(a_pod(annotations=many), R, 100) is None
    assert mistakes.first(a_pod(annotations={**many, "gangshare.io/x": ""}), R, 100) is not None
    others = {f"acme-{number}.example.com/x": "" for number in range(500)}
    assert mistakes.first(a_pod(annotations=others), R, 100) is None
    assert compared["ratio"] == 0
