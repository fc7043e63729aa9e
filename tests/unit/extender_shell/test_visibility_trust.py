"""Whom the aggregated API believes, and what a request is about."""

from __future__ import annotations

from http import HTTPStatus

import pytest

from extender.cluster import front_proxy
from extender.cluster.front_proxy import FrontProxy
from extender.cluster.reviews import Action, User
from extender.server.desk import Refusal
from extender.server.visibility import request, trust
from extender.server.visibility.documents import BASE
from protos.contract import names

PROXY = FrontProxy("CA", ("front-proxy-client", "another"))
TABLE = (b"accept", b"application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
PLAIN = (b"accept", b"application/json")
GPUS = request.target(f"{BASE}/gpus")


def a_certificate(name: str) -> dict[str, object]:
    """As `ssl` tells it."""
    return {"subject": ((("organizationName", "system:masters"),), (("commonName", name),))}


def test_a_user_is_read_from_the_front_proxys_headers() -> None:
    headers = [
        (b"x-remote-user", "jürgen".encode()),
        (b"x-remote-uid", b"7"),
        (b"x-remote-group", b"team-a"),
        (b"x-remote-group", b"system:authenticated"),
        (b"x-remote-extra-example.org%2fscopes", b"a"),
        (b"x-remote-extra-example.org%2fscopes", b"b"),
        (b"x-forwarded-for", b"10.0.0.1"),
    ]
    extra: dict[str, tuple[str, ...]] = {"example.org/scopes": ("a", "b")}
    expected = User("jürgen", "7", ("team-a", "system:authenticated"), extra)
    assert trust.caller(PROXY, a_certificate("another"), headers) == expected


@pytest.mark.parametrize(
    ("certificate", "headers", "sentence"),
    [
        (None, [(b"x-remote-user", b"ada")], "the client certificate is of nobody"),
        ({}, [(b"x-remote-user", b"ada")], "the client certificate is of nobody"),
        (
            a_certificate("kubelet"),
            [(b"x-remote-user", b"ada")],
            "is of kubelet: expected the API server's front proxy",
        ),
        (a_certificate("another"), [], "X-Remote-User is missing"),
        (a_certificate("another"), [(b"x-remote-user", b"")], "X-Remote-User is missing"),
        (a_certificate("another"), [(b"x-remote-group", b"system:masters")], "X-Remote-User is missing"),
        (a_certificate("another"), [(b"x-remote-user", b"\xff")], "are no UTF-8"),
        (a_certificate("another"), [(b"x-remote-user", b"a"), (b"x-remote-extra-\xff", b"")], "are no UTF-8"),
        (a_certificate("another"), [(b"authorization", b"Bearer secret")], "X-Remote-User is missing"),
    ],
)
def test_nobody_else_is_believed(
    certificate: dict[str, object] | None, headers: list[tuple[bytes, bytes]], sentence: str
) -> None:
    with pytest.raises(Refusal) as refused:
        trust.caller(PROXY, certificate, headers)
    assert refused.value.status == HTTPStatus.UNAUTHORIZED
    assert sentence in refused.value.sentence


def test_of_two_names_of_a_user_the_first_counts() -> None:
    found = trust.user([(b"x-remote-user", b"ada"), (b"x-remote-user", b"admin")])
    assert found.username == "ada"


def test_without_allowed_names_every_certificate_of_the_ca_is_the_front_proxys() -> None:
    assert FrontProxy("CA").is_named("anything")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"requestheader-client-ca-file": "CA", "requestheader-allowed-names": '["a"]'}, FrontProxy("CA", ("a",))),
        ({"requestheader-client-ca-file": "CA"}, FrontProxy("CA")),
        ({"requestheader-client-ca-file": "CA", "requestheader-allowed-names": "a"}, None),
        ({"requestheader-allowed-names": '["a"]'}, None),
        ({}, None),
    ],
)
def test_the_front_proxy_is_read_from_the_config_map(data: dict[str, str], expected: FrontProxy | None) -> None:
    assert front_proxy.read(data) == expected


