"""Credentials: a pod's service account, kubeconfig files, and the errors for wrong ones."""

import os
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from extender.cluster import serving_trust
from protos.contract import names
from protos.kube import credentials, errors, tls
from protos.kube.client import ApiClient
from protos.kube.credentials import FileToken
from protos.kube.errors import CredentialsError
from tests.cluster.pki import Authority


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA, a server certificate for 127.0.0.1 and kube.test, and a client certificate."""
    folder = tmp_path_factory.mktemp("pki")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=ca")
    for name in ("server", "client"):
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (folder / "ext").write_text("subjectAltName=IP:127.0.0.1,DNS:kube.test\nextendedKeyUsage=serverAuth,clientAuth")
        signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "ext")
        openssl("x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.crt")
    return folder


def config(folder: Path, *, user: dict[str, Any], server: str = "https://127.0.0.1:1", **cluster: Any) -> str:
    """A kubeconfig file in `folder`."""
    file = folder / "config"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
            {"name": "two", "context": {"cluster": "c"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    file.write_text(yaml.safe_dump(content))
    return str(file)


async def test_a_kubeconfig_with_a_client_certificate_speaks_to_a_server_of_its_ca(pki: Path) -> None:
    seen: list[str] = []

    async def play(request: web.Request) -> web.Response:
        assert request.transport is not None
        seen.append(request.transport.get_extra_info("peercert")["subject"][0][0][1])
        return web.Response(body=b"{}")

    app = web.Application()
    app.router.add_get("/x", play)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(pki / "ca.crt"))
    context.load_cert_chain(pki / "server.crt", pki / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    server = TestServer(app, scheme="https")
    await server.start_server(ssl=context)
    user = {"client-certificate": "client.crt", "client-key": "client.key"}
    url = f"https://127.0.0.1:{server.port}"
    trusted = await credentials.load(config(pki, user=user, server=url, **{"certificate-authority": "ca.crt"}))
    named = await credentials.load(
        config(pki, user=user, server=url, **{"certificate-authority": "ca.crt", "tls-server-name": "kube.test"})
    )
    careless = await credentials.load(config(pki, user=user, server=url, **{"insecure-skip-tls-verify": True}))
    for accepted in (trusted, named, careless):
        async with ApiClient(accepted) as api:
            assert await api.get("/x") == b"{}"
    strange = await credentials.load(config(pki, user=user, server=url))
    async with ApiClient(strange) as api:
        with pytest.raises(errors.Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await api.get("/x")
    await server.close()
    assert seen == ["client"] * 3


@pytest.fixture
def looked_at_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "LOOK_S", 0.0)
    monkeypatch.setattr(credentials, "LOOK_S", 0.0)


@pytest.mark.usefixtures("looked_at_always")
async def test_a_ca_and_a_client_certificate_may_be_replaced_while_the_client_lives(tmp_path: Path) -> None:
    """As a cluster rotates its CA: the server changes its certificate, then the file of the CA follows."""
    authorities = [Authority(tmp_path / name) for name in ("old", "new")]
    files = {name: tmp_path / name for name in ("ca", "crt", "key")}
    seen: list[tuple[int, str]] = []

    def install(authority: Authority, user: str) -> None:
        pair = authority.issue(user, user=user, sans=[])
        for name, source in (("ca", authority.ca.certificate), ("crt", pair.certificate), ("key", pair.key)):
            (tmp_path / "next").write_bytes(Path(source).read_bytes())
            (tmp_path / "next").replace(files[name])

    async def play(request: web.Request) -> web.Response:
        assert request.transport is not None
        seen.append((which, request.transport.get_extra_info("peercert")["subject"][-1][0][1]))
        return web.Response(body=b"{}")

    install(authorities[0], "before")
    port = 0
    for which, authority in enumerate(authorities):
        pair = authority.issue("server", user="server", sans=["IP:127.0.0.1"])
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.ca.certificate))
        context.load_cert_chain(pair.certificate, pair.key)
        context.verify_mode = ssl.CERT_REQUIRED
        app = web.Application()
        app.router.add_get("/x", play)
        server = TestServer(app, scheme="https", port=port)
        await server.start_server(ssl=context)
        if not which:
            port = server.port or 0
            trust = tls.Trust(str(files["ca"]), str(files["crt"]), str(files["key"]))
            api = await ApiClient(credentials.Credentials(f"https://127.0.0.1:{port}", tls=trust)).__aenter__()
        else:
            with pytest.raises(errors.Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
                await api.get("/x")
            install(authority, "after")
        assert await api.get("/x") == b"{}"
        await server.close()
    await api.__aexit__(None, None, None)
    assert seen == [(0, "before"), (1, "after")]


@pytest.mark.usefixtures("looked_at_always")
def test_while_new_certificates_cannot_be_read_the_former_ones_count(pki: Path, tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    file.write_bytes((pki / "ca.crt").read_bytes())
    trust = tls.Trust(str(file))
    before = trust.context()
    assert trust.context() is before
    file.write_text("half a certif")
    assert trust.context() is before
    file.unlink()
    assert trust.context() is before
    file.write_bytes((pki / "ca.crt").read_bytes() + b"\n")
    assert trust.context() is not before


def same(file: str | None, other: Path) -> bool:
    return file is not None and Path(file).read_bytes() == other.read_bytes()


@pytest.mark.usefixtures("looked_at_always")
async def test_the_certificate_of_an_exec_plugin_is_replaced_with_its_token(pki: Path, tmp_path: Path) -> None:
    script = tmp_path / "plugin"
    script.write_text(
        "#!/usr/bin/env python3\nimport json, pathlib\n"
        f"folder = pathlib.Path({str(pki)!r})\nfirst = pathlib.Path({str(tmp_path / 'asked')!r})\n"
        "name = 'client' if not first.exists() else 'server'\nfirst.touch()\n"
        "read = lambda kind: (folder / f'{name}.{kind}').read_text()\n"
        "status = {'clientCertificateData': read('crt'), 'clientKeyData': read('key'),"
        " 'expirationTimestamp': '2100-01-01T00:00:00Z'}\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',"
        " 'status': status}))\n"
    )
    script.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(script)}}
    found = await credentials.load(config(tmp_path, user=user))
    assert found.tls is not None
    before = found.tls.context()
    assert same(found.tls.certificate, pki / "client.crt")
    await found.tokens.renew()
    assert same(found.tls.certificate, pki / "server.crt")
    assert found.tls.context() is not before


@pytest.mark.usefixtures("looked_at_always")
async def test_a_token_file_of_a_kubeconfig_is_read_again_when_it_changes(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one\n")
    found = await credentials.load(config(tmp_path, user={"tokenFile": "token"}))
    assert await found.tokens.authorization() == "Bearer one"
    (tmp_path / "new").write_text("two")
    (tmp_path / "new").replace(tmp_path / "token")
    assert await found.tokens.authorization() == "Bearer two"


async def test_a_fixed_token_is_sent(tmp_path: Path) -> None:
    found = await credentials.load(config(tmp_path, user={"token": "abc"}))
    assert await found.tokens.authorization() == "Bearer abc"


async def test_a_proxy_on_this_machine_needs_no_user(tmp_path: Path) -> None:
    found = await credentials.load(config(tmp_path, user={}, server="http://127.0.0.1:8001/"), "two")
    assert (found.server, found.tls, await found.tokens.authorization()) == ("http://127.0.0.1:8001", None, "")


async def test_an_exec_plugin_gives_a_token_and_is_asked_again_when_it_was_refused(tmp_path: Path) -> None:
    count = tmp_path / "count"
    script = tmp_path / "plugin"
    script.write_text(
        f"#!/bin/sh\necho x >> {count}\nN=$(wc -l < {count} | tr -d ' ')\n"
        'echo \'{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",'
        '"status":{"token":"t\'$N\'","expirationTimestamp":"2100-01-01T00:00:00Z"}}\'\n'
    )
    script.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(script)}}
    tokens = (await credentials.load(config(tmp_path, user=user))).tokens
    assert [await tokens.authorization() for _ in range(2)] == ["Bearer t1"] * 2
    assert await tokens.renew() == "Bearer t2"
    assert await tokens.authorization() == "Bearer t2"


async def test_an_exec_plugin_that_fails_is_named(tmp_path: Path) -> None:
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/no/such/plugin"}}
    with pytest.raises(CredentialsError, match=r"config: the command '/no/such/plugin' gave no credentials"):
        await credentials.load(config(tmp_path, user=user))


async def test_a_missing_kubeconfig_is_named(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match=r"nowhere: no such file, expected a kubeconfig"):
        await credentials.load(str(tmp_path / "nowhere"))


@pytest.mark.parametrize("text", ["", "[]", "a: [", "apiVersion: v1\nkind: Config\n"])
async def test_a_file_that_is_no_kubeconfig_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(CredentialsError, match=r"config: expected a kubeconfig with a current context"):
        await credentials.load(str(tmp_path / "config"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("clusters: " + "[" * 1100 + "]" * 1100, "in a kubeconfig: 1100, expected at most 64"),
        ("# " + "x" * (1 << 20), "a kubeconfig: 1048578 bytes, expected at most 1048576 bytes"),
    ],
)
async def test_a_file_that_would_take_long_to_read_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(CredentialsError, match=f"config: .*{says}"):
        await credentials.load(str(tmp_path / "config"))


async def test_a_context_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match=r"expected a kubeconfig with the context 'three'"):
        await credentials.load(config(tmp_path, user={}), "three")


async def test_a_certificate_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("hello")
    with pytest.raises(CredentialsError, match=r"ca.crt: expected the cluster's CA certificate in PEM"):
        await credentials.load(config(tmp_path, user={}, **{"certificate-authority": "ca.crt"}))


@pytest.fixture
def account(pki: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "ca.crt").write_bytes((pki / "ca.crt").read_bytes())
    (tmp_path / "token").write_text("one")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(credentials, "SERVICE_ACCOUNT", tmp_path)
    return tmp_path


async def test_in_a_pod_the_service_account_is_taken(account: Path) -> None:
    found = credentials.from_service_account()
    assert found.server == "https://[fd00::1]:443"
    assert await found.tokens.authorization() == "Bearer one"
    stat = (account / "token").stat()
    (account / "token").write_text("two")
    os.utime(account / "token", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert await found.tokens.renew() == "Bearer two"


async def test_a_service_account_without_a_token_is_named(account: Path) -> None:
    (account / "token").write_text("  \n")
    with pytest.raises(CredentialsError, match=r"token is empty: expected a bearer token"):
        credentials.from_service_account()
    (account / "token").unlink()
    with pytest.raises(CredentialsError, match=r"token: expected a bearer token"):
        credentials.from_service_account()


async def test_a_token_that_went_away_is_told_as_unauthorized(tmp_path: Path) -> None:
    where = credentials.Credentials("http://127.0.0.1:1", FileToken(tmp_path / "token"))
    async with ApiClient(where) as api:
        with pytest.raises(errors.Unauthorized, match="expected a bearer token"):
            await api.get("/x")


async def test_without_a_kubeconfig_the_place_decides(account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", config(account, user={"token": "abc"}, server="https://named:1"))
    assert (await credentials.load()).server == "https://[fd00::1]:443"
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    assert (await credentials.load()).server == "https://named:1"
    with pytest.raises(CredentialsError, match="KUBERNETES_SERVICE_HOST is ''"):
        credentials.from_service_account()


def test_a_pod_knows_its_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "SERVICE_ACCOUNT", tmp_path)
    assert credentials.own_namespace() == names.NAMESPACE
    (tmp_path / "namespace").write_text("gpus")
    assert credentials.own_namespace() == "gpus"
    assert serving_trust.hosts("gangshare-webhook")[0] == "gangshare-webhook.gpus.svc"
