"""Keeps the webhook's certificate in a Secret, and the API server told to trust it.

All replicas show the same certificate: who leads makes it, and another before it ends; the others find it there.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable

import msgspec
import structlog

from extender.cluster import certificate
from extender.cluster.certificate import Certificate
from extender.cluster.leadership import NotLeading
from protos.contract import names
from protos.kube import errors, paths
from protos.kube.client import STRATEGIC_PATCH, ApiClient

HOSTS = (f"{names.WEBHOOK}.{names.NAMESPACE}.svc", "localhost", "127.0.0.1")
"""By which the API server may ask: by way of the Service, or on the same machine."""
LOOK_S = 60.0
"""Seconds between looks at the Secret and at what the API server trusts."""
SOON_S = 5.0
"""The same after one that came to nothing: what is to be written may be another's to write."""
SECRET = paths.path("v1", "secrets", namespace=names.NAMESPACE, name=names.WEBHOOK)
CONFIGURATION = paths.path("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", name=names.WEBHOOK)

log = structlog.get_logger(__name__)


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class _Secret(msgspec.Struct, frozen=True):
    metadata: _Meta
    data: dict[str, bytes] | None = None
    """Bytes travel as base64."""


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
    """One certificate, looked after."""

    def __init__(self, client: ApiClient, use: Callable[[Certificate], None]) -> None:
        """`use` is called with each certificate that is to be shown from then on; `client` writes only if it may."""
        self._client, self._use = client, use
        self._used: Certificate | None = None

    async def run(self) -> None:
        """Look after it for ever."""
        while True:
            pause = SOON_S
            try:
                await self._tend(dt.datetime.now(dt.UTC))
                pause = LOOK_S
            except (NotLeading, errors.Conflict) as error:
                log.debug("webhook_trust_left", why=str(error))
            except errors.ApiError as error:
                log.warning("webhook_trust_failed", error=str(error))
            await asyncio.sleep(pause)

    async def _tend(self, now: dt.datetime) -> None:
        found = await self._client.fetch(SECRET, _secrets)
        data = found.data or {}
        shown = Certificate(data.get("tls.crt", b""), data.get("tls.key", b""))
        if not shown.good(HOSTS, now):
            shown = await self._renew(found, now)
        if shown != self._used:
            self._use(shown)
            self._used = shown
        await self._trust(shown)

    async def _renew(self, found: _Secret, now: dt.datetime) -> Certificate:
        made = certificate.make(HOSTS, now)
        metadata = {"resourceVersion": found.metadata.resource_version}
        body = {"metadata": metadata, "data": {"tls.crt": made.certificate, "tls.key": made.key}}
        await self._client.patch(SECRET, body)
        log.info("webhook_certificate_made", hosts=HOSTS)
        return made

    async def _trust(self, shown: Certificate) -> None:
        found = await self._client.fetch(CONFIGURATION, _configurations)
        if all(webhook.client_config.ca_bundle == shown.certificate for webhook in found.webhooks):
            return
        trusted = [
            {"name": webhook.name, "clientConfig": {"caBundle": shown.certificate}} for webhook in found.webhooks
        ]
        body = {"metadata": {"resourceVersion": found.metadata.resource_version}, "webhooks": trusted}
        await self._client.patch(CONFIGURATION, body, content_type=STRATEGIC_PATCH)
        log.info("webhook_trusted", configuration=names.WEBHOOK)