def action(verb: str, plural: str, namespace: str = "", name: str = "") -> Action:
    return Action(verb, names.VISIBILITY_GROUP, names.VISIBILITY_VERSION, plural, namespace, name)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/gpus", action("list", "gpus")),
        ("/gpus/n-0", action("get", "gpus", name="n-0")),
        ("/gpupods", action("list", "gpupods")),
        ("/namespaces/a/gpupods", action("list", "gpupods", "a")),
        ("/namespaces/a/gangs/g", action("get", "gangs", "a", "g")),
    ],
)
def test_a_path_names_what_is_asked_for(path: str, expected: Action) -> None:
    assert request.target(BASE + path).action == expected


@pytest.mark.parametrize(
    "path",
    [
        f"{BASE}/pods",
        f"{BASE}/gpupods/p",
        f"{BASE}/namespaces/a/gpus",
        f"{BASE}/namespaces/a/gpupods/p/log",
        f"{BASE}/gpus/n-0/status",
        f"{BASE}/namespaces/a",
        f"{BASE}/",
        "/api/v1/pods",
        "/",
        "",
    ],
)
def test_all_else_is_not_found(path: str) -> None:
    with pytest.raises(Refusal) as refused:
        request.target(path)
    assert refused.value.status == HTTPStatus.NOT_FOUND


def test_a_client_that_asks_for_a_table_gets_one() -> None:
    def form(query: str, accept: tuple[bytes, bytes] = TABLE) -> str:
        return request.wanted(GPUS, "GET", query, [accept]).form

    assert form("limit=500") == "table"
    assert form("includeObject=Object") == "table with objects"
    assert form("watch=false", PLAIN) == "objects"
    assert form("", (b"accept", b"application/json;as=Table;v=v1beta1;g=meta.k8s.io")) == "objects"


@pytest.mark.parametrize(
    ("method", "query", "status"),
    [
        ("GET", "watch=1", 405),
        ("GET", "watch=true&limit=1", 405),
        ("DELETE", "", 405),
        ("POST", "", 405),
        ("GET", "labelSelector=a%3Db", 400),
        ("GET", "fieldSelector=metadata.name%3Da", 400),
        ("GET", "a=b&" * (request.MOST_QUERY + 1), 400),
    ],
)
def test_all_but_get_and_list_of_everything_is_refused(method: str, query: str, status: int) -> None:
    with pytest.raises(Refusal) as refused:
        request.wanted(GPUS, method, query, [TABLE])
    assert refused.value.status == status


NODES, PODS = request.target(f"{BASE}/gpunodes"), request.target(f"{BASE}/gpupods")


def test_pending_pods_and_nodes_that_have_changed_can_be_listed_alone() -> None:
    assert request.wanted(PODS, "GET", "fieldSelector=status.state%3Dwaiting", [TABLE]).waiting
    assert not request.wanted(PODS, "GET", "fieldSelector=", [TABLE]).waiting
    assert request.wanted(NODES, "GET", "changedSince=", [PLAIN]).since == ("",)
    assert request.wanted(NODES, "GET", "changedSince=a.b.1%2Cc.d.2", [PLAIN]).since == ("a.b.1", "c.d.2")
    assert request.wanted(NODES, "GET", "", [PLAIN]).since is None


@pytest.mark.parametrize(
    ("target", "query", "sentence"),
    [
        (GPUS, "fieldSelector=status.state%3Dwaiting", "fieldSelector is status.state=waiting, which .* expected none"),
        (PODS, "fieldSelector=spec.x%3D%1b", "fieldSelector is spec.x=.*expected status.state=waiting"),
        (PODS._replace(name="p"), "fieldSelector=status.state%3Dwaiting", "expected none"),
        (PODS, "changedSince=", "expected a list of gpunodes as JSON"),
        (NODES._replace(name="n"), "changedSince=", "expected a list of gpunodes as JSON"),
        (NODES, "changedSince=" + "a," * 4, "at most 4 tokens of 64 characters"),
        (NODES, "changedSince=" + "a" * 65, "at most 4 tokens of 64 characters"),
    ],
)
def test_nothing_else_can(target: request.Target, query: str, sentence: str) -> None:
    with pytest.raises(Refusal, match=sentence) as refused:
        request.wanted(target, "GET", query, [PLAIN])
    assert refused.value.status == HTTPStatus.BAD_REQUEST
    assert "\x1b" not in refused.value.sentence
