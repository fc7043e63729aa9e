"""The certificate that one of our ports serves: from files, which may be replaced, or made here."""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
from pathlib import Path

import structlog

from extender.cluster import certificate, serving_trust
from extender.cluster.certificate import Certificate
from protos.contract import names
from protos.contract.shared_settings import SettingsError

LOOK_S = 10.0
"""Seconds between checks of the files, or of the age of the certificate made here."""

log = structlog.get_logger(__name__)


class ServedCertificate:
    """A server's TLS context, kept up to date. Raises SettingsError if the files are no certificate and its key."""

    def __init__(self, cert: str = "", key: str = "", client_ca: str = "") -> None:
        """Files in PEM. Without `cert` one is made here. With `client_ca` clients must show a certificate of it."""
        self._cert, self._key = cert, key
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.options |= ssl.OP_NO_RENEGOTIATION
        self._served: Certificate | None = None
        if client_ca:
            self.context.verify_mode = ssl.CERT_REQUIRED
            try:
                self.context.load_verify_locations(client_ca)
            except (OSError, ValueError) as error:
                raise SettingsError(f"{client_ca}: {error}, expected certificates of CAs in PEM") from error
        self._look()

    async def run(self) -> None:
        """Keep it up to date until cancelled. If the files cannot be read, the former certificate stays."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                self._look()
            except SettingsError as error:  # perhaps in the middle of a replacement
                log.warning("certificate_not_read", error=str(error))

    def _look(self) -> None:
        wanted = self._read() if self._cert else self._made()
        if wanted == self._served:
            return
        try:
            wanted.use(self.context)
        except (ssl.SSLError, ValueError) as error:
            raise SettingsError(f"{self._cert} and {self._key} are no certificate and its key: {error}") from error
        self._served = wanted

    def _read(self) -> Certificate:
        try:
            return Certificate(Path(self._cert).read_bytes(), Path(self._key).read_bytes())
        except OSError as error:
            raise SettingsError(f"{error.filename}: {error.strerror}, expected a file in PEM") from error

    def _made(self) -> Certificate:
        now = dt.datetime.now(dt.UTC)
        hosts = serving_trust.hosts(names.SCHEDULER)
        if self._served is not None and self._served.good(hosts, now):
            return self._served
        return certificate.make(hosts, now)
