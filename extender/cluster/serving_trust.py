"""Keeps the certificate of a server that the API server asks: in a Secret, and in the object by which it is trusted.

All replicas use the same certificate. The leading replica makes it and renews it; the others read it from the Secret.
The Secret and the Service of a server have the same name.
"""

import asyncio
import datetime as dt
from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from extender.cluster.certificate import Certificate, make
from extender.cluster.leadership import NotLeading
from protos.contract import names
from protos.kube import credentials, errors, paths
from protos.kube.client import STRATEGIC_PATCH, ApiClient

LOOK_S = 10.0
"""Seconds between two checks of the Secret and the object: so long a follower may serve what is trusted no more."""
SOON_S = 5.0
"""The same after a failed check: another replica may have to write."""
WEBHOOK = paths.path("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", name=names.WEBHOOK)
API_SERVICE = paths.path("apiregistration.k8s.io/v1", "apiservices", name=names.VISIBILITY_API_SERVICE)

log = structlog.get_logger(__name__)


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class _Secret(msgspec.Struct, frozen=True):
    metadata: _Meta
    data: dict[str, bytes] | None = None
    """Encoded as base64."""


class _ClientConfig(msgspec.Struct, frozen=True, rename="camel"):
    ca_bundle: bytes = b""


class _Webhook(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    client_config: _ClientConfig


class _Trusting(msgspec.Struct, frozen=True):
    """A MutatingWebhookConfiguration (with webhooks) or an APIService (with a spec)."""

    metadata: _Meta
    webhooks: tuple[_Webhook, ...] = ()
    spec: _ClientConfig | None = None

    def trusts(self, certificate: bytes) -> bool:
        configs = [webhook.client_config for webhook in self.webhooks] + ([self.spec] if self.spec else [])
        return all(config.ca_bundle == certificate for config in configs)

    def patch(self, certificate: bytes) -> dict[str, Any]:
        """The strategic merge patch after which the API server trusts this certificate."""
        bundle = {"caBundle": certificate}
        body: dict[str, Any] = {"metadata": {"resourceVersion": self.metadata.resource_version}}
        if self.webhooks:
            body["webhooks"] = [{"name": webhook.name, "clientConfig": bundle} for webhook in self.webhooks]
        if self.spec is not None:
            body["spec"] = bundle
        return body


_secrets = msgspec.json.Decoder(_Secret)
_trusting = msgspec.json.Decoder(_Trusting)


def hosts(service: str) -> tuple[str, ...]:
    """The names by which the API server may connect: through the Service, or on the same machine."""
    return f"{service}.{credentials.own_namespace()}.svc", "localhost", "127.0.0.1"


class ServingTrust:
    """Keeps one certificate valid and trusted."""

    def __init__(self, client: ApiClient, service: str, trusting: str, use: Callable[[Certificate], None]) -> None:
        """`trusting` is the path of the object with the caBundle. `use` is called with each new certificate.

        `client` writes only while this replica leads.
        """
        self._client, self._trusting, self._use = client, trusting, use
        self._secret = paths.path("v1", "secrets", namespace=credentials.own_namespace(), name=service)
        self._hosts = hosts(service)
        self._used: Certificate | None = None

    async def run(self) -> None:
        """Check for ever."""
        while True:
            pause = SOON_S
            try:
                await self._check(dt.datetime.now(dt.UTC))
                pause = LOOK_S
            except (NotLeading, errors.Conflict) as error:
                log.debug("serving_trust_left", why=str(error))
            except errors.ApiError as error:
                log.warning("serving_trust_failed", error=str(error))
            await asyncio.sleep(pause)

    async def _check(self, now: dt.datetime) -> None:
        secret = await self._client.fetch(self._secret, _secrets)
        data = secret.data or {}
        certificate = Certificate(data.get("tls.crt", b""), data.get("tls.key", b""))
        if not certificate.good(self._hosts, now):
            certificate = await self._renew(secret, now)
        if certificate != self._used:
            self._use(certificate)
            self._used = certificate
        await self._trust(certificate)

    async def _renew(self, secret: _Secret, now: dt.datetime) -> Certificate:
        made = make(self._hosts, now)
        metadata = {"resourceVersion": secret.metadata.resource_version}
        body = {"metadata": metadata, "data": {"tls.crt": made.certificate, "tls.key": made.key}}
        await self._client.patch(self._secret, body)
        log.info("serving_certificate_made", hosts=self._hosts)
        return made

    async def _trust(self, used: Certificate) -> None:
        found = await self._client.fetch(self._trusting, _trusting)
        if found.trusts(used.certificate):
            return
        await self._client.patch(self._trusting, found.patch(used.certificate), content_type=STRATEGIC_PATCH)
        log.info("serving_certificate_trusted", by=self._trusting)
