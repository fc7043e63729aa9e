"""The definition of our PodGroup says what is read of it, and has a place for all that is written to it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from extender.cluster import group_status
from extender.engine.types.effects import GroupStatus
from gangfilter import podgroups
from gangfilter.group import LAXEST_FIRST, GroupKey
from gangfilter.table import Phase
from tests.unit.manifests.conftest import Json, Objects, undescribed

OWN = podgroups.KINDS[0]
DEFINITION = f"{OWN.plural}.{OWN.api_group}"


def test_it_is_the_kind_that_is_watched_and_its_status_is_apart(definition: Json) -> None:
    (version,) = definition["versions"]
    assert (definition["group"], version["name"]) == (OWN.api_group, OWN.version)
    assert (definition["names"]["plural"], definition["names"]["kind"]) == (OWN.plural, OWN.kind)
    assert definition["scope"] == "Namespaced"
    assert version["subresources"] == {"status": {}}


def test_every_field_that_is_read_is_there_and_no_other(schema: Json) -> None:
    fields = {
        "minMember": 2,
        "minTaskMember": {"launcher": 1},
        "minResources": {"cpu": "3"},
        "queue": "q",
        "priorityClassName": "high",
        "scheduleTimeoutSeconds": 9,
        "onMemberLost": "restart",
        "onCompletion": "launcher",
    }
    assert set(schema["spec"]["properties"]) == set(fields)
    assert set(schema["spec"]["properties"]["onMemberLost"]["enum"]) == set(LAXEST_FIRST)


@pytest.mark.parametrize("phase", Phase)
def test_all_that_is_written_has_a_place(schema: Json, phase: Phase) -> None:
    said = GroupStatus(
        key=GroupKey("ns", "g"), kinds=(), phase=phase, reason=None, min_member=1, present=1, bound=1, succeeded=0
    )
    written = group_status.status(OWN.api_version, said, {}, "2025-01-31T12:00:00Z")
    status = schema["status"]["properties"]
    assert set(written) == set(status)
    assert written["phase"] in status["phase"]["description"]
    assert set(written["conditions"][0]) == set(status["conditions"]["items"]["properties"])


def test_every_field_is_described(schema: Json) -> None:
    missing = [path for part in ("spec", "status") for path in undescribed(part, schema[part])]
    assert missing == []


def test_every_layout_with_an_extender_brings_it(kustomize: Callable[[str], Objects]) -> None:
    for folder in ("base", "overlays/shared", "overlays/gpushare"):
        assert kustomize(folder).of("CustomResourceDefinition")
    assert not kustomize("overlays/standalone").of("CustomResourceDefinition")
