"""Reads a question. Every value is bounded before it is worked on; an error names the value and what was expected."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from http import HTTPStatus

import msgspec

from extender.engine.policies.whatif.question import Question
from extender.engine.state.node_state import NodeState
from extender.server.desk import Refusal
from extender.wire import whatif as wire
from gangfilter import podgroups
from gangfilter.group import Declaration, GroupKey
from protos.contract.bounds import HUGE, WHAT_IF_BODY, WHAT_IF_GROUPS, WHAT_IF_NODES, WHAT_IF_PODS, Bound
from protos.contract.codec import BAD_JSON
from protos.contract.objects import Pod
from protos.contract.printable import brief

UID = "whatif/{}"
"""The UID of a pod in the question; the API server gives no such one."""
DEFAULT = "default"
SHOWN = 100
"""Characters of a bad value that an error repeats."""
PODS, GROUPS = 32, 4
"""Pods made, and PodGroups read, between two pieces."""
KINDS = {(kind.api_version, kind.kind): kind for kind in podgroups.KINDS}
_decode = msgspec.json.Decoder(wire.WhatIf).decode


class _Kind(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    metadata: wire.Metadata = wire.Metadata()


_kind = msgspec.json.Decoder(_Kind).decode


def read(body: bytes) -> wire.WhatIf:
    """The object of a request; raises Refusal."""
    _check(WHAT_IF_BODY, len(body))
    try:
        found = _decode(body)
    except BAD_JSON as error:
        raise bad(f"the question cannot be read: {brief(str(error), 2 * SHOWN)}") from error
    if (found.api_version, found.kind) != (wire.API_VERSION, wire.KIND):
        given = brief(f"{found.api_version} {found.kind}", SHOWN)
        raise bad(f"the question is of kind {given}: expected {wire.API_VERSION} {wire.KIND}")
    return found


def question(spec: wire.Spec, nodes: Mapping[str, NodeState], namespace: str = "") -> Generator[bytes, None, Question]:
    """The question in pieces; raises Refusal. `namespace`: the only one that its pods may be in, "" for any."""
    _check_counts(spec)
    pods: list[Pod] = []
    for number, each in enumerate(spec.pods):
        where = _namespace(f"spec.pods[{number}].template", each.template.metadata.namespace, namespace)
        if each.template.spec.node_name:
            raise bad(f"spec.pods[{number}].template has spec.nodeName: expected a pod without a node")
        for index in range(each.count):
            pods.append(_pod(each, where, index, len(pods)))
            if index % PODS == 0:
                yield b""
    groups = []
    for number, raw in enumerate(spec.groups):
        groups.append(_group(number, raw, namespace))
        if number % GROUPS == 0:
            yield b""
    further = [(_node(number, each.like, nodes), each.count) for number, each in enumerate(spec.nodes)]
    return Question(pods, groups, further)


def _check_counts(spec: wire.Spec) -> None:
    if not spec.pods:
        raise bad("spec.pods is empty: expected pods")
    pods, nodes = [each.count for each in spec.pods], [each.count for each in spec.nodes]
    for field, counts in (("pods", pods), ("nodes", nodes)):
        for number, count in enumerate(counts):
            if count < 1:
                shown = count if count > -HUGE else f"less than {-HUGE}"
                raise bad(f"spec.{field}[{number}].count is {shown}: expected at least 1")
    _check(WHAT_IF_PODS, sum(pods))
    _check(WHAT_IF_GROUPS, len(spec.groups))
    _check(WHAT_IF_NODES, sum(nodes))


def _pod(pods: wire.Pods, namespace: str, index: int, serial: int) -> Pod:
    meta = pods.template.metadata
    name = meta.name if pods.count == 1 else f"{meta.name}-{index}"
    made = msgspec.structs.replace(
        meta,
        name=name,
        namespace=namespace,
        uid=UID.format(serial),
        creation_timestamp=None,
        deletion_timestamp=None,
        managed_fields=msgspec.Raw(),
    )
    return Pod(made, pods.template.spec)


def _group(number: int, raw: msgspec.Raw, namespace: str) -> tuple[str, GroupKey, Declaration]:
    try:
        head = _kind(raw)
        kind = KINDS.get((head.api_version, head.kind))
        if kind is None:
            given = brief(f"{head.api_version} {head.kind}", SHOWN)
            raise bad(f"spec.groups[{number}] is of kind {given}: expected a PodGroup that Gangshare reads")
        key, declared = podgroups.declaration(kind, raw)
    except (podgroups.PodGroupError, *BAD_JSON) as error:
        raise bad(f"spec.groups[{number}]: {brief(str(error), 2 * SHOWN)}") from error
    where = _namespace(f"spec.groups[{number}]", key.namespace, namespace)
    return kind.api_version, GroupKey(where, key.name), declared


def _namespace(what: str, given: str, only: str) -> str:
    if only and given not in ("", only):
        raise bad(f"{what} is in namespace {given!r}: expected {only!r}, that of the question")
    return given or only or DEFAULT


def _node(number: int, like: str, nodes: Mapping[str, NodeState]) -> NodeState:
    found = nodes.get(like)
    if found is None or not found.seen:
        raise bad(f"spec.nodes[{number}].like is {brief(like, SHOWN)!r}: expected the name of a node of the cluster")
    return found


def _check(bound: Bound, count: int) -> None:
    if count > bound.most:
        raise bad(bound.exceeded(count))


def bad(sentence: str) -> Refusal:
    """The refusal of a question that is not one."""
    return Refusal(HTTPStatus.BAD_REQUEST, sentence)
