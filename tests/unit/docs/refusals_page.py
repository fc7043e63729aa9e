"""The page of refusals, made of their cases: `python -m tests.unit.docs.refusals_page > docs/refusals.md`."""

from __future__ import annotations

from collections.abc import Iterator

from extender.server import verdicts
from protos.contract.reason import Reason
from tests.unit.refusals.answers import ANSWERS
from tests.unit.refusals.case import Case, Section
from tests.unit.refusals.catalogue import SECTIONS
from tests.unit.refusals.policies import RULINGS

WRONG = ("Ask", "UnknownKey", "ForeignKey")
"""How codes of requests begin that can only be corrected by their author."""
INTRODUCTION = """# Refusals

Every sentence with which Gangshare refuses a pod or gang, or holds it back. `<…>` stands for what differs. The page is
made of tests, which reach each of these sentences.

- **asked wrong**: the request cannot be read, or says something else than its author meant. Correct it.
- **never**: it cannot start on these nodes as it is. More nodes or another request help; to wait does not.
- **not yet**: it starts when what it waits for is there. Nothing needs to be done, unless it lasts.
"""
POLICIES = """## Requests that the API server refuses

Admission policies of Gangshare refuse these, so they are all asked wrong. Those of `gangshare-keys` are warnings,
unless the namespace [denies](events.md#mistakes-at-kubectl-apply). Policies on Gangshare's own accounts are not
listed.
"""
FAILED = """## Requests of kube-scheduler that fail

A whole scheduling attempt fails with one of these. They all mean not yet: kube-scheduler tries the pod again. Its log
and the pod's Events show them.
"""


def meaning(case: Case, section: Section) -> str:
    """What the refusal means."""
    if said := case.meaning or section.meaning:
        return said
    if case.code.startswith(WRONG):
        return "asked wrong"
    verdict = verdicts._pending(Reason(case.code, case.sentence))
    return "never" if verdict.state == "never" else f"not yet: {verdict.headline.partition(' (')[0]}"


def advice(case: Case) -> str:
    """What to do."""
    return case.advice or verdicts.what_to_do(case.code)


def page() -> str:
    """The page, in Markdown."""
    lines = [INTRODUCTION, *(line for section in SECTIONS for line in _section(section))]
    return "\n".join([*lines, *_answers(), "", *_policies()])


def _section(section: Section) -> Iterator[str]:
    yield from (f"## {section.title}", "", section.text, "")
    yield from ("| code | sentence | meaning | what to do |", "|---|---|---|---|")
    for case in section.cases:
        cells = case.code, f"`{case.sentence}`", meaning(case, section), advice(case)
        yield f"| {' | '.join(cells)} |"
    yield ""


def _answers() -> Iterator[str]:
    yield FAILED
    yield from ("| requests | sentence | what to do |", "|---|---|---|")
    yield from (f"| {answer.to} | `{answer.sentence}` | {answer.advice} |" for answer in ANSWERS)


def _policies() -> Iterator[str]:
    yield POLICIES
    yield from ("| policy | sentence | what to do |", "|---|---|---|")
    yield from (f"| {ruling.policy} | `{ruling.sentence}` | {ruling.advice} |" for ruling in RULINGS)


if __name__ == "__main__":
    print(page().rstrip())
