"""A stand-in for an OpenID Connect provider: whoever comes is logged in as the user that the test names.

OpenID Connect Core 1.0, sections 2 and 3.1; OpenID Connect Discovery 1.0, section 4; RFC 7515 and 7517 (ES256).
"""

from __future__ import annotations

import base64
import json
import secrets
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from tests.cluster import host
from tests.cluster.pki import Pair

CLIENT = "gangshare-page"


def encoded(given: bytes) -> str:
    """Base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(given).rstrip(b"=").decode()


class Issuer:
    """Serves HTTPS on a port of its own until `stop`."""

    def __init__(self, serving: Pair) -> None:
        self.port = host.free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self.user = "nobody"
        """Who is logged in next."""
        self.life_s = 3600
        """Of their token."""
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._codes: dict[str, dict[str, Any]] = {}
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                match parts.path:
                    case "/.well-known/openid-configuration":
                        self._json(issuer.configuration())
                    case "/keys":
                        self._json({"keys": [issuer.key()]})
                    case "/authorize":
                        self.send_response(302)
                        self.send_header("Location", issuer.logged_in(parse_qs(parts.query)))
                        self.end_headers()
                    case _:
                        self.send_error(404)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                self._json(issuer.tokens(parse_qs(body)["code"][0]))

            def _json(self, answer: object) -> None:
                body = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(serving.certificate, serving.key)
        self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def configuration(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        }

    def key(self) -> dict[str, str]:
        numbers = self._key.public_key().public_numbers()
        point = {"x": encoded(numbers.x.to_bytes(32, "big")), "y": encoded(numbers.y.to_bytes(32, "big"))}
        return {"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "1", **point}

    def logged_in(self, asked: dict[str, list[str]]) -> str:
        """Where the browser goes with a code for `user`."""
        code = secrets.token_hex(8)
        nonce = {"nonce": asked["nonce"][0]} if "nonce" in asked else {}
        self._codes[code] = {
            "sub": self.user,
            "name": self.user,
            "email": f"{self.user}@example.com",
            "email_verified": True,
            **nonce,
        }
        return f"{asked['redirect_uri'][0]}?{urlencode({'code': code, 'state': asked['state'][0]})}"

    def tokens(self, code: str) -> dict[str, Any]:
        claims, now = self._codes.pop(code), int(time.time())
        token = self._signed({"iss": self.url, "aud": CLIENT, "iat": now, "exp": now + self.life_s, **claims})
        return {"access_token": "unused", "token_type": "Bearer", "expires_in": self.life_s, "id_token": token}

    def _signed(self, claims: dict[str, Any]) -> str:
        head = {"alg": "ES256", "kid": "1", "typ": "JWT"}
        text = ".".join(encoded(json.dumps(part).encode()) for part in (head, claims))
        r, s = decode_dss_signature(self._key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{text}.{encoded(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"
