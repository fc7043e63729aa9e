"""The policy on keys that we do not read: it names what the code knows, and says what the code says."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangfilter import dialects
from protos.contract import ask, foreign, mistakes, names
from protos.contract.objects import Pod
from tests.builders import a_pod
from tests.unit.manifests.conftest import MANIFESTS, Json, Objects

Kustomize = Callable[[str], Objects]
FOLDERS = ["base", *sorted(f"overlays/{folder.name}" for folder in (MANIFESTS / "overlays").iterdir())]
RESOURCES = names.Resources()
MARKED = names.Resources(mem="variables.resources[0]", slice="variables.resources[1]", whole="variables.resources[2]")
"""The names that the policy takes from its variable, in place of names."""
UNITS = foreign.Units(MARKED, names.DEFAULT_SLICES_PER_GPU)


def policy(objects: Objects) -> Json:
    found: Json = objects.of("ValidatingAdmissionPolicy")["gangshare-keys"]["spec"]
    return found


def variables(objects: Objects) -> dict[str, str]:
    return {each["name"]: each["expression"] for each in policy(objects)["variables"]}


def said(objects: Objects, variable: str) -> Any:
    """The value of a variable that is a literal; other variables in it are texts."""
    return ast.literal_eval(re.sub(r"variables\.\w+(\[\d\])?", r"'\g<0>'", variables(objects)[variable]))


def selectors(objects: Objects) -> dict[str, tuple[list[str], list[Json]]]:
    """By binding: what happens, and in which namespaces."""
    bindings = objects.of("ValidatingAdmissionPolicyBinding").values()
    return {
        found["metadata"]["name"]: (
            found["spec"]["validationActions"],
            found["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"],
        )
        for found in bindings
        if found["spec"]["policyName"] == "gangshare-keys"
    }


def namespaces(operator: str, *values: str) -> list[Json]:
    return [{"key": names.UNKNOWN_KEYS, "operator": operator, "values": list(values)}]


def with_component(kustomize: Kustomize, folder: Path, base: str, component: str) -> Objects:
    beside = os.path.relpath(MANIFESTS, folder)
    parts = {"resources": [f"{beside}/{base}"], "components": [f"{beside}/components/{component}"]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(parts))
    return kustomize(str(folder))


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_layout_warns_and_stops_no_pod_that_it_cannot_judge(kustomize: Kustomize, folder: str) -> None:
    objects = kustomize(folder)
    assert policy(objects)["failurePolicy"] == "Ignore"
    assert selectors(objects) == {
        "gangshare-keys-warn": (["Warn", "Audit"], namespaces("NotIn", "deny", "ignore")),
        "gangshare-keys-deny": (["Deny"], namespaces("In", "deny")),
    }


@pytest.mark.parametrize("folder", ["base", "overlays/gpushare"])
def test_the_component_denies_where_no_label_says_otherwise(kustomize: Kustomize, tmp_path: Path, folder: str) -> None:
    assert selectors(with_component(kustomize, tmp_path, folder, "deny-unknown-keys")) == {
        "gangshare-keys-warn": (["Warn", "Audit"], namespaces("In", "warn")),
        "gangshare-keys-deny": (["Deny"], namespaces("NotIn", "warn", "ignore")),
    }


def test_the_keys_are_those_that_the_code_knows(kustomize: Kustomize) -> None:
    objects = kustomize("base")
    known = said(objects, "known")
    assert known["annotation"] == sorted(mistakes.ANNOTATIONS - mistakes.WRITTEN)
    assert known["label"] == sorted(mistakes.GROUP_KEYS)
    assert known["resource"] == "variables.resources"
    assert said(objects, "written") == sorted(mistakes.WRITTEN)
    assert said(objects, "undomained") == mistakes.UNDOMAINED
    assert said(objects, "products") == sorted(foreign.PRODUCTS)
    assert said(objects, "selecting") == sorted(mistakes.SELECTING)


def edits(word: str) -> Iterator[str]:
    """The word with one character more, less or changed, or with two neighbours swapped."""
    for i in range(len(word) + 1):
        yield word[:i] + "x" + word[i:]
        if i < len(word):
            yield word[:i] + "x" + word[i + 1 :]
            yield word[:i] + word[i + 1 :]
        if i + 1 < len(word):
            yield word[:i] + word[i + 1] + word[i] + word[i + 2 :]


def test_a_domain_with_one_typo_is_taken_for_ours_as_by_the_extender(kustomize: Kustomize) -> None:
    (form,) = re.findall(r"matches\( '(\(\?i\)[^']*)'\)", variables(kustomize("base"))["strange"])
    for typo in (*edits(mistakes.MARK), "Gangshare", "gang.share", "io.gangshare"):
        assert re.search(form, f"annotation {typo}.io/gpu-model"), typo
        assert sentence(a_pod(mem=1, annotations={f"{typo}.io/gpu-model": "x"})), typo
    for other in ("sim.gangshare", "gangway", "nvidia", "share", "gpushare", "example"):
        assert not re.search(form, f"annotation {other}.io/gpu-model"), other


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_names_are_those_of_the_layouts_extender(kustomize: Kustomize, folder: str) -> None:
    objects = kustomize(folder)
    served = names.GPUSHARE_RESOURCES if folder.endswith("gpushare") else RESOURCES
    assert said(objects, "resources") == list(served.all)
    schedulers = said(objects, "schedulers")
    for kind in ("Deployment", "DaemonSet"):
        for name in objects.of(kind):
            args = [arg for container in objects.containers(kind, name).values() for arg in container.get("args", ())]
            named = [arg.partition("=")[2].split(",") for arg in args if arg.startswith("--scheduler-names=")]
            assert named in ([], [schedulers])


def test_with_the_component_for_operators_their_pods_are_ours_too(kustomize: Kustomize, tmp_path: Path) -> None:
    objects = with_component(kustomize, tmp_path, "base", "operators")
    args = objects.containers("Deployment", "gangshare-scheduler")["extender"]["args"]
    assert f"--scheduler-names={','.join(said(objects, 'schedulers'))}" in args


def test_a_term_of_the_field_is_answered_as_by_the_extender(kustomize: Kustomize) -> None:
    meant = said(kustomize("base"), "meant")
    assert {key.removeprefix(mistakes.PREFIX) for key in meant} > set(mistakes.ALIASES)
    for key, ours in meant.items():
        written = {f"variables.resources[{i}]": name for i, name in enumerate(RESOURCES.all)}.get(ours, ours)
        assert sentence(a_pod(annotations={key: "1"})).endswith(f": did you mean {written}?")


def test_keys_of_other_products_are_answered_as_by_the_extender_but_for_amounts(kustomize: Kustomize) -> None:
    ours = {
        f"{place} {key}": [product, *rewrite("1", UNITS).partition(":")[0].split(" ")]
        for place, keys in (
            ("annotation", foreign.ANNOTATIONS_OF_OTHERS),
            ("resource", foreign.RESOURCES_OF_OTHERS),
        )
        for key, (product, rewrite) in keys.items()
    }
    assert said(kustomize("base"), "foreign") == ours


def sentence(pod: Pod) -> str:
    """What the extender says against a pod."""
    found = mistakes.first(pod, RESOURCES, names.DEFAULT_SLICES_PER_GPU)
    if found is not None:
        return found.sentence
    try:
        ask.parse(pod, RESOURCES)
    except ask.AskError as error:
        return error.reason.sentence
    return ""


VALUES = {
    names.CHECKPOINT: ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00.5Z", "2026-01-31", "now", "1706702400", ""],
    names.GPU_MODEL: ["A100", "A100, H100", " !PCIE ,*SXM*,", "! T4", "", ",", "!", "!=T4", "!!T4", "A10,=T4", "A10,!"],
    names.GPU_UUID: ["GPU-5f0a", "!gpu-5f0a, MIG-1", "GPU-*", "*5f0a", "0", "!0", "GPU-1,0", "A100", ""],
    names.GPU_COUNT: ["1", "02", "1024", "1025", "0", "-1", "1.5", "two", "", "1000000"],
    names.ISOLATION: ["any", "memory", "compute", "Memory", "mps", ""],
    names.LINK: ["prefer", "nvlink", "any", "nvswitch", "", "NVLink"],
    names.MIG_PROFILE: [
        "1g.10gb", "1c.3g.40gb", "1g.10gb+me", "1g.10gb.me", "1g.24gb-me", "1g.10GB", "small", "8g.80gb", "1g.10gb+",
        "", f"1g.10gb+{'x' * 19}", f"1g.10gb+{'x' * 20}",
    ],
    names.MIN_CLOCK_MHZ: ["1400", "0", "1400MHz", "", "1234567890"],
    names.MIN_COMPUTE_CAPABILITY: ["8", "8.0", "8.", "v8", "8.0.1", ""],
    names.MIN_GPU_MEMORY: [
        "40Gi", "0", "1.5Gi", ".5Ti", "85899345920", "1e11", "80G", "40960Mi", "5000m", "40Mi", "40M", "40k", "40 GB",
        "-1Gi",
    ],
    names.MIXED_MODELS: ["deny", "allow", "true", "Allow", ""],
    names.PLACEMENT: ["pack", "spread", "wide", ""],
    names.RESTARTABLE: ["true", "false", "yes", "True", "1", ""],
}  # fmt: skip


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in VALUES.items() for value in values])
def test_a_value_is_refused_as_by_the_extender(kustomize: Kustomize, key: str, value: str) -> None:
    form, expected = said(kustomize("base"), "values")[key]
    refused = sentence(a_pod(slices=1024, annotations={key: value}))
    assert bool(re.search(form, value)) == (refused == "")
    if refused:
        assert refused.startswith(f"{key} is {value!r}: expected {expected}")


OF_GANGS = {
    names.MIN_MEMBER: ["4", " 4 ", "", "0", "-1", "1.5", "two", "50%"],
    names.MIN_MEMBER_BY_ROLE: ['{"worker": 2}', " ", "worker=2", "worker: 2", "[]", "2"],
    names.ELASTIC: ["true", "false", "", "yes", "True"],
    names.EXPECTED_RUNTIME: ["5400", "90m", "2h30m", "1.5h", "", "0", "1 day", "2h30", "1d", "PT2H"],
    names.ON_MEMBER_LOST: ["wait", "restart", "ignore", "", "Restart", "fail"],
    names.SCHEDULE_TIMEOUT_SECONDS: ["600", "0", "", "10m", "-1"],
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in OF_GANGS.items() for value in values])
def test_a_value_of_a_gang_is_told_as_by_the_extender(kustomize: Kustomize, key: str, value: str) -> None:
    form, expected = said(kustomize("base"), "values")[key]
    found = dialects.membership(a_pod(annotations={names.GROUP: "g", key: value}))
    assert found is not None
    told = [f"annotation {key} is {value!r}: expected {expected}"]
    assert list(found.problems) == ([] if re.search(form, value) else told)


def test_every_value_that_is_judged_is_tested(kustomize: Kustomize) -> None:
    assert said(kustomize("base"), "values").keys() == VALUES.keys() | OF_GANGS.keys()


@pytest.mark.parametrize(("component", "version"), [("memory-units", "v1"), ("memory-units-v1beta1", "v1beta1")])
def test_amounts_of_memory_are_no_mistake_where_they_are_rewritten(
    kustomize: Kustomize, tmp_path: Path, component: str, version: str
) -> None:
    objects = with_component(kustomize, tmp_path, "base", component)
    made = [found for found in objects.all if found["metadata"]["name"] == "gangshare-memory-units"]
    assert [found["apiVersion"] for found in made] == [f"admissionregistration.k8s.io/{version}"] * 2
    spec = objects.of("MutatingAdmissionPolicy")["gangshare-memory-units"]["spec"]
    assert spec["failurePolicy"] == "Ignore"
    units = {each["name"]: each["expression"] for each in spec["variables"]}
    assert (units["unitMib"], units["memory"]) == (str(names.DEFAULT_UNIT_MIB), repr(names.GPU_MEM))
    (mutation,) = spec["mutations"]
    assert mutation["jsonPatch"]["expression"].count(f"'{names.GPU_MEM_WRITTEN}'") == 2
    rewrites = [variables(kustomize("base"))["rewrites"], variables(objects)["rewrites"]]
    assert rewrites == ["false", "true"]
    assert variables(objects)["unitMib"] == units["unitMib"]
