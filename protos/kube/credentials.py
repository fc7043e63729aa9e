"""The address of the API server and our credentials: a pod's service account, or a kubeconfig file.

The official client package reads kubeconfigs (merging, contexts, OIDC, exec plugins). It is imported only then, because
it takes some 20 MiB.
"""

import asyncio
import importlib
import math
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

from protos import files
from protos.contract import names
from protos.contract.bounds import KUBECONFIG
from protos.kube import proxies
from protos.kube.errors import CredentialsError
from protos.kube.tls import LOOK_S, Trust

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
LOAD_S = 30.0
"""Timeout of a command or a server that gives us credentials."""
HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"


class TokenSource(Protocol):
    """The source of the Authorization header; called for every request, so it must be fast in the usual case."""

    async def authorization(self) -> str:
        """The header's value, "" for none; raises CredentialsError."""
        ...

    async def renew(self) -> str:
        """The header's value after the server has refused the former one."""
        ...


@dataclass(frozen=True)
class FixedToken:
    """A constant header; empty for a client certificate."""

    header: str = ""

    async def authorization(self) -> str:
        return self.header

    renew = authorization


@dataclass
class FileToken:
    """A bearer token in a file; it is read again within LOOK_S after the file was replaced."""

    file: Path
    _looked: float = field(default=-math.inf, init=False)
    _seen: files.Stamp | None = field(default=None, init=False)
    _header: str = field(default="", init=False)

    async def authorization(self) -> str:
        return self._header if time.monotonic() - self._looked < LOOK_S else self.read()

    async def renew(self) -> str:
        self._seen = None
        return self.read()

    def read(self) -> str:
        """The header by the file as it is now; raises CredentialsError."""
        try:
            present = files.stamp(self.file)
            if present is None or present != self._seen:
                token = self.file.read_text().strip()
                if not token:
                    raise CredentialsError(f"{self.file} is empty: expected a bearer token")
                self._header, self._seen = f"Bearer {token}", present
            self._looked = time.monotonic()
        except (OSError, UnicodeError) as error:
            raise CredentialsError(f"{self.file}: expected a bearer token ({error})") from error
        return self._header


@dataclass
class LoaderToken:
    """The header of a kubeconfig user whose credentials may expire (exec plugin, OIDC)."""

    file: str
    loader: Any
    """The official package's KubeConfigLoader, loaded."""
    header: str
    """The last loaded header."""
    trust: Trust | None = None
    """TLS; its client certificate may come from the plugin."""

    async def authorization(self) -> str:
        if hasattr(self.loader, "exec_plugin_expiry") or self.loader.provider:
            await self._load()
        return self.header

    async def renew(self) -> str:
        if hasattr(self.loader, "exec_plugin_expiry"):
            del self.loader.exec_plugin_expiry
        await self._load()
        return self.header

    async def _load(self) -> None:
        found = await _loaded(self.file, self.loader)
        self.header = found.api_key.get("BearerToken", "")
        if self.trust is not None:
            self.trust.certificate, self.trust.key = found.cert_file, found.key_file


@dataclass(frozen=True)
class Credentials:
    """The address of an API server, and our credentials."""

    server: str
    """URL without a trailing slash."""
    tokens: TokenSource = FixedToken()
    tls: Trust | None = None
    """CA and client certificates; None for plain HTTP."""
    server_name: str | None = None
    """The name in the server's certificate, if it is not the URL's."""
    proxy: str | None = None


async def load(kubeconfig: str | None = None, context: str | None = None) -> Credentials:
    """The credentials of a kubeconfig (paths separated as in $KUBECONFIG); raises CredentialsError.

    Without a kubeconfig: in a pod its service account, else $KUBECONFIG, else ~/.kube/config.
    """
    if kubeconfig:
        return await from_kubeconfig(kubeconfig, context)
    if os.environ.get(HOST):
        return from_service_account()
    return await from_kubeconfig(os.environ.get("KUBECONFIG") or str(Path.home() / ".kube/config"), context)


