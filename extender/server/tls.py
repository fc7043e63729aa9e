"""The certificate that one of our ports shows: from files, which may be replaced while we live, or made here."""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
from pathlib import Path

import structlog

from extender.cluster import certificate
from extender.cluster.certificate import Certificate
from protos.contract import names
from protos.contract.shared_settings import SettingsError

HOSTS = (f"{names.SCHEDULER}.{names.NAMESPACE}.svc", "localhost", "127.0.0.1")
"""For which a certificate is made."""
LOOK_S = 60.0
"""Seconds between looks at the files, and at whether the one made here is still good."""

log = structlog.get_logger(__name__)


class Shown:
    """A server's side of TLS, looked after. Raises SettingsError for files that are no certificate and its key."""

    def __init__(self, cert: str = "", key: str = "", client_ca: str = "") -> None:
        """Files in PEM; without `cert` and `key` one is made here. Who has none of `client_ca` is not let in."""
        self._cert, self._key, self._client_ca = cert, key, client_ca
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.options |= ssl.OP_NO_RENEGOTIATION
        self._shown: Certificate | None = None
        if client_ca:
            self.context.verify_mode = ssl.CERT_REQUIRED
            _trust(self.context, client_ca)
        self._look()

    async def run(self) -> None:
        """Look after it until cancelled; what cannot be read is told, and the certificate shown so far stays."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                self._look()
            except SettingsError as error:  # halfway through a replacement, maybe
                log.warning("certificate_not_read", error=str(error))

    def _look(self) -> None:
        found = self._read() if self._cert else self._made()
        if found == self._shown:
            return
        try:
            found.use(self.context)
        except (ssl.SSLError, ValueError) as error:
            raise SettingsError(f"{self._cert} and {self._key} are no certificate and its key: {error}") from error
        self._shown = found

    def _read(self) -> Certificate:
        try:
            return Certificate(Path(self._cert).read_bytes(), Path(self._key).read_bytes())
        except OSError as error:
            raise SettingsError(f"{error.filename}: {error.strerror}, expected a file in PEM") from error

    def _made(self) -> Certificate:
        now = dt.datetime.now(dt.UTC)
        good = self._shown is not None and self._shown.good(HOSTS, now)
        return self._shown if self._shown is not None and good else certificate.make(HOSTS, now)


def _trust(context: ssl.SSLContext, client_ca: str) -> None:
    try:
        context.load_verify_locations(client_ca)
    except (OSError, ValueError) as error:
        raise SettingsError(f"{client_ca}: {error}, expected certificates of CAs in PEM") from error
