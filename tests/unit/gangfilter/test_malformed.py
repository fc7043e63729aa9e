"""Values that cannot be read: one sentence each, never an exception, and never much time."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangfilter import dialects, naming
from gangfilter.dialects import membership
from gangfilter.group import GroupKey, Membership
from protos.contract.objects import Pod
from tests.builders import a_pod

HIVED = "hivedscheduler.microsoft.com/pod-scheduling-spec"
TASK_GROUPS = "yunikorn.apache.org/task-groups"
DEEP = "[" * 100_000
LARGE = "x" * 2**18


def in_group_g(key: str, value: str) -> Membership:
    found = membership(a_pod(annotations={"gangshare.io/group": "g", key: value}))
    assert found is not None
    assert found.key == GroupKey("default", "g")
    return found


NUMBERS = "expected a whole number from 1 to 150000"
BY_ROLE = 'expected members by role, like {"launcher": 1, "worker": 2}'


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("min-member", "four", f"is 'four': {NUMBERS}"),
        ("min-member", "0", f"is '0': {NUMBERS}"),
        ("min-member", "-1", f"is '-1': {NUMBERS}"),
        ("min-member", "2.5", f"is '2.5': {NUMBERS}"),
        ("min-member", "٤", f"is '٤': {NUMBERS}"),
        ("min-member", "²", f"is '²': {NUMBERS}"),
        ("min-member", "9" * 5000, f"is '{'9' * 59}…: {NUMBERS}"),
        ("min-member", LARGE, f"is '{'x' * 59}…: {NUMBERS}"),
        ("min-member-by-role", "worker=2", f"is 'worker=2': {BY_ROLE}"),
        ("min-member-by-role", '{"worker": "2"}', f"""is '{{"worker": "2"}}': {BY_ROLE}"""),
        (
            "min-member-by-role",
            '{"worker": -2}',
            f"""is '{{"worker": -2}}': {BY_ROLE}, each from 0 to 150000; 'worker' has -2""",
        ),
        ("min-member-by-role", DEEP, f"is '{'[' * 59}…: {BY_ROLE}, of at most 65536 characters"),
        ("min-member-by-role", '{"a":' * 9999, f"""is '{('{"a":' * 20)[:59]}…: {BY_ROLE}"""),
        ("schedule-timeout-seconds", "3m", "is '3m': expected a whole number of seconds"),
        ("on-member-lost", "Restart", "is 'Restart': expected wait, restart or ignore"),
        ("queue", "a b", "is 'a b': expected a name of at most 253 characters without spaces"),
        ("role", "a\nb", "is 'a\\nb': expected a name of at most 253 characters without spaces"),
    ],
)
def test_a_value_is_told_with_its_key_and_what_was_expected(key: str, value: str, sentence: str) -> None:
    found = in_group_g(f"gangshare.io/{key}", value)
    assert found.problems == (f"annotation gangshare.io/{key} {sentence}",)
    assert found.declaration is None


def test_the_other_values_count_all_the_same() -> None:
    pod = a_pod(labels={"gangshare.io/group": "g", "gangshare.io/min-member": "3", "gangshare.io/role": LARGE})
    found = membership(pod)
    assert found is not None
    assert found.declaration is not None
    assert found.declaration.min_member == 3
    assert len(found.problems) == 1


@pytest.mark.parametrize("name", [LARGE, "a b", "a\x00b", "a\u2028b", "\ud800"])
def test_a_group_whose_name_cannot_be_read_is_the_nameless_one(name: str) -> None:
    pod = a_pod()
    annotations = {"gangshare.io/group": name, "gangshare.io/min-member": "1"}
    found = membership(with_annotations(pod, annotations))
    assert found is not None
    assert found.key == GroupKey("default", "")
    assert found.declaration is None
    assert "expected a name of at most 253 characters without spaces" in found.problems[0]


@pytest.mark.parametrize(
    "spec",
    [
        "[]", "text", "affinityGroup: {}", "affinityGroup: text", "affinityGroup: {name: g, members: []}",
        "affinityGroup: {name: g, members: [{podNumber: 0}]}", "affinityGroup: {name: g, members: [{podNumber: two}]}",
        "affinityGroup: {name: [g], members: []}", "{", "\x00", "a: &a [*a]", "- " * 1000, DEEP, LARGE, "? [1]\n: 2",
        "affinityGroup: !!python/object/apply:os.getpid []",
    ],
)  # fmt: skip
def test_a_hived_spec_that_makes_no_sense_is_told(spec: str) -> None:
    found = membership(a_pod(annotations={HIVED: spec}))
    assert found is not None
    assert found.key.name == ""
    assert found.problems[0].startswith(f"annotation {HIVED} is ")
    assert "expected a PodSchedulingSpec of HiveD" in found.problems[0]


@pytest.mark.parametrize("text", ["{}", "[{}]", '[{"name": "w", "minMember": "2"}]', DEEP, '[{"x": ' + DEEP[:9000]])
def test_task_groups_that_make_no_sense_are_told(text: str) -> None:
    found = membership(a_pod(labels={"applicationId": "a"}, annotations={TASK_GROUPS: text}))
    assert found is not None
    assert found.key.name == "a"
    assert found.declaration is None
    assert 'expected task groups, like [{"name": "worker", "minMember": 2}]' in found.problems[0]


def with_annotations(pod: Pod, annotations: dict[str, str]) -> Pod:
    """Also with texts that JSON cannot carry."""
    metadata = msgspec.structs.replace(pod.metadata, annotations=annotations)
    return msgspec.structs.replace(pod, metadata=metadata)


known_keys = sorted(
    {key.name for dialect in naming.DIALECTS for key in dialect.keys}
    | {key.name for dialect in naming.DIALECTS for _, keys in dialect.says.values() for key in keys}
    | {key.name for key in dialects.ROLES}
    | {"applicationId", "group-name", "spark-role", "gang.scheduling.koordinator.sh/groups"}
)
texts = st.text() | st.sampled_from(
    ["1", "0", "-1", "٣", "1h", "g", "{}", "[]", '{"a": 1}', '["a", 1]', "null", "a: [", "true", "kai.alibabacloud.com"]
)
written = st.dictionaries(st.sampled_from(known_keys) | st.text(), texts, max_size=8)


@given(written, written)
def test_no_metadata_raises(labels: dict[str, str], annotations: dict[str, str]) -> None:
    pod = a_pod()
    metadata = msgspec.structs.replace(pod.metadata, labels=labels, annotations=annotations)
    found = membership(msgspec.structs.replace(pod, metadata=metadata))
    assert found is None or found.key.name or (found.problems and found.declaration is None)
