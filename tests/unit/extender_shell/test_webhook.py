"""The webhook as the API server meets it: over TLS, trusted by what the extender wrote down."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from extender.cluster import certificate, serving_trust
from extender.cluster.certificate import Certificate
from extender.cluster.leadership import NotLeading, Permission
from extender.server.webhook import Webhook
from extender.sim.apiserver import patch
from extender.sim.apiserver.api import Api
from extender.sim.apiserver.managed import Writer
from extender.sim.apiserver.resources import NAMESPACES, SECRETS, WEBHOOKS
from protos.contract import names
from protos.kube.client import ApiClient
from protos.kube.credentials import Credentials
from tests import gating
from tests.gating import CASES, Json, a_new_pod
from tests.unit.extender_shell.world import FaultyServer, until

ADMIN = Writer("admin")
HOSTS = serving_trust.hosts(names.WEBHOOK)
NOW = dt.datetime.now(dt.UTC)


class Follower(Permission):
    """May not write."""

    def require(self) -> None:
        raise NotLeading("another leads")


@asynccontextmanager
async def api_server() -> AsyncIterator[FaultyServer]:
    """With the objects of the manifests."""
    server = FaultyServer(Api())
    server.api.create(NAMESPACES, "", {"metadata": {"name": names.NAMESPACE}}, ADMIN)
    server.api.create(SECRETS, names.NAMESPACE, {"metadata": {"name": names.WEBHOOK}}, ADMIN)
    entry = {"name": "plan.gangshare.io", "clientConfig": {"service": {"name": names.WEBHOOK}}, "timeoutSeconds": 2}
    server.api.create(WEBHOOKS, "", {"metadata": {"name": names.WEBHOOK}, "webhooks": [entry]}, ADMIN)
    await server.start()
    yield server
    await server.stop()


@asynccontextmanager
async def serving(server: FaultyServer, permission: Permission | None = None) -> AsyncIterator[int]:
    """A webhook at work; its port."""
    opened = socket.create_server(("127.0.0.1", 0))
    async with ApiClient(Credentials(server.url), permit=(permission or Permission()).require) as client:
        running = asyncio.create_task(Webhook(client, opened, gating.SCHEDULERS).run())
        yield opened.getsockname()[1]
        running.cancel()
        await asyncio.wait([running])


@pytest.fixture
async def server() -> AsyncIterator[FaultyServer]:
    async with api_server() as made:
        yield made


def trusted(server: FaultyServer) -> bytes:
    """What the API server trusts."""
    (webhook,) = server.api.get(WEBHOOKS, ("", names.WEBHOOK)).obj["webhooks"]
    assert webhook["timeoutSeconds"] == 2, "the rest is left as it was"
    return base64.b64decode(webhook["clientConfig"].get("caBundle", ""))


def kept(server: FaultyServer) -> Certificate:
    data = server.api.get(SECRETS, (names.NAMESPACE, names.WEBHOOK)).obj.get("data", {})
    return Certificate(*(base64.b64decode(data.get(key, "")) for key in ("tls.crt", "tls.key")))


def keep(server: FaultyServer, shown: Certificate) -> None:
    data = {"tls.crt": shown.certificate, "tls.key": shown.key}
    body = msgspec.json.decode(msgspec.json.encode({"data": data}))
    server.api.patch(SECRETS, (names.NAMESPACE, names.WEBHOOK), body, patch.MERGE, ADMIN)


async def ask(port: int, ca: bytes, body: Any) -> tuple[int, Json]:
    """POST as the API server does, by the Service's name."""
    tls = ssl.create_default_context(cadata=ca.decode())
    url = f"https://127.0.0.1:{port}{names.WEBHOOK_PATH}"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=body, ssl=tls, server_hostname=HOSTS[0]) as answer,
    ):
        return answer.status, await answer.json() if answer.status == 200 else {}


def review(pod: Json) -> Json:
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u-1", "object": pod}}


def patched(pod: Json, answer: Json) -> Json:
    response = answer["response"]
    assert (response["uid"], response["allowed"]) == ("u-1", True)
    if "patch" not in response:
        return pod
    assert response["patchType"] == "JSONPatch"
    (added,) = msgspec.json.decode(base64.b64decode(response["patch"]))
    path, gates = "/spec/schedulingGates", pod["spec"].get("schedulingGates")
    if gates:
        assert (added["op"], added["path"]) == ("add", f"{path}/-")
        return {**pod, "spec": {**pod["spec"], "schedulingGates": [*gates, added["value"]]}}
    assert (added["op"], added["path"]) == ("add", path)
    return {**pod, "spec": {**pod["spec"], "schedulingGates": added["value"]}}


