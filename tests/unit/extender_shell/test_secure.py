"""The secure port: whom the API server vouches for, and for how long that is remembered."""

from __future__ import annotations

import datetime as dt
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from extender.cluster import certificate, reviews
from extender.cluster.reviews import Reviews, TooManyReviews, User
from extender.server import tls
from extender.settings import Address, Settings
from extender.sim.apiserver.api import Api
from protos.contract.shared_settings import SettingsError
from protos.kube.client import ApiClient
from protos.kube.credentials import Credentials
from tests.cluster.pki import Authority
from tests.unit.extender_shell import world
from tests.unit.extender_shell.world import FaultyServer, World, add_node

TOKENS = {"good": "system:serviceaccount:monitoring:prometheus", "viewer": "ada", "nobody": "bob"}
MAY = {("system:serviceaccount:monitoring:prometheus", "/metrics"), ("ada", "/inspect"), ("ada", "/explain/default/p1")}


class Vouching:
    """What the API server answers to reviews, and how often it was asked."""

    def __init__(self, server: FaultyServer) -> None:
        self.asked: Counter[str] = Counter()
        self.broken = False
        self.bodies: list[Any] = []
        server.fault = self.answer

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse | None:
        kind = request.path.rpartition("/")[2]
        if kind not in ("tokenreviews", "subjectaccessreviews"):
            return None
        self.asked[kind] += 1
        if self.broken:
            return web.json_response({"kind": "Status", "message": "no", "reason": "Forbidden"}, status=403)
        spec = msgspec.json.decode(await request.read())["spec"]
        self.bodies.append(spec)
        if kind == "tokenreviews":
            name = TOKENS.get(spec["token"])
            user = {"username": name, "uid": "1", "groups": ["g"], "extra": {"a/b": ["c"]}}
            return web.json_response({"status": {"authenticated": True, "user": user} if name else {"error": "no"}})
        asked = (spec["user"], spec["nonResourceAttributes"]["path"])
        return web.json_response({"status": {"allowed": asked in MAY and spec["groups"] == ["g"]}})


class Secured:
    """An extender with a secure port, and the API server's answers."""

    def __init__(self, cluster: World, session: aiohttp.ClientSession, vouching: Vouching) -> None:
        self.cluster, self.vouching, self._session = cluster, vouching, session

    async def get(self, path: str, token: str | None = None) -> tuple[int, str]:
        secure = self.cluster.extender.ports.secure
        assert secure is not None
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"https://{secure.address}{path}"
        async with self._session.get(url, headers=headers, ssl=False) as answer:
            return answer.status, await answer.text()


@pytest.fixture
async def secured() -> AsyncIterator[Secured]:
    api = Api()
    add_node(api, "node-a")
    async with (
        world.world(api, secure_listen=Address("127.0.0.1", 0)) as cluster,
        aiohttp.ClientSession() as session,
    ):
        await cluster.ready()
        yield Secured(cluster, session, Vouching(cluster.server))


async def test_who_may_sees_it_and_is_looked_up_once(secured: Secured) -> None:
    for _ in range(3):
        status, text = await secured.get("/inspect", "viewer")
        assert (status, len(msgspec.json.decode(text)["nodes"])) == (200, 1)
    assert secured.vouching.asked == {"tokenreviews": 1, "subjectaccessreviews": 1}
    asked = secured.vouching.bodies[1]
    assert asked == {
        "user": "ada",
        "uid": "1",
        "groups": ["g"],
        "extra": {"a/b": ["c"]},
        "nonResourceAttributes": {"path": "/inspect", "verb": "get"},
    }


async def test_a_scraper_sees_all_metrics_and_nothing_else(secured: Secured) -> None:
    status, text = await secured.get("/metrics", "good")
    assert (status, "# TYPE gangshare_allocation_info" in text) == (200, True)
    status, text = await secured.get("/inspect", "good")
    assert (status, text) == (
        403,
        f"{TOKENS['good']} may not get /inspect: expected a ClusterRole with this nonResourceURL, as gangshare-viewer "
        "has it",
    )


