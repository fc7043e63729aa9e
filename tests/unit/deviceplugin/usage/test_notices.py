"""Events about containers that use more than they were promised, or nothing: once, until that changes."""

from __future__ import annotations

import pytest

from deviceplugin.usage.notices import AT_ONCE, OVERUSE, Notices, idle_for
from protos.contract.measured import Use
from protos.kube import errors
from protos.kube.events import Reference

GIB = 2**30


class Recorder:
    """Notes what is posted; answers as told."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, str, str]] = []
        self.answer: bool | Exception = True

    async def post(self, about: Reference, reason: str, message: str, *, kind: str) -> bool:
        if isinstance(self.answer, Exception):
            raise self.answer
        assert (about.kind, kind) == ("Pod", "Warning")
        self.posted.append((about.name, reason, message))
        return self.answer


def a_use(
    pod: str = "p",
    used: float | None = 5,
    promised: float = 4,
    *,
    asks: bool = True,
    whole: bool = False,
    idle: float | None = 0,
) -> Use:
    memory = None if used is None else int(used * GIB)
    return Use(
        namespace="d", pod=pod, uid=f"u-{pod}", container="main", uuid="GPU-0", gpu=0, asks=asks, whole=whole,
        promised=int(promised * GIB), used=memory, idle=idle,
    )  # fmt: skip


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def notices(recorder: Recorder) -> Notices:
    return Notices(recorder, [OVERUSE, idle_for(1800)])  # type: ignore[arg-type]  # a stand-in


async def test_it_is_told_once_and_again_after_a_change(notices: Notices, recorder: Recorder) -> None:
    counts = [await notices.tell((a_use(used=used),)) for used in (4, 5, 6, 4, 5)]
    assert counts == [0, 1, 0, 0, 1]
    assert recorder.posted[0] == (
        "p",
        "GpuMemoryOveruse",
        "container main uses 5.0 GiB of GPU 0, and was promised 4.0 GiB: request more, or let the program keep to "
        "GANGSHARE_GPU_MEM_MIB",
    )


@pytest.mark.parametrize(
    "use", [a_use(used=None), a_use(asks=False), a_use(whole=True), a_use(used=4)], ids=["unknown", "no", "whole", "in"]
)
async def test_others_are_not_told(notices: Notices, use: Use) -> None:
    assert await notices.tell((use,)) == 0


async def test_an_idle_holder_is_told_once_in_each_idle_time(notices: Notices, recorder: Recorder) -> None:
    idle = (1799, 1800, 3600, 0, None, 1900)
    assert [await notices.tell((a_use(used=1, idle=seconds),)) for seconds in idle] == [0, 1, 0, 0, 0, 1]
    assert recorder.posted[0][1:] == (
        "GpuIdle",
        "container main holds 4.0 GiB of GPU 0 and did nothing on it for 30 minutes: end the pod if it is done",
    )
    assert await notices.tell((a_use("none", used=1, promised=0, idle=9999),)) == 1  # it takes more than its nothing


async def test_what_could_not_be_posted_comes_with_the_next_look(notices: Notices, recorder: Recorder) -> None:
    recorder.answer = errors.Unavailable("POST events")
    assert await notices.tell((a_use(),)) == 0
    recorder.answer = False
    assert await notices.tell((a_use(),)) == 0
    recorder.answer = True
    assert await notices.tell((a_use(),)) == 1


async def test_many_are_told_some_at_a_time(notices: Notices) -> None:
    uses = tuple(a_use(f"p{number}") for number in range(2 * AT_ONCE + 1))
    assert [await notices.tell(uses) for _ in range(4)] == [AT_ONCE, AT_ONCE, 1, 0]
