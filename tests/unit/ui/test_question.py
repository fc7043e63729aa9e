"""The query of the page becomes a question that the extender reads."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import msgspec
import pytest

from extender.ui import question
from extender.ui.sources import Trouble
from extender.wire.whatif import WhatIf
from protos.contract import names


def asked(**given: object) -> WhatIf:
    found = question.read(urlencode(given).encode())
    made = msgspec.json.decode(found.body, type=WhatIf)
    assert made.metadata.namespace == found.namespace
    return made


def test_pods_that_start_together_are_a_gang_of_a_queue_with_a_priority() -> None:
    terms = {"namespace": "ml", "queue": "team", "priority": "high", "like": "n", "more": 4}
    made = asked(of="gpus", amount=2, pods=3, together=1, **terms)
    ((pods,), (more,)) = made.spec.pods, made.spec.nodes
    assert (pods.count, more.like, more.count) == (3, "n", 4)
    assert pods.template.metadata.annotations == {
        names.GROUP: "what-if", names.MIN_MEMBER: "3", names.QUEUE: "team",
    }  # fmt: skip
    assert pods.template.spec.priority_class_name == "high"
    (container,) = pods.template.spec.containers
    assert container.resources is not None
    assert container.resources.limits == {names.WHOLE_GPU: "2"}


def test_the_least_question() -> None:
    made = asked(of="memory")
    assert (made.metadata.namespace, made.spec.pods[0].count, made.spec.nodes) == ("default", 1, ())
    assert made.spec.pods[0].template.metadata.annotations == {}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "of is '': expected one of memory, slices, gpus"),
        ({"of": "gpus", "amount": "0"}, "amount is '0': expected a number from 1 to 100000"),
        ({"of": "gpus", "pods": "1e3"}, "pods is '1e3': expected a number"),
        ({"of": "gpus", "pods": "9" * 50}, "pods is '9999"),
        ({"of": "gpus", "like": "n", "more": "-1"}, "more is '-1': expected a number"),
        ({"of": "gpus", "queue": "q" * 300}, "queue is too long: expected at most 253 characters"),
        ({"of": "x" * 3000}, "the question has 3003 bytes: expected at most 2000"),
    ],
)
def test_nonsense_is_refused_with_its_value(given: dict[str, str], why: str) -> None:
    with pytest.raises(Trouble, match=re.escape(why)):
        question.read(urlencode(given).encode())