@pytest.mark.parametrize("path", ["/inspect", "/metrics", "/explain/default/p1"])
async def test_without_a_token_that_is_known_nothing_is_shown_not_even_on_loopback(secured: Secured, path: str) -> None:
    assert (await secured.get(path))[0] == 401
    assert (await secured.get(path, "made-up")) == (401, "the API server does not know this bearer token")
    assert (await secured.get(path, "nobody"))[0] == 403


async def test_probes_are_for_everybody(secured: Secured) -> None:
    assert await secured.get("/healthz") == (200, "ok")
    assert not secured.vouching.asked


async def test_while_the_api_server_answers_nothing_nobody_is_let_in_and_that_is_not_remembered(
    secured: Secured,
) -> None:
    secured.vouching.broken = True
    assert await secured.get("/inspect", "viewer") == (503, "the API server cannot check who may see this: try again")
    secured.vouching.broken = False
    assert (await secured.get("/inspect", "viewer"))[0] == 200


async def test_tokens_beyond_the_pace_are_not_asked_about(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviews, "A_SECOND", 0)
    status, text = await secured.get("/inspect", "made-up")
    assert (status, "try again" in text) == (429, True)
    assert not secured.vouching.asked


@asynccontextmanager
async def reviewing() -> AsyncIterator[tuple[Reviews, Vouching, list[float]]]:
    """Reviews on a clock of its own."""
    server, now = FaultyServer(Api()), [1000.0]
    await server.start()
    async with ApiClient(Credentials(server.url)) as client:
        yield Reviews(client, lambda: now[0]), Vouching(server), now
    await server.stop()


async def test_answers_are_remembered_for_a_while_and_unknown_tokens_for_a_shorter_one() -> None:
    async with reviewing() as (asking, vouching, now):
        for token, seconds in (("viewer", reviews.ALLOWED_S), ("made-up", reviews.UNKNOWN_S)):
            vouching.asked.clear()
            for _ in range(2):
                await asking.user(token)
                now[0] += seconds - 1
                await asking.user(token)
                now[0] += 2
            assert vouching.asked["tokenreviews"] == 2
        ada = await asking.user("viewer")
        assert ada is not None
        assert reviews.ALLOWED_S <= 60
        for path, seconds, may in (("/inspect", reviews.ALLOWED_S, True), ("/metrics", reviews.DENIED_S, False)):
            vouching.asked.clear()
            assert await asking.allowed(ada, path) is may
            now[0] += seconds + 1
            assert await asking.allowed(ada, path) is may
            assert vouching.asked["subjectaccessreviews"] == 2


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviews, "REMEMBERED", 10)
    async with reviewing() as (asking, _, now):
        for number in range(50):
            await asking.user(f"made-up-{number}")
            now[0] += 0.1
        assert len(asking._users) == 10


async def test_reviews_are_paced() -> None:
    async with reviewing() as (asking, _, now):
        with pytest.raises(TooManyReviews):  # noqa: PT012  # which one is refused is told below
            for number in range(reviews.A_SECOND + 1):
                await asking.user(f"made-up-{number}")
        assert number == reviews.A_SECOND
        now[0] += 1
        assert await asking.user("viewer") is not None


async def test_rights_are_paced_apart_from_tokens_and_remembered_within_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reviews, "REMEMBERED_RIGHTS", 10)
    monkeypatch.setattr(reviews, "RIGHTS_A_SECOND", 30)
    async with reviewing() as (asking, vouching, now):
        ada = User("ada", groups=("g",))
        for number in range(30):
            await asking.allowed(ada, f"/explain/default/{number}")
        with pytest.raises(TooManyReviews, match="more than 30 callers were looked up within a second"):
            await asking.allowed(ada, "/inspect")
        assert await asking.user("viewer") is not None
        assert (len(asking._rights), vouching.asked["subjectaccessreviews"]) == (10, 30)
        now[0] += 1
        assert await asking.allowed(ada, "/inspect")


