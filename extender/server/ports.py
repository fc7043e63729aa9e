"""The ports of the extender: where it listens, and the server behind each."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from extender.cluster.reviews import Reviews
from extender.server import http
from extender.server.http import Server
from extender.server.secure import vouched
from extender.server.status import Status
from extender.server.verbs import Application
from extender.settings import Settings
from protos.kube.client import ApiClient

if TYPE_CHECKING:
    from extender.server.tls import Shown

VERBS_WAITING = 2048
"""Connections that kube-scheduler may open at the same moment: one for each member of a gang."""


class Ports:
    """Those of one extender, open from the start. Raises SettingsError."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._verbs = http.listen("listen", settings.listen, waiting=VERBS_WAITING)
        self._status = http.listen("status_listen", settings.status_listen)
        self._secure = http.listen("secure_listen", settings.secure_listen) if settings.secure_listen else None
        files = settings.verbs_cert, settings.verbs_key, settings.verbs_client_ca
        self._verbs_tls = _shown(*files) if settings.verbs_client_ca else None
        self._secure_tls = _shown(settings.secure_cert, settings.secure_key) if self._secure else None

    @property
    def verbs(self) -> tuple[str, int]:
        """Where kube-scheduler asks."""
        return _where(self._verbs)

    @property
    def status(self) -> tuple[str, int]:
        """Where probes, Prometheus and people ask."""
        return _where(self._status)

    @property
    def secure(self) -> tuple[str, int] | None:
        """Where they ask over TLS."""
        return _where(self._secure) if self._secure else None

    @property
    def certificates(self) -> list[Shown]:
        """Those that are to be looked after."""
        return [shown for shown in (self._verbs_tls, self._secure_tls) if shown is not None]

    def servers(self, verbs: Application, told: Status, client: ApiClient) -> Iterator[tuple[Server, socket.socket]]:
        """The server of each port and where it serves."""
        tls = self._verbs_tls.context if self._verbs_tls else None
        yield http.server(verbs, http.verbs(self._settings.bind_timeout_s), crowded=False, tls=tls), self._verbs
        yield http.server(told.plain(), http.STATUS), self._status
        if self._secure is not None and self._secure_tls is not None:
            app = told.secure(vouched(Reviews(client, time.monotonic)))
            yield http.server(app, http.SECURE, tls=self._secure_tls.context), self._secure


def _where(opened: socket.socket) -> tuple[str, int]:
    host, port = opened.getsockname()[:2]
    return host, port


def _shown(*files: str) -> Shown:
    from extender.server.tls import Shown  # its libraries only where they are wanted

    return Shown(*files)