def from_service_account() -> Credentials:
    """The credentials of a pod's service account; raises CredentialsError."""
    host, port = os.environ.get(HOST, ""), os.environ.get(PORT, "")
    if not host or not port:
        raise CredentialsError(f"{HOST} is {host!r} and {PORT} is {port!r}: expected both, as in every pod")
    tokens = FileToken(SERVICE_ACCOUNT / "token")
    tokens.read()
    server = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    return Credentials(
        server=server,
        tokens=tokens,
        tls=_readable(Trust(str(SERVICE_ACCOUNT / "ca.crt"))),
        proxy=proxies.of_environment(server),
    )


def own_namespace() -> str:
    """The namespace of this pod. Outside of pods: the usual one of the installation."""
    try:
        return (SERVICE_ACCOUNT / "namespace").read_text().strip() or names.NAMESPACE
    except (OSError, UnicodeError):
        return names.NAMESPACE


async def from_kubeconfig(paths: str, context: str | None = None) -> Credentials:
    """The credentials of a context (default: the current one) of kubeconfig files; raises CredentialsError."""
    merged, loader = _read(paths, context)
    found = await _loaded(paths, loader)
    tls = None
    if found.host.startswith("https:"):
        tls = _readable(Trust(found.ssl_ca_cert, found.cert_file, found.key_file, found.verify_ssl))
    return Credentials(
        server=found.host,
        tokens=_tokens(paths, merged, loader, found, tls),
        tls=tls,
        server_name=found.tls_server_name,
        proxy=found.proxy or proxies.of_environment(found.host),
    )


def _read(paths: str, context: str | None) -> tuple[Any, Any]:
    """The merged files, and the official loader for a context."""
    found = [path for part in paths.split(os.pathsep) if part and (path := Path(part).expanduser()).is_file()]
    if not found:
        raise CredentialsError(f"{paths}: no such file, expected a kubeconfig")
    for file in found:
        try:
            files.read(file, files.text, KUBECONFIG)  # the loader may take long for what is refused here
        except files.FileError as error:
            raise CredentialsError(str(error)) from error
    official: Any = importlib.import_module("kubernetes.aio.config.kube_config")
    try:
        merged = official.KubeConfigMerger(paths).config
        return merged, official.KubeConfigLoader(merged, active_context=context, config_base_path=None)
    except Exception as error:
        wanted = f"the context {context!r}" if context else "a current context"
        raise CredentialsError(f"{paths}: expected a kubeconfig with {wanted} ({error})") from error


async def _loaded(paths: str, loader: Any) -> SimpleNamespace:
    """The configuration of a context by the official loader; all its errors become CredentialsError."""
    found = SimpleNamespace(api_key={}, host="", ssl_ca_cert=None, cert_file=None, key_file=None, verify_ssl=True)
    found.tls_server_name = found.proxy = None
    try:
        async with asyncio.timeout(LOAD_S):
            await loader.load_and_set(found)
    except Exception as error:
        why = str(error) or f"{type(error).__name__} after {LOAD_S:g} s at most"
        raise CredentialsError(f"{paths}: the context cannot be used: {why}") from error
    if not found.host:
        raise CredentialsError(f"{paths}: the context's cluster has no server, expected a URL")
    return found


def _tokens(paths: str, merged: Any, loader: Any, found: SimpleNamespace, tls: Trust | None) -> TokenSource:
    name = loader.current_context["context"].get("user")
    node: Any = merged["users"].get_with_name(name, safe=True) if name else None
    user = (node and node.value.get("user")) or {}
    if user.get("tokenFile") and not user.get("token"):
        return FileToken(Path(node.path).parent / user["tokenFile"])
    header = found.api_key.get("BearerToken", "")
    if "exec" in user and not header and not found.cert_file:
        raise CredentialsError(f"{paths}: the command {user['exec'].get('command')!r} gave no credentials")
    return LoaderToken(paths, loader, header, tls) if "exec" in user or loader.provider else FixedToken(header)


def _readable(trust: Trust) -> Trust:
    trust.context()
    return trust
