"""Who may name which queue, at admission: the policies' conditions name what the code reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from extender.cluster import group_status
from gangfilter import naming, podgroups
from gangfilter.table import Phase
from protos.contract import queue
from tests.unit.manifests.conftest import Json, Objects

Kustomize = Callable[[str], Objects]
YUNIKORN = next(dialect for dialect in naming.DIALECTS if "yunikorn" in dialect.source)
OF_HIVED = {"hivedscheduler.microsoft.com/pod-scheduling-spec"}
POLICIES = ("gangshare-queue-namespaces", "gangshare-queue-fixed")


def policy(kustomize: Kustomize, name: str) -> Json:
    found: Json = kustomize("base").of("ValidatingAdmissionPolicy")[name]["spec"]
    return found


def expressions(spec: Json) -> Iterator[str]:
    for part in ("matchConditions", "variables", "validations"):
        yield from (each["expression"] for each in spec.get(part, ()))


@pytest.mark.parametrize("name", POLICIES)
def test_every_key_by_which_a_pod_names_its_queue_is_looked_at(kustomize: Kustomize, name: str) -> None:
    lists = [
        frozenset(re.findall(r"'([^']+)'", listed))
        for text in expressions(policy(kustomize, name))
        for listed in re.findall(r"\[([^\[\]]*)\]\.(?:exists|filter)\(key", text)
    ]
    anywhere = [frozenset(k.name for k in naming.QUEUE_KEYS if k.place == place) for place in ("annotation", "label")]
    assert [lists[0] - OF_HIVED, lists[1]] == anywhere
    assert lists[2:] == [frozenset(key.name for key in YUNIKORN.keys)], "its label counts on pods that speak it only"


@pytest.mark.parametrize("name", POLICIES)
def test_so_is_every_key_by_which_a_dialect_names_it(kustomize: Kustomize, name: str) -> None:
    known = {key.name for dialect in naming.DIALECTS for key in dialect.says.get("queue", (None, ()))[1]}
    assert {"queue", *OF_HIVED} <= known
    quoted = {word for text in expressions(policy(kustomize, name)) for word in re.findall(r"'([^']+)'", text)}
    assert known <= quoted


@pytest.mark.parametrize("name", POLICIES)
def test_every_kind_of_podgroup_that_names_a_queue_is_looked_at(kustomize: Kustomize, name: str) -> None:
    pods, groups = policy(kustomize, name)["matchConstraints"]["resourceRules"]
    naming_queues = {kind.api_group for kind in podgroups.KINDS if kind.plural == "podgroups"} - {"scheduling.k8s.io"}
    assert (pods["resources"][0], groups["resources"]) == ("pods", ["podgroups"])
    assert set(groups["apiGroups"]) == naming_queues


def test_the_parameters_are_our_queues(kustomize: Kustomize) -> None:
    spec = policy(kustomize, POLICIES[0])
    assert spec["paramKind"] == {"apiVersion": queue.API_VERSION, "kind": queue.KIND}
    assert f"params.metadata.name != '{queue.DEFAULT}'" in spec["matchConditions"][0]["expression"]


def test_a_podgroup_that_runs_is_told_by_the_phases_that_we_write(kustomize: Kustomize) -> None:
    (condition,) = policy(kustomize, POLICIES[1])["matchConditions"]
    (listed,) = re.findall(r"phase in \[([^\]]*)\]", condition["expression"])
    words = group_status.WORDS
    started = {words[Phase.BINDING].own}
    for phase in (Phase.RUNNING, Phase.DEGRADED):
        started |= {words[phase].own, words[phase].volcano, words[phase].coscheduling}
    assert set(re.findall(r"'(\w+)'", listed)) == started
