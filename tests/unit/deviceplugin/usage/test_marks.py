"""Marks on idle pods: few writes, the truth first, and nothing about pods of which nothing is known."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from deviceplugin.usage.marks import AT_ONCE, HOLDS_S, MOVED_ON_S, Marks, due, idle_s
from protos.contract import idle, names
from protos.contract.measured import Use
from protos.contract.objects import Pod
from protos.contract.timestamps import epoch_seconds, timestamp
from protos.kube import errors
from tests.builders import MAKER, a_pod
from tests.unit.deviceplugin.usage.test_notices import a_use
from tests.unit.engine.story import owned_by

NOW, LEAST = 1_800_000_000.0, 300.0


def marked(
    name: str = "p", *, since: float = NOW - 400, until: float = NOW + HOLDS_S, manager: str = names.USAGE
) -> Pod:
    said = idle.encode(idle.Idle(1, timestamp(since), timestamp(until)))
    managed = [MAKER, *owned_by(manager, "status", names.IDLE)]
    return a_pod(name, mem=4, annotations={names.IDLE: said}, managedFields=managed, uid=f"u-{name}")


def plain(name: str = "p") -> Pod:
    return a_pod(name, mem=4, uid=f"u-{name}")


def writes(pod: Pod, seconds: float | None) -> list[idle.Idle | None]:
    """What is written about the pod that was idle for so long; None: it is not known for how long."""
    return [mark for _, mark in due([pod], {} if seconds is None else {"u-p": seconds}, LEAST, NOW)]


def test_a_pod_is_marked_once_it_was_idle_for_so_long_and_again_before_the_mark_ends() -> None:
    assert writes(plain(), 299) == []
    (mark,) = writes(plain(), 400)
    assert mark == idle.Idle(1, timestamp(NOW - 400), timestamp(NOW + HOLDS_S))
    assert writes(marked(), 400) == []
    assert writes(marked(since=NOW - 402), 400) == [], "times have whole seconds"
    (again,) = writes(marked(until=NOW + MOVED_ON_S), 400)
    assert again is not None
    assert epoch_seconds(again.until) == NOW + HOLDS_S


@pytest.mark.parametrize("seconds", [0.0, 299.0, None])
def test_the_mark_is_taken_away_when_the_pod_works_or_when_it_is_not_known(seconds: float | None) -> None:
    assert writes(marked(), seconds) == [None]


def test_a_pod_that_worked_in_between_is_idle_since_then() -> None:
    (mark,) = writes(marked(since=NOW - 4000), 400)
    assert mark is not None
    assert mark.since == timestamp(NOW - 400)


def test_what_somebody_else_wrote_is_no_mark() -> None:
    forged = marked(manager="kubectl-edit")
    assert writes(forged, 0) == [], "it is not believed, so it does no harm"
    (mark,) = writes(forged, 400)
    assert mark is not None


def test_what_is_no_longer_true_goes_first() -> None:
    pods = [plain("a"), marked("b"), plain("c"), marked("d")]
    found = due(pods, {"u-a": 400, "u-b": 0, "u-c": 400}, LEAST, NOW)
    assert [write.pod.metadata.name for write in found] == ["b", "d", "a", "c"]


@pytest.mark.parametrize(
    ("uses", "expected"),
    [
        ([a_use(idle=10)], {"u-p": 10}),
        ([a_use(idle=10), a_use(idle=3)], {"u-p": 3}),
        ([a_use(idle=10), a_use(idle=None)], {}),
        ([a_use(idle=None), a_use(idle=10)], {}),
        ([a_use(idle=10, promised=0)], {}),
        ([a_use(idle=10, asks=False)], {}),
        ([msgspec.structs.replace(a_use(idle=None), uid="")], {}),
    ],
    ids=["one", "the busiest", "unknown", "unknown first", "nothing promised", "no GPUs", "outside"],
)
def test_a_pod_is_idle_on_all_of_its_gpus_or_not_at_all(uses: list[Use], expected: dict[str, float]) -> None:
    assert idle_s(uses) == expected


class Client:
    """Notes what is patched; answers as told."""

    def __init__(self) -> None:
        self.patched: list[tuple[str, Any, str]] = []
        self.error: errors.ApiError | None = None

    async def patch(self, path: str, body: Any, *, content_type: str, params: dict[str, str]) -> bytes:
        self.patched.append((path, body, params["fieldManager"]))
        if self.error is not None:
            raise self.error
        return b""


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def marks(client: Client) -> Marks:
    return Marks(client, LEAST)  # type: ignore[arg-type]  # a stand-in


async def test_it_is_written_through_the_status_about_that_pod_and_no_later_one(marks: Marks, client: Client) -> None:
    await marks.write([plain()], (a_use(idle=400),), NOW)
    ((path, body, manager),) = client.patched
    assert (path, manager) == ("/api/v1/namespaces/default/pods/p/status", names.USAGE)
    assert body["metadata"]["uid"] == "u-p"
    assert set(body["metadata"]["annotations"]) == {names.IDLE}


async def test_a_look_writes_few_and_stops_at_an_error(marks: Marks, client: Client) -> None:
    pods = [plain(f"p{number}") for number in range(AT_ONCE + 3)]
    uses = tuple(a_use(pod.metadata.name, idle=400) for pod in pods)
    await marks.write(pods, uses, NOW)
    assert len(client.patched) == AT_ONCE
    for error, more in ((errors.Forbidden("PATCH"), 1), (errors.NotFound("PATCH"), AT_ONCE)):
        client.patched.clear()
        client.error = error
        await marks.write(pods, uses, NOW)
        assert len(client.patched) == more
