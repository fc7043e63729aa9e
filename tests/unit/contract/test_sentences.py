"""A sentence about a bad value repeats little of it: logs and Events are no place to store what others write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deviceplugin import fake, slices
from protos.contract import budget, names, queue_sources
from protos.contract.printable import BRIEF
from protos.files import FileError
from protos.kube import credentials
from protos.kube.errors import ApiError, CredentialsError, Status, from_status

LONG = "x" * 70_000
MOST = BRIEF + 1


def selecting(operator: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "app", "operator": operator, "values": ["a"]}]}


def sharing(**resource: Any) -> str:
    return json.dumps({"version": "v1", "sharing": {"timeSlicing": {"resources": [{"replicas": 2, **resource}]}}})


def whole(text: str) -> None:
    slices.parse(text.encode(), names.Resources(), 100)


READ: dict[str, tuple[Callable[[], Any], type[Exception]]] = {
    "operator of a budget": (
        lambda: budget.decode(json.dumps({"metadata": {"name": "b"}, "spec": {"selector": selecting(LONG)}}).encode()),
        msgspec.DecodeError,
    ),
    "name of a time-sliced resource": (lambda: whole(sharing(name=LONG)), FileError),
    "new name of a time-sliced resource": (lambda: whole(sharing(name="gpu", rename=LONG)), FileError),
    "devices of a time-sliced resource": (lambda: whole(sharing(name="gpu", devices=LONG)), FileError),
    "replicas of a GPU": (lambda: whole(sharing(name="gpu", replicas=10**4200)), FileError),
    "unknown field of a profile": (lambda: fake.parse(f"? {LONG[:5000]}\n: 1\n".encode()), FileError),
}


@pytest.mark.parametrize("read", READ)
def test_a_long_value_is_not_repeated(read: str) -> None:
    decode, states = READ[read]
    with pytest.raises(states) as caught:
        decode()
    assert len(str(caught.value)) <= MOST


def test_an_unknown_operator_is_named_with_those_that_are_known() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"operator is 'Near': expected one of In, NotIn, Exists, .*Lt"):
        budget.decode(json.dumps({"metadata": {"name": "b"}, "spec": {"selector": selecting("Near")}}).encode())
    own = next(source for source in queue_sources.SOURCES if source.api_version.startswith(names.DOMAIN))
    body = {"metadata": {"name": "q"}, "spec": {"namespaceSelector": selecting(LONG)}}
    problem = queue_sources.decode(own, json.dumps(body).encode()).problem
    assert problem is not None
    assert "operator is 'xxx" in problem
    assert len(problem) <= MOST


def test_the_words_of_a_status_are_cut() -> None:
    error: ApiError = from_status("GET /x", 410, Status(reason=LONG, message=LONG), write=False)
    assert len(str(error)) <= MOST


async def test_a_kubeconfig_is_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": LONG, "contexts": []}))
    with pytest.raises(CredentialsError) as caught:
        await credentials.from_kubeconfig(str(path))
    assert len(str(caught.value)) <= MOST
