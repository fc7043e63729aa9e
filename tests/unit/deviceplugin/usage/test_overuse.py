"""Events about containers that use more than they were promised: once, until they keep to it again."""

from __future__ import annotations

import pytest

from deviceplugin.usage.overuse import AT_ONCE, Overuse
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
    pod: str = "p", used: float | None = 5, promised: float = 4, *, asks: bool = True, whole: bool = False
) -> Use:
    memory = None if used is None else int(used * GIB)
    return Use(
        namespace="d", pod=pod, uid=f"u-{pod}", container="main", uuid="GPU-0", gpu=0, asks=asks, whole=whole,
        promised=int(promised * GIB), used=memory,
    )  # fmt: skip


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def overuse(recorder: Recorder) -> Overuse:
    return Overuse(recorder)  # type: ignore[arg-type]  # a stand-in


async def test_it_is_told_once_and_again_after_a_change(overuse: Overuse, recorder: Recorder) -> None:
    counts = [await overuse.tell((a_use(used=used),)) for used in (4, 5, 6, 4, 5)]
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
async def test_others_are_not_told(overuse: Overuse, use: Use) -> None:
    assert await overuse.tell((use,)) == 0


async def test_what_could_not_be_posted_comes_with_the_next_look(overuse: Overuse, recorder: Recorder) -> None:
    recorder.answer = errors.Unavailable("POST events")
    assert await overuse.tell((a_use(),)) == 0
    recorder.answer = False
    assert await overuse.tell((a_use(),)) == 0
    recorder.answer = True
    assert await overuse.tell((a_use(),)) == 1


async def test_many_are_told_some_at_a_time(overuse: Overuse) -> None:
    uses = tuple(a_use(f"p{number}") for number in range(2 * AT_ONCE + 1))
    assert [await overuse.tell(uses) for _ in range(4)] == [AT_ONCE, AT_ONCE, 1, 0]
