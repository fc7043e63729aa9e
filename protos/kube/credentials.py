"""Where the API server is, and who we are to it: a pod's service account, or a kubeconfig file.

The service account is read here, two small files; a kubeconfig is left to the official client package (merging,
contexts, OIDC, exec plugins), which is imported only then: it costs some 20 MiB.
"""

import importlib
import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"


class CredentialsError(Exception):
    """No usable credentials: names the file and what was expected of it."""


class TokenSource(Protocol):
    """Gives the Authorization header; called for every request, so it must be quick unless there is news."""

    async def authorization(self) -> str:
        """The header's value, "" for none; raises CredentialsError."""
        ...

    async def renew(self) -> str:
        """The same after the server refused the former one."""
        ...


@dataclass(frozen=True)
class FixedToken:
    """A header that never changes; empty where a client certificate does it."""

    header: str = ""

    async def authorization(self) -> str:
        return self.header

    async def renew(self) -> str:
        return self.header


@dataclass
class FileToken:
    """A bearer token in a file that is replaced from time to time; read again when the file is another."""

    file: Path
    _seen: tuple[int, int, int] = field(default=(0, 0, 0), init=False)
    _header: str = field(default="", init=False)

    async def authorization(self) -> str:
        return self.read()

    async def renew(self) -> str:
        self._seen = (0, 0, 0)
        return self.read()

    def read(self) -> str:
        try:
            stat = self.file.stat()
            identity = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if identity != self._seen:
                token = self.file.read_text().strip()
                if not token:
                    raise CredentialsError(f"{self.file} is empty: expected a bearer token")
                self._header, self._seen = f"Bearer {token}", identity
        except (OSError, UnicodeError) as error:
            raise CredentialsError(f"{self.file}: expected a bearer token ({error})") from error
        return self._header


@dataclass
class LoaderToken:
    """The header of a kubeconfig whose user's token may expire (exec plugin, OIDC), or is fixed there."""

    file: str
    loader: Any
    """The official package's KubeConfigLoader, loaded."""
    header: str
    """What it gave when it was loaded."""

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
        self.header = (await _loaded(self.file, self.loader)).api_key.get("BearerToken", "")


@dataclass(frozen=True)
class Credentials:
    """How to reach one API server."""

    server: str
    """URL without a trailing slash."""
    tokens: TokenSource = FixedToken()
    tls: ssl.SSLContext | None = None
    """Trust and client certificate; None for plain HTTP."""
    server_name: str | None = None
    """The name expected in the server's certificate, where it is not the URL's."""
    proxy: str | None = None
    namespace: str = "default"
    """Our own."""


async def load(kubeconfig: str | None = None, context: str | None = None) -> Credentials:
    """Credentials from a kubeconfig (paths divided as in $KUBECONFIG), or without one from where we run.

    Without a kubeconfig: in a pod its service account, else $KUBECONFIG, else ~/.kube/config. Raises CredentialsError.
    """
    if kubeconfig:
        return await from_kubeconfig(kubeconfig, context)
    if os.environ.get(HOST):
        return from_service_account()
    return await from_kubeconfig(os.environ.get("KUBECONFIG") or str(Path.home() / ".kube/config"), context)


def from_service_account(folder: Path | None = None) -> Credentials:
    """The credentials that the kubelet mounts into a pod; raises CredentialsError."""
    folder = folder or SERVICE_ACCOUNT
    host, port = os.environ.get(HOST, ""), os.environ.get(PORT, "")
    if not host or not port:
        raise CredentialsError(f"{HOST} is {host!r} and {PORT} is {port!r}: expected both, as in every pod")
    tokens = FileToken(folder / "token")
    tokens.read()
    namespace = folder / "namespace"
    return Credentials(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        tokens=tokens,
        tls=_authority(str(folder / "ca.crt")),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
    )


async def from_kubeconfig(paths: str, context: str | None = None) -> Credentials:
    """The credentials of a context (the current one) of one or several kubeconfig files; raises CredentialsError."""
    merged, loader = _read(paths, context)
    found = await _loaded(paths, loader)
    return Credentials(
        server=found.host,
        tokens=_tokens(paths, merged, loader, found),
        tls=_trust(found) if found.host.startswith("https:") else None,
        server_name=found.tls_server_name,
        proxy=found.proxy,
        namespace=loader.current_context["context"].get("namespace") or "default",
    )


def _read(paths: str, context: str | None) -> tuple[Any, Any]:
    """The merged files and the official loader set on a context."""
    if not any(Path(part).expanduser().is_file() for part in paths.split(os.pathsep) if part):
        raise CredentialsError(f"{paths}: no such file, expected a kubeconfig")
    official: Any = importlib.import_module("kubernetes.aio.config.kube_config")
    try:
        merged = official.KubeConfigMerger(paths).config
        return merged, official.KubeConfigLoader(merged, active_context=context, config_base_path=None)
    except Exception as error:
        wanted = f"the context {context!r}" if context else "a current context"
        raise CredentialsError(f"{paths}: expected a kubeconfig with {wanted} ({error})") from error


async def _loaded(paths: str, loader: Any) -> SimpleNamespace:
    """What the official loader makes of a context; its own errors of many kinds become one."""
    found = SimpleNamespace(api_key={}, host="", ssl_ca_cert=None, cert_file=None, key_file=None, verify_ssl=True)
    found.tls_server_name = found.proxy = None
    try:
        await loader.load_and_set(found)
    except Exception as error:
        raise CredentialsError(f"{paths}: the context cannot be used: {error}") from error
    if not found.host:
        raise CredentialsError(f"{paths}: the context's cluster has no server, expected a URL")
    return found


def _tokens(paths: str, merged: Any, loader: Any, found: SimpleNamespace) -> TokenSource:
    name = loader.current_context["context"].get("user")
    node: Any = merged["users"].get_with_name(name, safe=True) if name else None
    user = (node and node.value.get("user")) or {}
    if user.get("tokenFile") and not user.get("token"):
        return FileToken(Path(node.path).parent / user["tokenFile"])
    header = found.api_key.get("BearerToken", "")
    if "exec" in user and not header and not found.cert_file:
        raise CredentialsError(f"{paths}: the command {user['exec'].get('command')!r} gave no credentials")
    return LoaderToken(paths, loader, header) if "exec" in user or loader.provider else FixedToken(header)


def _trust(found: SimpleNamespace) -> ssl.SSLContext:
    context = _authority(found.ssl_ca_cert)
    if not found.verify_ssl:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if found.cert_file:
        try:
            context.load_cert_chain(found.cert_file, found.key_file)
        except (OSError, ssl.SSLError) as error:
            raise CredentialsError(
                f"{found.cert_file}: expected a client certificate with its key ({error})"
            ) from error
    return context


def _authority(file: str | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=file)
    except (OSError, ssl.SSLError) as error:
        raise CredentialsError(f"{file}: expected the cluster's CA certificate in PEM ({error})") from error
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # cluster CAs often lack what Python 3.13 demands by default
    return context
