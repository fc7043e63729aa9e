"""A certificate that vouches for itself, for a server that only the API server asks."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import ssl

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LASTS = dt.timedelta(days=365)
RENEWED = dt.timedelta(days=60)
"""Before its end another one is made."""
SKEW = dt.timedelta(hours=1)
"""By which clocks may differ."""


class Certificate(msgspec.Struct, frozen=True):
    """A certificate and its private key, in PEM; who trusts the certificate trusts its server."""

    certificate: bytes
    key: bytes

    def good(self, hosts: tuple[str, ...], now: dt.datetime) -> bool:
        """Whether it can be read, is for these hosts, and will be good for a while."""
        try:
            read = x509.load_pem_x509_certificate(self.certificate)
            key = serialization.load_pem_private_key(self.key, password=None)
            named = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except (ValueError, TypeError, x509.ExtensionNotFound):
            return False
        ours = key.public_key() == read.public_key()
        lasts = read.not_valid_before_utc <= now <= read.not_valid_after_utc - RENEWED
        return ours and lasts and list(named) == _named(hosts)

    def use(self, context: ssl.SSLContext) -> None:
        """Have a server show it from now on. It is in no file: containers have no writable file system."""
        memory = os.memfd_create("certificate")
        with os.fdopen(memory, "wb") as file:
            file.write(self.certificate + self.key)
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{memory}")


def make(hosts: tuple[str, ...], now: dt.datetime) -> Certificate:
    """A new one for these DNS names and IP addresses."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
    made = (
        x509.CertificateBuilder(issuer_name=name, subject_name=name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + LASTS)
        .add_extension(x509.SubjectAlternativeName(_named(hosts)), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    return Certificate(made.public_bytes(pem), key.private_bytes(pem, *form))


def _named(hosts: tuple[str, ...]) -> list[x509.GeneralName]:
    return [_general(host) for host in hosts]


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