async def test_one_user_does_not_take_the_turns_of_all() -> None:
    async with reviewing() as (asking, _, now):
        greedy, ada = User("greedy", "u1"), User("ada", "u2")
        for number in range(reviews.OF_USER_A_SECOND):
            await asking.allowed(greedy, f"/explain/default/{number}")
        with pytest.raises(TooManyReviews, match="of your rights were asked within a second"):
            await asking.allowed(greedy, "/explain/default/more")
        assert await asking.allowed(ada, "/inspect") is not None
        now[0] += 1
        await asking.allowed(greedy, "/explain/default/more")


def offered(context: ssl.SSLContext) -> bytes | None:
    """The certificate that a client of this server sees."""
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client, server = anybody.wrap_bio(back, there), context.wrap_bio(there, back, server_side=True)
    for side in (client, server, client):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    return client.getpeercert(binary_form=True)


def test_a_certificate_in_files_may_be_replaced_and_one_made_here_is_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write() -> None:
        made = certificate.make(("localhost",), dt.datetime.now(dt.UTC))
        (tmp_path / "crt").write_bytes(made.certificate)
        (tmp_path / "key").write_bytes(made.key)

    write()
    files = tls.ServedCertificate(str(tmp_path / "crt"), str(tmp_path / "key"))
    first = files._served
    write()
    files._look()
    assert files._served != first
    (tmp_path / "crt").write_text("half")
    with pytest.raises(SettingsError, match="are no certificate and its key"):
        files._look()
    stranger = certificate.make(("localhost",), dt.datetime.now(dt.UTC))
    (tmp_path / "crt").write_bytes(stranger.certificate)
    served = offered(files.context)
    with pytest.raises(SettingsError, match="are no certificate and its key"):
        files._look()
    assert offered(files.context) == served
    made = tls.ServedCertificate()
    before = made._served
    made._look()
    assert made._served is before
    monkeypatch.setattr(certificate, "RENEWED", certificate.LASTS)
    made._look()
    assert made._served is not before


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"secure_cert": "/a"}, "--secure-cert is '/a', --secure-key is '': expected all of them or none"),
        ({"verbs_cert": "/a", "verbs_key": "/b"}, "--verbs-client-ca is '': expected all of them or none"),
        ({"listen": Address("", 12345)}, "--listen is :12345: expected an address on loopback, or --verbs-client-ca"),
        ({"listen": Address("10.0.0.1", 1)}, "expected an address on loopback"),
    ],
)
def test_settings_that_would_let_strangers_in_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        Settings(**settings)


async def test_with_a_client_ca_verbs_are_for_the_schedulers_certificate_alone(tmp_path: Path) -> None:
    ours = Authority(tmp_path / "ours")
    server = ours.issue("server", user="gangshare", sans=["IP:127.0.0.1"])
    scheduler = ours.issue("scheduler", user="kube-scheduler")
    stranger = Authority(tmp_path / "others").issue("stranger", user="kube-scheduler")
    files: dict[str, Any] = {"verbs_cert": f"{server.certificate}", "verbs_key": f"{server.key}"}
    async with world.world(Api(), verbs_client_ca=f"{ours.ca.certificate}", **files) as cluster:
        add_node(cluster.api, "node-a")
        await cluster.ready()
        url = cluster.verbs.replace("http://", "https://") + "/scheduler/prioritize"
        body = msgspec.json.encode({"Pod": world.add_pod(cluster.api, "p1"), "NodeNames": ["node-a"]})
        for pair, good in ((None, False), (stranger, False), (scheduler, True)):
            context = ssl.create_default_context(cafile=str(ours.ca.certificate))
            if pair is not None:
                context.load_cert_chain(pair.certificate, pair.key)
            if good:
                async with cluster.session.post(url, data=body, ssl=context) as answer:
                    assert answer.status == 200
            else:
                with pytest.raises((aiohttp.ClientError, OSError)):
                    await cluster.session.post(url, data=body, ssl=context)
        with pytest.raises((aiohttp.ClientError, OSError)):
            await cluster.session.post(url.replace("https://", "http://"), data=body)
