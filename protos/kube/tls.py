"""TLS to the API server, with certificates in files that are rotated."""

import ssl
import time
from dataclasses import dataclass, field
from pathlib import Path

from protos import files
from protos.kube.errors import CredentialsError

LOOK_S = 1.0
"""Seconds between checks of the certificate files."""


@dataclass
class Trust:
    """The TLS context of certificate files; rebuilt when a file is replaced.

    If the new files cannot be read, because a rotation is under way, the former context stays in use.
    """

    authority: str | None = None
    """The file of CA certificates in PEM; None for the CAs of the machine."""
    certificate: str | None = None
    key: str | None = None
    """The client certificate and its key, in PEM."""
    verify: bool = True
    _seen: tuple[object, ...] = field(default=(), init=False)
    _context: ssl.SSLContext | None = field(default=None, init=False)
    _looked: float = field(default=0.0, init=False)

    def context(self) -> ssl.SSLContext:
        """The context of these files, at most LOOK_S old; raises CredentialsError if they were never readable."""
        now = time.monotonic()
        if self._context is not None and now - self._looked < LOOK_S:
            return self._context
        self._looked = now
        seen = tuple((name, name and files.stamp(Path(name))) for name in (self.authority, self.certificate, self.key))
        if self._context is None or seen != self._seen:
            self._seen = seen
            try:
                self._context = self._build()
            except CredentialsError:
                if self._context is None:
                    raise
        return self._context

    def _build(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.authority)
        except OSError as error:
            raise CredentialsError(
                f"{self.authority}: expected the cluster's CA certificate in PEM ({error})"
            ) from error
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # cluster CAs often lack what Python 3.13 demands by default
        if not self.verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if self.certificate:
            try:
                context.load_cert_chain(self.certificate, self.key)
            except OSError as error:
                raise CredentialsError(
                    f"{self.certificate}: expected a client certificate with its key ({error})"
                ) from error
        return context
