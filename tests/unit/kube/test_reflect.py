"""A collection as events: lists, watches, and every way in which they break."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from protos.kube import errors
from protos.kube.changes import Deleted, Event, Listed, Seen, Undecodable
from protos.kube.client import DEEPEST
from protos.kube.reflect import FAILURES, Lines, Pace, Reflector
from tests.unit.kube.apiserver import Play, Script, bookmark, error, line, page, refusal, thing, watch

PATH = "/api/v1/pods"
QUICK = Pace(backoff_s=0.001, backoff_most_s=0.005)


class Meta(msgspec.Struct):
    name: str


class Thing(msgspec.Struct):
    metadata: Meta
    size: int = 0


decode: Callable[[bytes], Thing] = msgspec.json.Decoder(Thing).decode


def told(event: Event[Thing]) -> str:
    """An event in few words."""
    match event:
        case Listed(version):
            return f"listed {version}"
        case Undecodable(ref, _, _):
            return f"undecodable {ref.name if ref else '?'}"
        case Deleted(ref, last):
            return f"deleted {ref.uid}" + ("" if last else " unseen")
        case Seen(ref, object=it):
            return f"seen {ref.name} {it.size}"


async def story(
    script: Script, count: int, *plays: Play, then: Callable[[int], None] = lambda _: None, **settings: Any
) -> list[str]:
    """The first events of a reflector over these answers; after each of them `then` is called with its number."""
    script.then(*plays)
    seen: list[str] = []
    async with script.client() as api, asyncio.timeout(20):
        reflector = Reflector(api, PATH, decode, **{"pace": QUICK, **settings})
        async with aclosing(reflector.events()) as events:
            async for event in events:
                seen.append(told(event))
                then(len(seen))
                if len(seen) == count:
                    return seen
    raise AssertionError("events have no end")


async def test_pages_are_listed_then_watched_from_the_list_s_version(script: Script) -> None:
    seen = await story(
        script,
        7,
        page([thing("a", 3), thing("b", 5)], "9", "more"),
        page([thing("c", 4)], "9"),
        watch(
            line("ADDED", thing("d", 10)),
            line("MODIFIED", thing("a", 11, size=2)),
            line("DELETED", thing("b", 12)),
        ),
        pace=replace(QUICK, page=2),
        selectors={"labelSelector": "app=x", "fieldSelector": "spec.nodeName=n"},
    )
    assert seen == ["seen a 0", "seen b 0", "seen c 0", "listed 9", "seen d 0", "seen a 2", "deleted uid-b"]
    selectors = {"labelSelector": "app=x", "fieldSelector": "spec.nodeName=n"}
    first, second, third = (asked.query for asked in script.asked)
    assert first == {"limit": "2", **selectors}
    assert second == {"limit": "2", "continue": "more", **selectors}
    assert 300 <= int(third.pop("timeoutSeconds")) <= 600
    assert third == {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": "9", **selectors}


async def test_an_expired_list_is_read_in_one_go(script: Script) -> None:
    seen = await story(
        script,
        5,
        page([thing("a", 1), thing("b", 2)], "9", "more"),
        refusal(410, "Expired"),
        page([thing("a", 11), thing("c", 12)], "12"),
        pace=replace(QUICK, page=2),
    )
    assert seen == ["seen a 0", "seen b 0", "seen a 0", "seen c 0", "deleted uid-b unseen"]
    assert script.asked[2].query == {}


@pytest.mark.parametrize(
    "expired",
    [refusal(410, "Expired"), watch(error(410, "Expired")), watch(bookmark("10"), error(410, "Gone"))],
    ids=["by the answer's status", "by the first event", "in mid-stream"],
)
async def test_an_expired_watch_is_followed_by_the_difference(script: Script, expired: Play) -> None:
    seen = await story(
        script,
        9,
        page([thing("a", 1), thing("b", 2), thing("c", 3)], "9"),
        expired,
        page([thing("a", 1), thing("c", 21, uid="uid-c2", size=7)], "30"),
        watch(line("MODIFIED", thing("a", 31, size=1))),
    )
    assert seen[4:] == ["seen a 0", "deleted uid-c unseen", "seen c 7", "deleted uid-b unseen", "listed 30"]
    assert script.asked[2].query == {"limit": "500"}


async def test_a_dropped_watch_goes_on_from_the_last_version_seen(script: Script) -> None:
    await story(
        script,
        4,
        page([], "9"),
        watch(line("ADDED", thing("a", 10)), end="drop"),
        watch(line("ADDED", thing("b", 11)), bookmark("20"), end="close"),
        watch(line("ADDED", thing("c", 21))),
    )
    assert [asked.query["resourceVersion"] for asked in script.asked[1:]] == ["9", "10", "20"]


async def test_a_line_cut_by_the_drop_is_read_again(script: Script) -> None:
    whole = line("ADDED", thing("a", 10, size=3))
    seen = await story(
        script,
        2,
        page([], "9"),
        watch(bookmark("9") + whole[:40], end="drop"),
        watch(whole[:7], whole[7:60], whole[60:]),
    )
    assert seen == ["listed 9", "seen a 3"]


async def test_a_line_may_be_megabytes_long(script: Script) -> None:
    seen = await story(
        script,
        3,
        page([], "9"),
        watch(line("ADDED", thing("a", 10, size=3, filler="x" * 3_000_000)) + line("ADDED", thing("b", 11))),
    )
    assert seen == ["listed 9", "seen a 3", "seen b 0"]


async def test_an_object_that_cannot_be_decoded_ends_nothing(script: Script) -> None:
    seen = await story(
        script,
        6,
        page([thing("a", 1, size="big"), {"metadata": 7}], "9"),
        watch(
            line("MODIFIED", thing("a", 10, size=1)),
            line("DELETED", thing("a", 11, size="big")),
            line("ADDED", {"metadata": 7}),
        ),
    )
    assert seen == [
        "undecodable a",
        "undecodable ?",
        "listed 9",
        "seen a 1",
        "deleted uid-a unseen",
        "undecodable ?",
    ]


async def test_a_decoder_that_recurses_too_deep_ends_nothing(script: Script) -> None:
    def deep(raw: bytes) -> Thing:
        msgspec.json.decode(b"[" * 100_000)
        return decode(raw)

    script.then(page([thing("a", 1)], "9"))
    async with script.client() as api, aclosing(Reflector(api, PATH, deep).events()) as events:
        first = await anext(events)
    assert isinstance(first, Undecodable)
    assert isinstance(first.error, RecursionError)
    assert msgspec.json.decode(first.raw) == thing("a", 1)


async def test_objects_nested_as_deeply_as_the_api_server_lets_them_are_read(script: Script) -> None:
    nested: dict[str, Any] = {}
    for _ in range(DEEPEST - 100):
        nested = {"f:a": nested}
    deep = thing("deep", 10, managedFields=[{"fieldsV1": nested}])
    seen = await story(script, 4, page([deep, thing("a", 1, size=1)], "9"), watch(line("MODIFIED", deep)))
    assert seen == ["seen deep 0", "seen a 1", "listed 9", "seen deep 0"]


async def test_a_line_that_is_no_json_is_followed_by_a_list(script: Script) -> None:
    seen = await story(script, 3, page([], "9"), watch(b"<html>\n"), page([thing("a", 1)], "10"))
    assert seen == ["listed 9", "seen a 0", "listed 10"]


async def test_a_silent_watch_is_opened_again(script: Script) -> None:
    pace = Pace(backoff_s=0.001, silence_s=0.05)
    await story(script, 2, page([], "9"), watch(bookmark("12")), watch(line("ADDED", thing("a", 13))), pace=pace)
    assert [asked.query["resourceVersion"] for asked in script.asked[1:]] == ["9", "12"]


async def test_a_quiet_kind_is_no_trouble_its_watch_is_opened_again_without_a_pause(script: Script) -> None:
    script.then(page([], "9"), *[watch()] * (FAILURES + 2), watch(line("ADDED", thing("a", 13))))
    async with script.client() as api, asyncio.timeout(20):
        reflector = Reflector(api, PATH, decode, pace=Pace(backoff_s=60, silence_s=0.05))
        async with aclosing(reflector.events()) as events:
            assert [told(await anext(events)) for _ in range(2)] == ["listed 9", "seen a 0"]
            assert reflector.trouble is None
    assert [asked.query.get("resourceVersion") for asked in script.asked] == [None, *["9"] * (FAILURES + 3)]


async def test_a_watch_that_ends_after_its_time_without_a_word_is_no_trouble(script: Script) -> None:
    script.then(page([], "9"), *[watch(end="late")] * (FAILURES + 2), watch(line("ADDED", thing("a", 13))))
    async with script.client() as api, asyncio.timeout(20):
        reflector = Reflector(api, PATH, decode, pace=Pace(backoff_s=60, short_s=0.01))
        async with aclosing(reflector.events()) as events:
            assert [told(await anext(events)) for _ in range(2)] == ["listed 9", "seen a 0"]


async def test_a_watch_that_is_not_answered_is_trouble(script: Script) -> None:
    script.then(page([], "9"))
    async with script.client(answer_s=1.0) as api, asyncio.timeout(20):
        reflector = Reflector(api, PATH, decode, pace=Pace(backoff_s=60))
        async with aclosing(reflector.events()) as events:
            assert told(await anext(events)) == "listed 9"
            coming = asyncio.ensure_future(anext(events))
            while reflector.trouble is None:  # noqa: ASYNC110 - a plain attribute
                await asyncio.sleep(0.005)
            assert isinstance(reflector.trouble, errors.Unavailable)
            coming.cancel()
            with suppress(asyncio.CancelledError):
                await coming


async def test_a_list_that_fails_is_tried_again(script: Script) -> None:
    seen = await story(script, 1, refusal(403, "Forbidden"), refusal(503, "ServiceUnavailable"), page([], "9"))
    assert seen == ["listed 9"]


async def test_a_watch_that_fails_again_and_again_is_followed_by_a_list(script: Script) -> None:
    refused = [watch(end="close"), refusal(500, "InternalError"), refusal(429, "TooManyRequests")]
    plays = [refused[n % 3] for n in range(FAILURES + 1)]
    await story(script, 2, page([], "9"), *plays, page([], "20"))
    assert [asked.query.get("watch") for asked in script.asked] == [None, *["1"] * (FAILURES + 1), None]


async def test_a_list_that_failed_before_does_not_count_against_the_watch(script: Script) -> None:
    down = refusal(503, "ServiceUnavailable")
    plays = [*[down] * FAILURES, page([], "9"), *[down] * FAILURES, watch(line("ADDED", thing("a", 10)))]
    assert await story(script, 2, *plays) == ["listed 9", "seen a 0"]


async def test_a_watch_that_may_not_be_opened_is_told_as_trouble(script: Script) -> None:
    script.then(page([], "9"), refusal(403, "Forbidden", "no watch for you"))
    async with script.client() as api, asyncio.timeout(20):
        reflector = Reflector(api, PATH, decode, pace=Pace(backoff_s=60, backoff_most_s=60))
        async with aclosing(reflector.events()) as events:
            assert told(await anext(events)) == "listed 9"
            assert reflector.trouble is None
            coming = asyncio.ensure_future(anext(events))
            while reflector.trouble is None:  # noqa: ASYNC110 - a plain attribute
                await asyncio.sleep(0.005)
            assert isinstance(reflector.trouble, errors.Forbidden)
            script.then(page([], "10"))
            reflector.relist()
            assert told(await coming) == "listed 10"
            assert reflector.trouble is None


@pytest.mark.parametrize(
    ("play", "kind"), [(refusal(404, "NotFound"), errors.NotFound), (refusal(403, "Forbidden"), errors.Forbidden)]
)
async def test_an_optional_collection_that_is_absent_ends_the_stream_and_a_new_one_tells_the_difference(
    script: Script, play: Play, kind: type[errors.ApiError]
) -> None:
    script.then(page([thing("a", 5), thing("b", 6)], "7"), watch(end="close"), play)
    script.then(page([thing("b", 6)], "9"), watch())
    seen: list[str] = []
    async with script.client() as api, asyncio.timeout(20):
        reflector = Reflector(api, PATH, decode, pace=QUICK, optional=True)
        with pytest.raises(kind) as ended:
            await follow(reflector, seen)
        assert reflector.trouble is ended.value
        async with aclosing(reflector.events()) as events:
            seen += [told(await anext(events)) for _ in range(3)]
    assert seen == ["seen a 0", "seen b 0", "listed 7", "seen b 0", "deleted uid-a unseen", "listed 9"]
    assert reflector.trouble is None


async def follow(reflector: Reflector[Thing], seen: list[str]) -> None:
    async for event in reflector.events():
        seen.append(told(event))


async def test_a_relist_can_be_asked_for_while_the_watch_is_silent(script: Script) -> None:
    script.then(page([thing("a", 1)], "9"), watch(bookmark("9")), page([], "12"), watch())
    async with script.client() as api, asyncio.timeout(20):
        reflector = Reflector(api, PATH, decode)
        async with aclosing(reflector.events()) as events:
            assert [told(await anext(events)) for _ in range(2)] == ["seen a 0", "listed 9"]
            coming = asyncio.ensure_future(anext(events))
            while len(script.asked) < 2:  # noqa: ASYNC110 - a plain list
                await asyncio.sleep(0.005)
            reflector.relist()
            assert told(await coming) == "deleted uid-a unseen"
            assert told(await anext(events)) == "listed 12"
    assert script.asked[2].query == {"limit": "500"}


async def test_a_relist_asked_for_during_a_list_makes_another(script: Script) -> None:
    script.then(page([thing("a", 1)], "9"), page([thing("a", 1)], "10"))
    async with script.client() as api, asyncio.timeout(20):
        reflector = Reflector(api, PATH, decode)
        async with aclosing(reflector.events()) as events:
            first = told(await anext(events))
            reflector.relist()
            rest = [told(await anext(events)) for _ in range(3)]
    assert [first, *rest] == ["seen a 0", "listed 9", "seen a 0", "listed 10"]


async def test_closing_the_stream_ends_the_watch(script: Script) -> None:
    script.then(page([], "9"), watch(line("ADDED", thing("a", 10))))
    async with script.client() as api, asyncio.timeout(20):
        async with aclosing(Reflector(api, PATH, decode).events()) as events:
            assert [told(await anext(events)) for _ in range(2)] == ["listed 9", "seen a 0"]
        await script.left.wait()


def test_lines_do_not_depend_on_how_they_were_cut() -> None:
    text = b"one\n\ntwo" * 20 + b"\nhalf"
    whole = [part for part in text.split(b"\n")[:-1] if part]
    for size in range(1, 12):
        lines = Lines()
        cut = [text[start : start + size] for start in range(0, len(text), size)]
        assert [found for chunk in cut for found in lines.of(chunk)] == whole
