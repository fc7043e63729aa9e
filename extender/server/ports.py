"""The listening ports of the extender, and the server of each."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from extender.cluster.reviews import Reviews
from extender.server import http
from extender.server.http import Server
from extender.server.pages import authorized
from extender.server.status import Status
from extender.server.verbs import Application
from extender.settings import Settings
from protos.kube.client import ApiClient

if TYPE_CHECKING:
    from extender.server.tls import ServedCertificate

VERBS_WAITING = 2048
"""Connections that kube-scheduler may open at the same moment: one for each member of a gang."""


class Ports:
    """The ports of one extender. It listens from the start. Raises SettingsError."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._verbs = http.listen("listen", settings.listen, waiting=VERBS_WAITING)
        self._status = http.listen("status_listen", settings.status_listen)
        self._secure = http.listen("secure_listen", settings.secure_listen) if settings.secure_listen else None
        webhook = settings.gate_webhook_listen
        self.webhook = http.listen("gate_webhook_listen", webhook) if webhook else None
        files = settings.verbs_cert, settings.verbs_key, settings.verbs_client_ca
        self._verbs_tls = _served(*files) if settings.verbs_client_ca else None
        self._secure_tls = _served(settings.secure_cert, settings.secure_key) if self._secure else None

    @property
    def verbs(self) -> tuple[str, int]:
        """The address for kube-scheduler."""
        return _address(self._verbs)

    @property
    def status(self) -> tuple[str, int]:
        """The address for probes, Prometheus and people."""
        return _address(self._status)

    @property
    def secure(self) -> tuple[str, int] | None:
        """The address for Prometheus and people over TLS."""
        return _address(self._secure) if self._secure else None

    @property
    def certificates(self) -> list[ServedCertificate]:
        """The certificates that must be renewed in time."""
        return [served for served in (self._verbs_tls, self._secure_tls) if served is not None]

    def servers(self, verbs: Application, status: Status, client: ApiClient) -> Iterator[tuple[Server, socket.socket]]:
        """The server and socket of each port."""
        tls = self._verbs_tls.context if self._verbs_tls else None
        yield Server(verbs, http.verbs(self._settings.bind_timeout_s), crowded=False, tls=tls), self._verbs
        yield Server(status.plain(), http.STATUS), self._status
        if self._secure is not None and self._secure_tls is not None:
            app = status.secure(authorized(Reviews(client, time.monotonic)))
            yield Server(app, http.SECURE, tls=self._secure_tls.context), self._secure


def _address(listener: socket.socket) -> tuple[str, int]:
    host, port = listener.getsockname()[:2]
    return host, port


def _served(*files: str) -> ServedCertificate:
    from extender.server.tls import ServedCertificate  # its libraries are loaded only if they are needed

    return ServedCertificate(*files)
