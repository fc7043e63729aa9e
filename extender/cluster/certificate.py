"""A self-signed certificate, for a server that only the API server asks."""

import datetime as dt
import ipaddress
import os
import ssl

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LASTS = dt.timedelta(days=365)
RENEWED = dt.timedelta(days=60)
"""So long before it expires a new one is made."""
SKEW = dt.timedelta(hours=1)
"""The most that clocks may differ."""


class Certificate(msgspec.Struct, frozen=True):
    """A certificate and its private key, in PEM. A client that trusts the certificate trusts its server."""

    certificate: bytes
    key: bytes

    def good(self, hosts: tuple[str, ...], now: dt.datetime) -> bool:
        """Whether a server can use it, it is for these hosts, and it does not expire soon."""
        try:
            certificate = x509.load_pem_x509_certificate(self.certificate)
            key = serialization.load_pem_private_key(self.key, password=None)
            named = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            self.use(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        except (ValueError, TypeError, UnsupportedAlgorithm, x509.ExtensionNotFound, ssl.SSLError):
            return False
        matches = key.public_key() == certificate.public_key()
        lasts = certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc - RENEWED
        return matches and lasts and list(named) == _named(hosts)

    def use(self, context: ssl.SSLContext) -> None:
        """Make a server use it from now on, through memory: containers have no writable file system.

        Raises ssl.SSLError, and changes nothing, unless certificate and key belong together.
        """
        memory = os.memfd_create("certificate")
        with os.fdopen(memory, "wb") as file:
            file.write(self.certificate + b"\n" + self.key)
            file.flush()
            for each in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), context):  # one that fails keeps half of the pair
                each.load_cert_chain(f"/proc/self/fd/{memory}")


def make(hosts: tuple[str, ...], now: dt.datetime) -> Certificate:
    """A new certificate for these DNS names and IP addresses."""
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
    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return names
