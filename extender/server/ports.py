"""The listening ports of the extender, and the server of each."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from extender.cluster.reviews import Reviews
from extender.server import http
from extender.server.http import Server
from extender.server.pages import Application, authorized
from extender.server.status import Status
from extender.server.verbs import VerbQuestions
from extender.settings import Address, Settings
from protos.kube.client import ApiClient

if TYPE_CHECKING:
    from extender.server.tls import ServedCertificate

VERBS_WAITING = 2048
"""Connections that kube-scheduler may open at the same moment: one for each member of a gang."""


class Port(NamedTuple):
    """A listening port, and the certificate that it serves, if it serves over TLS."""

    listener: socket.socket
    served: ServedCertificate | None = None

    @property
    def address(self) -> Address:
        return Address(*self.listener.getsockname()[:2])

    @property
    def tls(self) -> ssl.SSLContext | None:
        return self.served.context if self.served else None


class Ports:
    """The ports of one extender. It listens from the start. Raises SettingsError."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        listener = http.listen("--listen", settings.listen, waiting=VERBS_WAITING)
        files = settings.verbs_cert, settings.verbs_key, settings.verbs_client_ca
        self.verbs = Port(listener, _served(*files) if settings.verbs_client_ca else None)
        """For kube-scheduler."""
        self.status = Port(http.listen("--status-listen", settings.status_listen))
        """For probes, Prometheus and people."""
        self.secure: Port | None = None
        """For Prometheus and people over TLS."""
        if settings.secure_listen:
            listener = http.listen("--secure-listen", settings.secure_listen)
            self.secure = Port(listener, _served(settings.secure_cert, settings.secure_key))
        webhook = settings.gate_webhook_listen
        self.webhook = http.listen("--gate-webhook-listen", webhook) if webhook else None
        visibility = settings.visibility_listen
        self.visibility = http.listen("--visibility-listen", visibility) if visibility else None

    @property
    def certificates(self) -> list[ServedCertificate]:
        """The certificates that must be renewed in time."""
        return [port.served for port in (self.verbs, self.secure) if port is not None and port.served is not None]

    def servers(
        self, verbs: VerbQuestions, others: Application, status: Status, client: ApiClient
    ) -> Iterator[tuple[Server, socket.socket]]:
        """The server and socket of each port. `others` answers everything but verbs on the port of the verbs."""
        limits = http.verbs(self._settings.bind_timeout_s)
        served = Server(others, limits, crowded=False, tls=self.verbs.tls, questions=verbs.by_path)
        yield served, self.verbs.listener
        yield Server(status.plain(), http.STATUS), self.status.listener
        if self.secure is not None:
            app = status.secure(authorized(Reviews(client, time.monotonic)))
            yield Server(app, http.SECURE, tls=self.secure.tls), self.secure.listener


def _served(*files: str) -> ServedCertificate:
    from extender.server.tls import ServedCertificate  # its libraries are loaded only if they are needed

    return ServedCertificate(*files)
