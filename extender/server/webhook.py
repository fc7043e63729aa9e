"""The webhook that puts our scheduling gate on new members of gangs, for API servers without admission policies.

It serves TLS on a port of its own. It is optional: a pod that it did not see is refused and requeued like any other.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Collection

import structlog
from fastapi import FastAPI, Request, Response

from extender.cluster import serving_trust
from extender.cluster.certificate import Certificate
from extender.server import http
from extender.wire import admission
from gangfilter import dialects
from protos.contract import names
from protos.kube.client import ApiClient

log = structlog.get_logger(__name__)


def app(schedulers: Collection[str]) -> FastAPI:
    """The application, which gates pods of these schedulers."""
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
    """The webhook's server. It serves once it has a certificate."""

    def __init__(self, client: ApiClient, listener: socket.socket, schedulers: Collection[str]) -> None:
        self._listener = listener
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
        self._certified = asyncio.Event()
        self._trust = serving_trust.ServingTrust(client, names.WEBHOOK, serving_trust.WEBHOOK, self._use)
        self._server = http.Server(app(schedulers), http.WEBHOOK, tls=self._tls)

    def _use(self, certificate: Certificate) -> None:
        certificate.use(self._tls)
        self._certified.set()

    async def run(self) -> None:
        """Serve until cancelled."""
        with self._listener:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._trust.run())
                await self._certified.wait()
                tasks.create_task(self._server.serve(sockets=[self._listener]))
