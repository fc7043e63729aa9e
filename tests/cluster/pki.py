"""One certificate authority a run, its certificates, and kubeconfig files."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Signs client and server certificates (EC P-256, valid for 30 days) into one folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        self._folder = folder
        self.ca = self._request("ca", "/CN=gangshare-test-ca", ["-addext", "keyUsage=critical,keyCertSign,cRLSign"])

    def issue(self, name: str, *, user: str, groups: Sequence[str] = (), sans: Sequence[str] = ()) -> Pair:
        """A certificate for `user` in `groups` (Kubernetes reads CN and O); `sans` such as `IP:127.0.0.1`."""
        subject = "".join(f"/O={group}" for group in groups) + f"/CN={user}"
        options = ["-CA", str(self.ca.certificate), "-CAkey", str(self.ca.key)]
        options += ["-addext", "basicConstraints=critical,CA:false"]
        options += ["-addext", "extendedKeyUsage=serverAuth,clientAuth"]
        if sans:
            options += ["-addext", "subjectAltName=" + ",".join(sans)]
        return self._request(name, subject, options)

    def signing_key(self, name: str) -> Pair:
        """A bare key pair (for ServiceAccount tokens); the certificate's place holds the public key."""
        pair = Pair(self._folder / f"{name}.pub", self._folder / f"{name}.key")
        _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(pair.key))
        _openssl("ec", "-in", str(pair.key), "-pubout", "-out", str(pair.certificate))
        return pair

    def _request(self, name: str, subject: str, options: Sequence[str]) -> Pair:
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        command = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"]
        _openssl(*command, "-subj", subject, "-keyout", str(pair.key), "-out", str(pair.certificate), *options)
        return pair


def write_kubeconfig(path: Path, *, server: str, ca: Path, user: Mapping[str, str]) -> Path:
    """A kubeconfig (JSON is YAML) with everything embedded; `user` as in the file format."""
    cluster = {"server": server, "certificate-authority-data": encoded(ca)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": dict(user)}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    path.write_text(json.dumps(config, indent=1))
    path.chmod(0o600)
    return path


def client_certificate(pair: Pair) -> dict[str, str]:
    """The user entry of a kubeconfig for this certificate."""
    return {"client-certificate-data": encoded(pair.certificate), "client-key-data": encoded(pair.key)}


def encoded(path: Path) -> str:
    """A file in base64."""
    return base64.b64encode(path.read_bytes()).decode()


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
