"""No edit of a key runs unanswered: one character more, less or changed, two swapped, or the key in a wrong place."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from protos.contract import foreign, mistakes, names
from protos.contract.objects import Pod
from tests.builders import a_container, a_pod

RESOURCES = names.Resources()
ANNOTATIONS = sorted(mistakes.ANNOTATIONS - mistakes.WRITTEN)
AMOUNTS = (names.GPU_MEM, names.GPU_SLICE)
STRANGERS = "ax1-_."
"""Characters that stand in wrong places."""


def edits(key: str) -> Iterator[str]:
    """The key with one mistake."""
    for i, character in enumerate(key):
        before, after = key[:i], key[i + 1 :]
        yield before + after
        yield before + character.upper() + after
        yield from (before + stranger + after for stranger in STRANGERS)
        yield from (before + stranger + character + after for stranger in STRANGERS)
        if after:
            yield before + after[0] + character + after[1:]
    yield from (key + stranger for stranger in STRANGERS)


def unanswered(key: str, place: str, known: frozenset[str]) -> list[str]:
    """The edits of the key that nothing is said against."""
    return [edit for edit in edits(key) if edit not in known and not answered(pod_with(edit, place))]


def answered(pod: Pod) -> bool:
    return mistakes.first(pod, RESOURCES, names.DEFAULT_SLICES_PER_GPU) is not None


def pod_with(key: str, place: str) -> Pod:
    """A pod with the key in this place, which asks for GPUs if the place is not its limits."""
    if place == "limit":
        return a_pod(containers=[a_container("main", limits={key: "1"})])
    return a_pod(mem=1, annotations={key: "1"}) if place == "annotation" else a_pod(mem=1, labels={key: "1"})


@pytest.mark.parametrize("key", ANNOTATIONS)
def test_no_edit_of_an_annotation_is_passed_over(key: str) -> None:
    assert unanswered(key, "annotation", mistakes.ANNOTATIONS) == []


@pytest.mark.parametrize("key", sorted(mistakes.GROUP_KEYS))
def test_no_edit_of_a_label_is_passed_over(key: str) -> None:
    assert unanswered(key, "label", mistakes.GROUP_KEYS) == []


@pytest.mark.parametrize("key", AMOUNTS)
def test_no_edit_of_a_resource_is_passed_over(key: str) -> None:
    assert unanswered(key, "limit", frozenset(RESOURCES.all)) == []


@pytest.mark.parametrize("key", [*ANNOTATIONS, *AMOUNTS])
@pytest.mark.parametrize("place", ["annotation", "label", "limit"])
def test_a_key_is_right_in_its_places_only(key: str, place: str) -> None:
    right = (
        (place == "annotation" and key in mistakes.ANNOTATIONS)
        or (place == "label" and key in mistakes.GROUP_KEYS)
        or (place == "limit" and key in AMOUNTS)
    )
    assert answered(pod_with(key, place)) != right


@pytest.mark.parametrize("domain", ["", *(f"{domain}/" for domain in sorted(foreign.PRODUCTS)), "www.gangshare.io/"])
@pytest.mark.parametrize("key", [*sorted(mistakes.UNDOMAINED.values()), *AMOUNTS])
def test_a_key_under_another_products_domain_is_not_passed_over(key: str, domain: str) -> None:
    meant = domain + key.removeprefix(mistakes.PREFIX)
    assert answered(pod_with(meant, "annotation"))
    assert key in AMOUNTS or answered(pod_with(meant, "label"))
