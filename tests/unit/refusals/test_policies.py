"""Every sentence of an admission policy that users meet is in the table, and a test on a real API server meets it."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
import yaml

from tests.unit.docs.pages import ROOT
from tests.unit.refusals.case import expects, literals, words
from tests.unit.refusals.policies import RULINGS, Ruling

OURS = {"is-the-extender", "is-the-plugin", "is-the-measuring-process"}
"""Conditions of policies on our own accounts."""
UNREACHED = {
    "the values of annotations of gangshare.io cannot be read",
    "keys of gangshare.io are where nobody reads them",
}
"""The keys that may be listed are too few to be too long."""


@cache
def messages() -> tuple[tuple[str, str], ...]:
    """The name of each policy, and each of its messages with the variables that it takes."""
    files = (
        file for folder in ("base", "components", "overlays") for file in (ROOT / "manifests" / folder).rglob("*.yaml")
    )
    found = [one for file in sorted(files) for one in yaml.safe_load_all(file.read_text()) if one]
    return tuple(
        (policy["metadata"]["name"], _whole(policy["spec"], validation[key]))
        for policy in found
        if policy.get("kind") == "ValidatingAdmissionPolicy" and "spec" in policy
        if OURS.isdisjoint(each["name"] for each in policy["spec"].get("matchConditions", ()))
        for validation in policy["spec"]["validations"]
        for key in ("messageExpression", "message")
        if key in validation
    )


def _whole(spec: dict[str, Any], message: str) -> str:
    variables = {each["name"]: each["expression"] for each in spec.get("variables", ())}
    found, todo = [], [message]
    while todo:
        found.append(part := todo.pop())
        todo += [variables.pop(name) for name in re.findall(r"variables\.(\w+)", part) if name in variables]
    return " ".join(found)


def says(policy: str, message: str, ruling: Ruling) -> bool:
    """Whether this message of the policy has all words of the sentence."""
    return policy == ruling.policy and set(words(" ".join(literals(ruling.sentence)))) <= set(words(message))


@pytest.mark.parametrize(("policy", "message"), messages(), ids=lambda value: value[:60])
def test_a_message_of_a_policy_is_in_the_table(policy: str, message: str) -> None:
    assert message in UNREACHED or [ruling for ruling in RULINGS if says(policy, message, ruling)]


@pytest.mark.parametrize("ruling", RULINGS, ids=lambda ruling: ruling.sentence[:60])
def test_a_sentence_of_the_table_is_one_that_the_policy_says(ruling: Ruling) -> None:
    assert [message for policy, message in messages() if says(policy, message, ruling)]


@pytest.mark.parametrize("ruling", RULINGS, ids=lambda ruling: ruling.sentence[:60])
def test_a_test_on_a_real_api_server_expects_the_sentence(ruling: Ruling) -> None:
    file, _, name = ruling.test.partition("::")
    source = (ROOT / "tests/cluster" / file).read_text()
    assert f"def {name}(" in source
    assert expects(source + (ROOT / "tests/cluster/mistaken.py").read_text(), ruling.sentence)
