"""A small synchronous client of the API server, for tests: JSON, one TLS connection a request, own errors."""

from __future__ import annotations

import copy
import http.client
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.cluster.pki import Pair

Json = dict[str, Any]


class ApiError(OSError):
    """The API server's refusal: `status` is the HTTP code, `reason` and `message` are from its Status object."""

    def __init__(self, verb: str, path: str, status: int, body: bytes) -> None:
        try:
            told = json.loads(body)
        except ValueError:
            told = {"message": body.decode(errors="replace")}
        self.status = status
        self.reason = str(told.get("reason", ""))
        self.message = str(told.get("message", ""))
        super().__init__(f"{verb} {path}: {status} {self.reason}: {self.message}")


class Api:
    """Requests as one user."""

    def __init__(self, port: int, ca: Path, *, certificate: Pair | None = None, token: str | None = None) -> None:
        self._port = port
        self._tls = ssl.create_default_context(cafile=str(ca))
        self._headers = {"Accept": "application/json"}
        if certificate:
            self._tls.load_cert_chain(certificate.certificate, certificate.key)
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def impersonate(self, user: str, group: str) -> Api:
        """Requests as somebody else."""
        twin = copy.copy(self)
        twin._headers = {**self._headers, "Impersonate-User": user, "Impersonate-Group": group}
        return twin

    def get(self, path: str, **query: str) -> Json:
        return self._json("GET", path, query)

    def items(self, path: str, **query: str) -> list[Json]:
        """The items of a list."""
        listed: list[Json] = self.get(path, **query)["items"]
        return listed

    def post(self, path: str, body: Mapping[str, Any]) -> Json:
        return self._json("POST", path, {}, body)

    def put(self, path: str, body: Mapping[str, Any]) -> Json:
        return self._json("PUT", path, {}, body)

    def patch(self, path: str, body: Mapping[str, Any], **query: str) -> Json:
        """A JSON merge patch."""
        return self._json("PATCH", path, query, body, "application/merge-patch+json")

    def delete(self, path: str, **query: str) -> Json:
        return self._json("DELETE", path, query)

    def text(self, path: str, **query: str) -> str:
        """The raw answer: logs, metrics, health."""
        return self._request("GET", path, query, None, "").decode(errors="replace")

    def _json(
        self,
        verb: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> Json:
        sent = None if body is None else json.dumps(body).encode()
        answer: Json = json.loads(self._request(verb, path, query, sent, content_type))
        return answer

    def _request(self, verb: str, path: str, query: Mapping[str, str], body: bytes | None, content_type: str) -> bytes:
        headers = self._headers | ({"Content-Type": content_type} if body is not None else {})
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, context=self._tls, timeout=30)
        try:
            connection.request(verb, f"{path}?{urlencode(query)}" if query else path, body, headers)
            response = connection.getresponse()
            answer = response.read()
        except http.client.HTTPException as error:
            raise ConnectionError(f"{verb} {path}: {error!r}") from error
        finally:
            connection.close()
        if response.status >= 400:
            raise ApiError(verb, path, response.status, answer)
        return answer
