"""One request: what goes over the wire, and what comes of awkward answers."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from protos.kube import binding, client, credentials, errors, paths
from protos.kube.credentials import Credentials, FileToken, FixedToken
from protos.kube.errors import CredentialsError
from tests.unit.kube import apiserver
from tests.unit.kube.apiserver import Script, ok, refusal

POD = "/api/v1/namespaces/ns/pods/p"


async def test_each_patch_type_goes_by_its_media_type(script: Script) -> None:
    kinds = (client.MERGE_PATCH, client.STRATEGIC_PATCH)
    script.then(*[ok({})] * len(kinds))
    async with script.client() as api:
        for kind in kinds:
            await api.patch(paths.pod("ns", "p", "status"), {"a": 1}, content_type=kind, params={"fieldManager": "m"})
    assert [asked.headers["Content-Type"] for asked in script.asked] == list(kinds)
    assert {(asked.method, asked.path) for asked in script.asked} == {("PATCH", f"{POD}/status")}
    assert script.asked[0].query == {"fieldManager": "m"}


async def test_names_are_quoted_in_paths() -> None:
    assert paths.pod("ns", "a/b", "binding") == "/api/v1/namespaces/ns/pods/a%2Fb/binding"
    assert paths.path("gangshare.io/v1alpha1", "queues", name="q") == "/apis/gangshare.io/v1alpha1/queues/q"
    assert (paths.nodes(), paths.pods(), paths.node("n", "status")) == (
        "/api/v1/nodes",
        "/api/v1/pods",
        "/api/v1/nodes/n/status",
    )


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", errors.ApiError),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "Expired", errors.Gone),
        (422, "Invalid", errors.ApiError),
        (500, "InternalError", errors.Unavailable),
        (405, "MethodNotAllowed", errors.ApiError),
    ],
)
async def test_a_status_becomes_the_error_of_its_kind(
    script: Script, code: int, reason: str, kind: type[errors.ApiError]
) -> None:
    script.then(refusal(code, reason, "x" * 1000))
    async with script.client() as api:
        with pytest.raises(errors.ApiError) as caught:
            await api.get(POD)
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.reason) == (code, reason)
    assert caught.value.message == "x" * 256 + "…"
    assert f"GET {POD}: {code} {reason} xxx" in str(caught.value)


@pytest.mark.parametrize(
    ("field", "kind"), [("metadata.uid", errors.Conflict), ("spec.containers", errors.ApiError)], ids=["uid", "spec"]
)
def test_a_patch_meant_for_another_object_of_that_name_is_a_conflict(field: str, kind: type[errors.ApiError]) -> None:
    status = errors.Status(reason="Invalid", details=errors.Details((errors.Cause("FieldValueInvalid", field),)))
    assert type(errors.from_status("PATCH /p", 422, status, write=True)) is kind


async def test_a_refusal_without_a_status_object_shows_its_text(script: Script) -> None:
    async def play(_: web.Request) -> web.StreamResponse:
        return web.Response(status=502, text="bad gateway")

    script.then(play)
    async with script.client() as api:
        with pytest.raises(errors.Unavailable, match="502 bad gateway"):
            await api.get(POD)


async def test_429_is_tried_again_after_the_time_asked_for(script: Script) -> None:
    script.then(*[refusal(429, "TooManyRequests", retry_after=0)] * 2, ok({"done": True}))
    async with script.client() as api:
        assert msgspec.json.decode(await api.post(POD, b"{}")) == {"done": True}
    assert len(script.asked) == 3


@pytest.mark.parametrize("after", [0, "Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 21 Oct 2015 07:28:00 -0000"])
async def test_a_read_is_tried_again_when_the_server_asks_for_it(script: Script, after: int | str) -> None:
    plays = [refusal(code, "ServerTimeout", retry_after=after) for code in (429, 500, 503, 504)]
    script.then(*plays, ok({"done": True}))
    async with script.client() as api:
        assert msgspec.json.decode(await api.get(POD)) == {"done": True}


async def test_a_write_is_not_repeated_after_an_error_of_the_server(script: Script) -> None:
    script.then(refusal(500, "ServerTimeout", retry_after=0), ok({}))
    async with script.client() as api:
        with pytest.raises(errors.Unavailable) as caught:
            await api.post(POD, b"{}")
    assert caught.value.outcome_unknown
    assert len(script.asked) == 1


@pytest.mark.parametrize("after", ["soon", "-1", "Wed, 99 Oct 2015", "\u0661"])
def test_a_retry_after_that_cannot_be_read_is_none(after: str) -> None:
    assert client._seconds(after) is None


async def test_429_is_given_up_after_bounded_tries(script: Script) -> None:
    script.then(*[refusal(429, "TooManyRequests", retry_after=0)] * client.TRIES)
    async with script.client() as api:
        with pytest.raises(errors.TooMany) as caught:
            await api.post(POD, b"{}")
    assert not isinstance(caught.value, errors.Protected)
    assert len(script.asked) == client.TRIES


async def test_an_eviction_that_a_disruption_budget_forbids_is_told_at_once(script: Script) -> None:
    causes = {"causes": [{"reason": "DisruptionBudget", "message": "needs 2"}], "retryAfterSeconds": 10}
    script.then(refusal(429, "TooManyRequests", retry_after=10, details=causes))
    async with script.client() as api:
        with pytest.raises(errors.Protected):
            await api.post(paths.pod("ns", "p", "eviction"), {"kind": "Eviction"})
    assert len(script.asked) == 1


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
async def test_a_write_whose_answer_was_lost_has_an_unknown_outcome_and_is_sent_once(
    script: Script, method: str
) -> None:
    done: list[str] = []
    script.then(ok({}), apiserver.lost(lambda: done.append(method)), ok({}))
    async with script.client() as api:
        await api.get(POD)  # so that the write goes over a connection that was used before
        with pytest.raises(errors.Unavailable) as caught:
            await getattr(api, method)(POD, b"{}")
    assert caught.value.outcome_unknown
    assert caught.value.__cause__ is not None
    assert done == [method]
    assert len(script.asked) == 2


async def test_a_binding_whose_answer_was_lost_has_an_unknown_outcome(script: Script) -> None:
    script.then(apiserver.lost())
    async with script.client() as api:
        with pytest.raises(errors.Unavailable) as caught:
            await binding.bind(api, namespace="ns", name="p", uid="u", node="n", annotations={})
    assert caught.value.outcome_unknown


async def test_a_read_over_a_connection_that_the_server_closed_is_sent_again(script: Script) -> None:
    script.then(ok({}), apiserver.lost(), ok({"there": 1}))
    async with script.client() as api:
        await api.get(POD)
        assert await api.get(POD) == b'{"there":1}'


async def test_a_write_without_an_answer_in_time_has_an_unknown_outcome(script: Script) -> None:
    async with script.client(answer_s=0.5) as api:
        with pytest.raises(errors.Unavailable) as caught:
            await api.post(POD, b"{}")
    assert caught.value.outcome_unknown


async def test_a_write_without_a_connection_was_surely_not_done() -> None:
    async with client.ApiClient(Credentials("http://127.0.0.1:1")) as api:
        with pytest.raises(errors.Unavailable) as caught:
            await api.post(POD, b"{}")
    assert not caught.value.outcome_unknown


@pytest.mark.parametrize("token", ["Bearer a\r\nImpersonate-User: admin", "Bearer ä€"])
async def test_a_token_that_fits_into_no_header_is_no_credential(script: Script, token: str) -> None:
    async with script.client(FixedToken(token)) as api:
        with pytest.raises(errors.Unauthorized, match="expected a token in one line of ASCII") as caught:
            await api.post(POD, b"{}")
    assert "admin" not in str(caught.value)
    assert not script.asked


@pytest.mark.parametrize(
    "unusable",
    [Credentials("https://api:65536"), Credentials("https://api", proxy="socks5://127.0.0.1:1080")],
    ids=["server", "proxy"],
)
async def test_an_address_that_cannot_be_used_is_told_at_the_start(unusable: Credentials) -> None:
    with pytest.raises(CredentialsError, match="expected a URL http"):
        async with client.ApiClient(unusable):
            pass


async def test_a_lost_read_leaves_nothing_unknown(script: Script) -> None:
    async with script.client(answer_s=0.5) as api:
        with pytest.raises(errors.Unavailable) as caught:
            await api.get(POD)
    assert not caught.value.outcome_unknown


async def test_a_binding_names_node_uid_and_annotations(script: Script) -> None:
    script.then(ok({"kind": "Status", "status": "Success"}, 201))
    async with script.client() as api:
        await binding.bind(api, namespace="ns", name="p", uid="u", node="n", annotations={"k": "v"})
    assert script.asked[0].path == f"{POD}/binding"
    assert script.asked[0].headers["Content-Type"] == client.PROTOBUF
    assert script.asked[0].body == {
        "metadata": {"namespace": "ns", "name": "p", "uid": "u", "annotations": {"k": "v"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n"},
    }


@pytest.mark.parametrize(
    ("code", "reason", "kind"), [(409, "Conflict", errors.Conflict), (404, "NotFound", errors.NotFound)]
)
async def test_a_binding_that_is_refused_says_so(
    script: Script, code: int, reason: str, kind: type[errors.ApiError]
) -> None:
    script.then(refusal(code, reason, 'pod p is already assigned to node "m"'))
    async with script.client() as api:
        with pytest.raises(kind, match="already assigned"):
            await binding.bind(api, namespace="ns", name="p", uid="u", node="n", annotations={})


async def test_writes_are_limited_in_flight_but_urgent_ones_and_reads_pass(script: Script) -> None:
    async with script.client(writes=2) as api:
        writing = [asyncio.create_task(api.post(f"/w/{n}", b"{}")) for n in range(5)]
        await until(lambda: len(script.asked) == 2)
        urgent = asyncio.create_task(api.put("/urgent", b"{}", urgent=True))
        reading = asyncio.create_task(api.get("/read"))
        await until(lambda: len(script.asked) == 4)
        for task in (*writing, urgent, reading):
            task.cancel()
        await asyncio.gather(*writing, urgent, reading, return_exceptions=True)
    assert sorted(asked.path for asked in script.asked) == ["/read", "/urgent", "/w/0", "/w/1"]


async def test_a_refused_token_is_read_again_once(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "LOOK_S", 1000.0)
    file = tmp_path / "token"
    file.write_text("old")
    script.then(refusal(401, "Unauthorized"), ok({}), refusal(401, "Unauthorized"), refusal(401, "Unauthorized"))
    async with script.client(FileToken(file)) as api:
        await api.get(POD)
        file.write_text("newer")
        with pytest.raises(errors.Unauthorized):
            await api.get(POD)
    sent = [asked.headers["Authorization"] for asked in script.asked]
    assert sent == ["Bearer old", "Bearer old", "Bearer old", "Bearer newer"]


async def test_an_answer_of_another_form_is_told_from_an_error(script: Script) -> None:
    script.then(ok({"metadata": 1}))
    async with script.client() as api:
        with pytest.raises(errors.BadAnswer, match=r"\$\.metadata"):
            await api.fetch(POD, msgspec.json.Decoder(Named))


class Named(msgspec.Struct):
    metadata: dict[str, str]


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - what is awaited has no event
            await asyncio.sleep(0.005)
