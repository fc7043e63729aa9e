"""The webhook that puts our scheduling gate on new pods of groups, where the API server has no policies that could.

It is asked over TLS on a port of its own, and never needed: a pod that it was not asked about is refused and woken like
any other.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Collection

import structlog
from fastapi import FastAPI, Request, Response

from extender.cluster.certificate import Certificate
from extender.cluster.webhook_trust import WebhookTrust
from extender.server import http
from extender.wire import admission
from gangfilter import dialects
from protos.contract import names
from protos.kube.client import ApiClient

log = structlog.get_logger(__name__)


def app(schedulers: Collection[str]) -> FastAPI:
    """The application: pods of these schedulers are gated."""
    made = FastAPI(title="gangshare webhook", docs_url=None, redoc_url=None, openapi_url=None)

    @made.post(names.WEBHOOK_PATH)
    async def review(request: Request) -> Response:
        """Answer an AdmissionReview of a new pod."""
        try:
            asked = admission.question(await request.body())
        except admission.AdmissionError as error:
            log.warning("webhook_not_read", error=str(error))
            return Response(str(error), 400, media_type="text/plain")
        gated = dialects.born_gated(asked.pod, schedulers)
        return Response(admission.answer(asked, gated=gated), media_type="application/json")

    return made


class Webhook:
    """A server that begins to serve with its first certificate."""

    def __init__(self, client: ApiClient, opened: socket.socket, schedulers: Collection[str]) -> None:
        self._socket = opened
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
        self._certified = asyncio.Event()
        self._trust = WebhookTrust(client, self._show)
        self._server = http.server(app(schedulers), http.WEBHOOK, tls=self._tls)

    def _show(self, certificate: Certificate) -> None:
        certificate.use(self._tls)
        self._certified.set()

    async def run(self) -> None:
        """Serve until cancelled."""
        with self._socket:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._trust.run())
                await self._certified.wait()
                tasks.create_task(self._server.serve(sockets=[self._socket]))
