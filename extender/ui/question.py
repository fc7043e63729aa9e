"""The viewer's what-if: the query of the page as the question that the extender answers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import parse_qs

import msgspec

from extender.ui.sources import Trouble
from extender.wire import whatif as wire
from protos.contract import names
from protos.contract.selection import is_number

LONGEST_QUERY = 2000
MOST = 100_000
"""Of each number."""
RESOURCES = {"memory": names.GPU_MEM, "slices": names.GPU_SLICE, "gpus": names.WHOLE_GPU}
"""What a pod may request, as the page calls it."""
NAME, GROUP = "what-if", "what-if"
_TEXTS = ("namespace", "queue", "priority", "like")
_LONGEST = 253


class Question(msgspec.Struct, frozen=True):
    """What is asked in a namespace."""

    namespace: str
    body: bytes


def read(query: bytes) -> Question:
    """The question of a query; raises Trouble.

    `of` (memory, slices or gpus) and `amount` of each pod, `pods`, `together` (1: as a gang), `namespace`, `queue`,
    `priority` (a PriorityClass), `like` and `more` (so many further nodes like this one).
    """
    if len(query) > LONGEST_QUERY:
        raise _bad(f"the question has {len(query)} bytes: expected at most {LONGEST_QUERY}")
    given = {key: values[0] for key, values in parse_qs(query.decode("latin-1")).items()}
    for key in _TEXTS:
        if len(given.get(key, "")) > _LONGEST:
            raise _bad(f"{key} is too long: expected at most {_LONGEST} characters")
    if given.get("of") not in RESOURCES:
        raise _bad(f"of is {given.get('of', '')[:40]!r}: expected one of {', '.join(RESOURCES)}")
    amount, pods = _number(given, "amount"), _number(given, "pods")
    namespace = given.get("namespace") or "default"
    nodes = [{"like": given["like"], "count": _number(given, "more")}] if given.get("like") else []
    template = _template(given, namespace, amount, pods)
    spec = {"pods": [{"template": template, "count": pods}], "nodes": nodes}
    made = {"apiVersion": wire.API_VERSION, "kind": wire.KIND, "metadata": {"namespace": namespace}, "spec": spec}
    return Question(namespace, msgspec.json.encode(made))


def _template(given: Mapping[str, str], namespace: str, amount: int, pods: int) -> dict[str, object]:
    annotations = {}
    if given.get("together") == "1" and pods > 1:
        annotations = {names.GROUP: GROUP, names.MIN_MEMBER: str(pods)}
    if given.get("queue"):
        annotations[names.QUEUE] = given["queue"]
    limits = {RESOURCES[given["of"]]: str(amount)}
    spec: dict[str, object] = {
        "schedulerName": names.PROFILE,
        "containers": [{"name": "main", "resources": {"limits": limits}}],
    }
    if given.get("priority"):
        spec["priorityClassName"] = given["priority"]
    return {"metadata": {"name": NAME, "namespace": namespace, "annotations": annotations}, "spec": spec}


def _number(given: Mapping[str, str], key: str) -> int:
    text = given.get(key, "1")
    if not (is_number(text) and 0 < int(text) <= MOST):
        raise _bad(f"{key} is {text[:40]!r}: expected a number from 1 to {MOST}")
    return int(text)


def _bad(sentence: str) -> Trouble:
    return Trouble(sentence, HTTPStatus.BAD_REQUEST)
