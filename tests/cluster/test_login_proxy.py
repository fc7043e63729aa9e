"""The page behind a real oauth2-proxy, whose provider the API server trusts: everybody sees what they may see."""

from __future__ import annotations

import http.cookiejar
import json
import os
import socket
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import yaml

from protos.contract import names
from tests.cluster import assets, bare, front, host, needed, pki
from tests.cluster.api import Json
from tests.cluster.cluster import Cluster
from tests.cluster.front import in_namespace
from tests.cluster.gangshare import ROOT, a_gpu_pod
from tests.cluster.issuer import CLIENT, Issuer
from tests.cluster.process import wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]  # it builds oauth2-proxy
COMPONENT = ROOT / "manifests/components/page/deployment.yaml"
NODE, TEAMS = "node-a", {"ada": "team-a", "bob": "team-b"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> pki.Authority:
    return pki.Authority(tmp_path_factory.mktemp("login") / "pki")


@pytest.fixture(scope="module")
def issuer(authority: pki.Authority) -> Iterator[Issuer]:
    made = Issuer(authority.issue("issuer", user="issuer", sans=["IP:127.0.0.1"]))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def cluster(
    able_machine: None, issuer: Issuer, authority: pki.Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A cluster whose API server takes the issuer's tokens, with a pod of each team on a GPU."""
    flags = [
        f"--oidc-issuer-url={issuer.url}",
        f"--oidc-ca-file={authority.ca.certificate}",
        f"--oidc-client-id={CLIENT}",
        "--oidc-username-claim=name",
        "--oidc-username-prefix=-",
        "--oidc-signing-algs=ES256",
    ]
    with front.up(tmp_path_factory.mktemp("front"), flags) as running:
        running.api.post(bare.NODES, bare.a_node(NODE, 2))
        sharing = front.share(running)
        for user, namespace in TEAMS.items():
            running.kubectl("create", "namespace", namespace)
            running.create_pod(in_namespace(namespace, a_gpu_pod("small", mem=2)))
            front.User(running, user, namespace)
        front.wait_available(running)
        for namespace in TEAMS.values():
            wait_for(partial(is_bound, running, namespace), 60, "a bound pod")
        yield running
        sharing.stop()


def is_bound(cluster: Cluster, namespace: str) -> bool:
    return bool(cluster.pod("small", namespace)["spec"].get("nodeName") == NODE)


def told_arguments() -> list[str]:
    """The arguments of the proxy in the component."""
    deployment = next(one for one in yaml.safe_load_all(COMPONENT.read_text()) if one["kind"] == "Deployment")
    found: list[str] = deployment["spec"]["template"]["spec"]["containers"][1]["args"]
    return found


@pytest.fixture(scope="module")
def page(cluster: Cluster, issuer: Issuer, authority: pki.Authority) -> Iterator[str]:
    """The URL of the proxy, which runs with the arguments of the component but for the addresses."""
    with needed.or_skip():
        program = assets.login_proxy()
    served, proxied = f"127.0.0.1:{host.free_port()}", f"127.0.0.1:{host.free_port()}"
    nobody = pki.write_kubeconfig(cluster.dir / "nobody", server=cluster.plane.server, ca=cluster.plane.ca, user={})
    argv = [sys.executable, "-m", "extender", "ui", f"--behind-proxy={served}", f"--kubeconfig={nobody}"]
    ours = cluster.process("page", argv, cwd=ROOT).start()
    told = " ".join(told_arguments())
    places = {
        "0.0.0.0:4180": proxied,
        "127.0.0.1:8080": served,
        "https://login.example.com": issuer.url,
        "refresh=5m": "refresh=2s",
    }
    for here, there in places.items():
        assert told.count(here) == 1
        told = told.replace(here, there)
    more = [f"--provider-ca-file={authority.ca.certificate}", f"--redirect-url=http://{proxied}/oauth2/callback"]
    secret = {"CLIENT_ID": CLIENT, "CLIENT_SECRET": "unused", "COOKIE_SECRET": "0" * 32, "COOKIE_SECURE": "false"}
    env = {**os.environ, **{f"OAUTH2_PROXY_{name}": value for name, value in secret.items()}}
    proxy = cluster.process("oauth2-proxy", [str(program), *told.split(), *more], env=env).start()
    url = f"http://{proxied}"
    ours.wait_until(partial(listens, served), 30, "the page")
    proxy.wait_until(lambda: urllib.request.urlopen(f"{url}/ping").status == 200, 30, "a proxy that answers")
    yield url
    proxy.stop()
    ours.stop()


def listens(address: str) -> bool:
    name, _, port = address.partition(":")
    with socket.create_connection((name, int(port)), timeout=5):
        return True


class Browser:
    """Follows redirections with its cookies."""

    def __init__(self, url: str, authority: pki.Authority) -> None:
        self._url = url
        tls = ssl.create_default_context(cafile=str(authority.ca.certificate))
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self._opener = urllib.request.build_opener(cookies, urllib.request.HTTPSHandler(context=tls))

    def open(self, path: str, **headers: str) -> Any:
        return self._opener.open(urllib.request.Request(f"{self._url}/{path}", headers=headers), timeout=30)

    def json(self, path: str, **headers: str) -> Json:
        with self.open(path, **headers) as answer:
            found: Json = json.load(answer)
        return found


def holders(snapshot: Json) -> list[str]:
    """The pods that are named on GPUs."""
    return [each["pod"] for gpu in snapshot["nodes"][0]["gpus"] for each in gpu["holders"] if each.get("pod")]


@pytest.mark.parametrize("user", TEAMS)
def test_whoever_logs_in_sees_what_they_may_see(page: str, issuer: Issuer, authority: pki.Authority, user: str) -> None:
    issuer.user, browser = user, Browser(page, authority)
    with browser.open("") as answer:
        assert b"<title>Gangshare</title>" in answer.read()

    wait_for(lambda: holders(browser.json("api/snapshot")) == [f"{TEAMS[user]}/small"], 30, "what the user may see")
    assert browser.json(f"api/explain/{TEAMS[user]}/small")["pod"]["node"] == NODE
    (other,) = {*TEAMS.values()} - {TEAMS[user]}
    with pytest.raises(urllib.error.HTTPError, match="403"):
        browser.json(f"api/explain/{other}/small")


def test_a_token_that_a_browser_brings_is_not_passed(
    cluster: Cluster, page: str, issuer: Issuer, authority: pki.Authority
) -> None:
    cluster.kubectl("create", "serviceaccount", "other", f"--namespace={names.NAMESPACE}")
    cluster.kubectl(
        "create",
        "clusterrolebinding",
        "other",
        "--clusterrole=cluster-admin",
        f"--serviceaccount={names.NAMESPACE}:other",
    )
    admin = f"Bearer {cluster.plane.token(names.NAMESPACE, 'other')}"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(urllib.request.Request(f"{page}/api/snapshot", headers={"Authorization": admin}))
    issuer.user, browser = "ada", Browser(page, authority)
    browser.open("").close()
    assert holders(browser.json("api/snapshot", Authorization=admin)) == ["team-a/small"]


def test_changes_reach_the_browser_as_they_come(
    cluster: Cluster, page: str, issuer: Issuer, authority: pki.Authority
) -> None:
    issuer.user, browser = "ada", Browser(page, authority)
    browser.open("").close()
    cursor = browser.json("api/snapshot")["cursor"]
    with browser.open(f"api/stream?cursor={cursor}") as stream:
        assert stream.headers["Content-Type"] == "text/event-stream"
        cluster.create_pod(in_namespace("team-a", a_gpu_pod("later", mem=3)))
        lines = (line.decode() for line in stream)
        assert any("team-a/later" in line for line in lines if line.startswith("data:"))


def test_once_a_token_has_ended_the_tab_is_told_and_a_reload_logs_in(
    page: str, issuer: Issuer, authority: pki.Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer, "life_s", 3)
    issuer.user, browser = "ada", Browser(page, authority)
    browser.open("").close()
    assert browser.json("api/snapshot")["nodes"]

    def told() -> str:
        try:
            browser.open("api/snapshot").close()
        except urllib.error.HTTPError as error:
            return f"{error.status} {error.headers['Content-Type']} {error.read().decode()}"
        return ""

    said = wait_for(told, 60, "a tab that is told")  # the API server remembers tokens for ten seconds
    assert said.startswith("401 ")
    browser.open("").close()
    assert browser.json("api/snapshot")["nodes"]
