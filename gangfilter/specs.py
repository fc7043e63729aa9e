"""Structured annotations: HiveD's scheduling spec (YAML) and YuniKorn's task groups (JSON)."""

from __future__ import annotations

from functools import lru_cache

import msgspec
import yaml

from gangfilter.values import BadValue, by_role, count, decoded, name
from protos.contract.bounds import YAML_BRACKETS, YAML_TEXT
from protos.contract.codec import BAD_JSON

_HIVED = "a PodSchedulingSpec of HiveD with affinityGroup.name and affinityGroup.members[].podNumber"
_TASK_GROUPS = 'task groups, like [{"name": "worker", "minMember": 2}]'


class _Members(msgspec.Struct, rename="camel"):
    pod_number: str


class _AffinityGroup(msgspec.Struct):
    name: str
    members: list[_Members]


class _Spec(msgspec.Struct, rename="camel"):
    affinity_group: _AffinityGroup | str = ""
    virtual_cluster: str = ""


class _TaskGroup(msgspec.Struct, rename="camel"):
    name: str
    min_member: int


class HivedGroup(msgspec.Struct, frozen=True):
    """An affinity group; the name is empty for a pod without one."""

    name: str
    pods: int
    virtual_cluster: str


@lru_cache(maxsize=256)
def hived(text: str) -> HivedGroup:
    """HiveD's spec, which is on every pod of an affinity group; raises BadValue."""
    if len(text) > YAML_TEXT.most or text.count("[") + text.count("{") > YAML_BRACKETS.most:
        raise BadValue(f"{_HIVED}, of at most {YAML_TEXT.most} characters and {YAML_BRACKETS.most} brackets")
    try:
        spec = msgspec.convert(yaml.load(text, Loader=yaml.CBaseLoader), _Spec)
        if isinstance(spec.affinity_group, str):
            if spec.affinity_group in ("", "~", "null"):
                return HivedGroup("", 1, spec.virtual_cluster)
            raise BadValue(_HIVED)
        pods = sum(count(members.pod_number) for members in spec.affinity_group.members)
        return HivedGroup(name(spec.affinity_group.name), count(str(pods)), spec.virtual_cluster)
    except (yaml.YAMLError, *BAD_JSON) as error:
        raise BadValue(_HIVED) from error


_task_groups = msgspec.json.Decoder(list[_TaskGroup])


def task_groups(text: str) -> tuple[tuple[str, int], ...]:
    """YuniKorn's task groups as minimum per role; raises BadValue."""
    minimums: dict[str, int] = {}
    for group in decoded(text, _task_groups, _TASK_GROUPS):
        minimums[group.name] = max(group.min_member, minimums.get(group.name, 0))
    return by_role(minimums, _TASK_GROUPS)