async def test_it_gates_the_pods_of_groups_and_no_others(server: FaultyServer) -> None:
    async with serving(server) as port:
        ca = await until(lambda: trusted(server), "trust")
        for case, (pod, _) in CASES.items():
            status, answer = await ask(port, ca, review(pod))
            assert status == 200
            assert gating.as_expected(case, patched(pod, answer)), case
        _, answer = await ask(port, ca, review(gating.IN_SPEC))
        assert gating.gates(patched(gating.IN_SPEC, answer)) == [names.PLAN_GATE]


async def test_what_it_cannot_read_is_an_error_for_which_the_api_server_lets_the_pod_pass(
    server: FaultyServer,
) -> None:
    async with serving(server) as port:
        ca = await until(lambda: trusted(server), "trust")
        assert (await ask(port, ca, {"kind": "AdmissionReview"}))[0] == 400
        assert (await ask(port, ca, review({"metadata": {}, "spec": {"schedulerName": 7}})))[0] == 400
        assert (await ask(port, ca, review(a_new_pod())))[0] == 200


async def test_all_replicas_show_the_certificate_of_the_one_that_leads(
    server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_trust, "SOON_S", 0.05)
    async with serving(server, Follower()) as follower:
        assert (trusted(server), kept(server).certificate) == (b"", b"")
        made = certificate.make(HOSTS, NOW)
        keep(server, made)
        async with serving(server) as leader:
            ca = await until(lambda: trusted(server), "trust")
            assert (ca, kept(server)) == (made.certificate, made)
            assert (await ask(leader, ca, review(a_new_pod())))[0] == 200
            assert (await ask(follower, ca, review(a_new_pod())))[0] == 200


@pytest.mark.parametrize(
    "former",
    [
        Certificate(b"", b""),
        Certificate(b"nonsense", b"nonsense"),
        certificate.make(HOSTS, NOW - certificate.LASTS),
        certificate.make(HOSTS, NOW - certificate.LASTS + certificate.RENEWED - dt.timedelta(hours=1)),
        certificate.make(HOSTS, NOW + dt.timedelta(days=1)),
        certificate.make(("another.example.com",), NOW),
        Certificate(certificate.make(HOSTS, NOW).certificate, certificate.make(HOSTS, NOW).key),
    ],
    ids=["none", "nonsense", "ended", "ends soon", "not yet good", "for others", "with another's key"],
)
async def test_a_certificate_that_is_not_good_is_replaced(server: FaultyServer, former: Certificate) -> None:
    keep(server, former)
    async with serving(server) as port:
        ca = await until(lambda: trusted(server), "trust")
        assert kept(server).certificate == ca != former.certificate
        assert (await ask(port, ca, review(a_new_pod())))[0] == 200


async def test_a_key_that_tls_refuses_is_replaced(server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(ec, "SECP256R1", ec.SECP192R1)
        weak = certificate.make(HOSTS, NOW)
    keep(server, weak)
    async with serving(server) as port:
        ca = await until(lambda: trusted(server), "trust")
        assert kept(server).certificate == ca != weak.certificate
        assert (await ask(port, ca, review(a_new_pod())))[0] == 200


async def test_pem_without_a_final_newline_is_used(server: FaultyServer) -> None:
    made = certificate.make(HOSTS, NOW)
    restored = Certificate(made.certificate.rstrip(), made.key.rstrip())
    keep(server, restored)
    async with serving(server) as port:
        ca = await until(lambda: trusted(server), "trust")
        assert (ca, kept(server)) == (restored.certificate, restored)
        assert (await ask(port, ca, review(a_new_pod())))[0] == 200


async def test_a_certificate_replaced_by_hand_is_shown_and_trusted_soon(
    server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_trust, "LOOK_S", 0.05)
    async with serving(server) as port:
        first = await until(lambda: trusted(server), "trust")
        other = certificate.make(HOSTS, NOW)
        keep(server, other)
        await until(lambda: trusted(server) == other.certificate != first, "trust in the other")
        assert (await ask(port, other.certificate, review(a_new_pod())))[0] == 200
        with pytest.raises(aiohttp.ClientError):
            await ask(port, first, review(a_new_pod()))
