"""Keeps the webhook's certificate in a Secret, and in the configuration by which the API server trusts it.

All replicas use the same certificate. The leading replica makes it and renews it; the others read it from the Secret.
"""

import asyncio
import datetime as dt
from collections.abc import Callable

import msgspec
import structlog

from extender.cluster.certificate import Certificate, make
from extender.cluster.leadership import NotLeading
from protos.contract import names
from protos.kube import errors, paths
from protos.kube.client import STRATEGIC_PATCH, ApiClient

HOSTS = (f"{names.WEBHOOK}.{names.NAMESPACE}.svc", "localhost", "127.0.0.1")
"""The names by which the API server may connect: through the Service, or on the same machine."""
LOOK_S = 60.0
"""Seconds between two checks of the Secret and the configuration."""
SOON_S = 5.0
"""The same after a failed check: another replica may have to write."""
SECRET = paths.path("v1", "secrets", namespace=names.NAMESPACE, name=names.WEBHOOK)
CONFIGURATION = paths.path("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", name=names.WEBHOOK)

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


class _Configuration(msgspec.Struct, frozen=True):
    metadata: _Meta
    webhooks: tuple[_Webhook, ...] = ()


_secrets = msgspec.json.Decoder(_Secret)
_configurations = msgspec.json.Decoder(_Configuration)


class WebhookTrust:
    """Keeps one certificate valid and trusted."""

    def __init__(self, client: ApiClient, use: Callable[[Certificate], None]) -> None:
        """`use` is called with each new certificate; `client` writes only while this replica leads."""
        self._client, self._use = client, use
        self._used: Certificate | None = None

    async def run(self) -> None:
        """Check for ever."""
        while True:
            pause = SOON_S
            try:
                await self._check(dt.datetime.now(dt.UTC))
                pause = LOOK_S
            except (NotLeading, errors.Conflict) as error:
                log.debug("webhook_trust_left", why=str(error))
            except errors.ApiError as error:
                log.warning("webhook_trust_failed", error=str(error))
            await asyncio.sleep(pause)

    async def _check(self, now: dt.datetime) -> None:
        secret = await self._client.fetch(SECRET, _secrets)
        data = secret.data or {}
        certificate = Certificate(data.get("tls.crt", b""), data.get("tls.key", b""))
        if not certificate.good(HOSTS, now):
            certificate = await self._renew(secret, now)
        if certificate != self._used:
            self._use(certificate)
            self._used = certificate
        await self._trust(certificate)

    async def _renew(self, secret: _Secret, now: dt.datetime) -> Certificate:
        made = make(HOSTS, now)
        metadata = {"resourceVersion": secret.metadata.resource_version}
        body = {"metadata": metadata, "data": {"tls.crt": made.certificate, "tls.key": made.key}}
        await self._client.patch(SECRET, body)
        log.info("webhook_certificate_made", hosts=HOSTS)
        return made

    async def _trust(self, used: Certificate) -> None:
        found = await self._client.fetch(CONFIGURATION, _configurations)
        if all(webhook.client_config.ca_bundle == used.certificate for webhook in found.webhooks):
            return
        webhooks = [{"name": each.name, "clientConfig": {"caBundle": used.certificate}} for each in found.webhooks]
        body = {"metadata": {"resourceVersion": found.metadata.resource_version}, "webhooks": webhooks}
        await self._client.patch(CONFIGURATION, body, content_type=STRATEGIC_PATCH)
        log.info("webhook_trusted", configuration=names.WEBHOOK)
