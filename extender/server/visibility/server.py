"""The port of the aggregated API. Only the API server's front proxy can connect.

It serves once it knows that front proxy and has a certificate that the API server trusts.
"""

from __future__ import annotations

import asyncio
import socket
import ssl

from extender.cluster import serving_trust
from extender.cluster.certificate import Certificate
from extender.cluster.front_proxy import FrontProxy, FrontProxyWatch
from extender.cluster.serving_trust import ServingTrust
from extender.server import http
from extender.server.visibility.api import Api
from protos.contract import names
from protos.kube.client import ApiClient


class Visibility:
    """The server of the aggregated API, and whom it trusts."""

    def __init__(self, api: Api, listener: socket.socket, reader: ApiClient, writer: ApiClient) -> None:
        """`writer` writes only while this replica leads."""
        self._api, self._listener = api, listener
        self._trust = ServingTrust(writer, names.VISIBILITY, serving_trust.API_SERVICE, self._certify)
        self._watch = FrontProxyWatch(reader, self._believe)
        self._server = http.Server(api, http.AGGREGATED)
        self._certificate: Certificate | None = None
        self._ready = asyncio.Event()

    async def run(self) -> None:
        """Serve until cancelled."""
        with self._listener:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._trust.run())
                tasks.create_task(self._watch.run())
                await self._ready.wait()
                tasks.create_task(self._server.serve(sockets=[self._listener]))

    def _certify(self, certificate: Certificate) -> None:
        self._certificate = certificate
        self._renew(certificate, self._api.front_proxy)

    def _believe(self, front_proxy: FrontProxy) -> None:
        self._renew(self._certificate, front_proxy)
        self._api.front_proxy = front_proxy

    def _renew(self, certificate: Certificate | None, front_proxy: FrontProxy | None) -> None:
        """Serve new connections with these two, once both are there. Raises ValueError for an unreadable CA."""
        if certificate is not None and front_proxy is not None:
            self._server.use(_context(certificate, front_proxy))
            self._ready.set()


def _context(certificate: Certificate, front_proxy: FrontProxy) -> ssl.SSLContext:
    """Shows the certificate, and demands one of the front proxy's CAs; raises ValueError if these cannot be read."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.options |= ssl.OP_NO_RENEGOTIATION
    made.verify_mode = ssl.CERT_REQUIRED
    certificate.use(made)
    try:
        made.load_verify_locations(cadata=front_proxy.ca)
    except ssl.SSLError as error:
        raise ValueError(f"requestheader-client-ca-file: {error}, expected certificates of CAs in PEM") from error
    return made
