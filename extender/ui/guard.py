"""Whose requests are answered. Pure."""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Iterable
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import Protocol
from urllib.parse import parse_qs

COOKIE = "gangshare"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
"""The media types of static files, by the ends of their names. Others are not served."""
POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
ALWAYS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
"""Headers of every answer."""
Headers = Iterable[tuple[bytes, bytes]]
LONGEST_QUERY = 1000
_BEARER = re.compile(r"[A-Za-z0-9._~+/-]{1,16000}=*")
"""Source: RFC 6750, section 2.1. The length is ours."""
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")


def header(headers: Headers, name: bytes) -> str:
    """The first header of this name; "" if there is none."""
    return next((value.decode("latin-1") for key, value in headers if key.lower() == name), "")


class RefusedError(Exception):
    """The request is not answered; the sentence is for the viewer."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


class Door(Protocol):
    """Who may see the page."""

    def cookie(self, headers: Headers, path: str, query: bytes) -> bytes:
        """The cookie for a browser that this request lets in, b"" if it does not; raises RefusedError."""
        ...

    def viewer(self, headers: Headers) -> str:
        """Whose sight is shown; raises RefusedError for strangers."""
        ...


class Local:
    """The page on the machine of its one viewer."""

    def __init__(self, token: str, port: int) -> None:
        self.token, self.port = token, port
        self._one_time = ""

    def one_time(self) -> str:
        """A token that lets in the first browser that shows it."""
        self._one_time = secrets.token_urlsafe(32)
        return self._one_time

    def cookie(self, headers: Headers, path: str, query: bytes) -> bytes:
        """The query must have the token, as the URL that the command prints has it."""
        if not self._host_fits(headers):
            raise RefusedError("the Host is not this page: open the URL that the command prints", HTTPStatus.FORBIDDEN)
        given = parse_qs(query.decode("latin-1")).get("token", [""])[0] if len(query) < LONGEST_QUERY else ""
        if path != "/" or not (self._is_token(given) or self._spent(given)):
            return b""
        return f"{self._cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict".encode()

    def viewer(self, headers: Headers) -> str:
        """The cookie must have the token. There is one viewer."""
        if not self._knows(headers):
            raise RefusedError("open the URL that the command prints: it has the token", HTTPStatus.UNAUTHORIZED)
        return ""

    def _host_fits(self, headers: Headers) -> bool:
        """Whether the browser means this machine: a name that others resolve to it is refused."""
        return header(headers, b"host") in {f"{host}:{self.port}" for host in ("127.0.0.1", "localhost")}

    def _knows(self, headers: Headers) -> bool:
        try:
            cookies = SimpleCookie(header(headers, b"cookie")[:4000])
        except CookieError:
            return False
        found = cookies.get(self._cookie)
        return found is not None and self._is_token(found.value)

    @property
    def _cookie(self) -> str:
        return f"{COOKIE}-{self.port}"

    def _spent(self, given: str) -> bool:
        """Whether this is the one-time token, which is none any more."""
        if not self._one_time or not hmac.compare_digest(given.encode(), self._one_time.encode()):
            return False
        self._one_time = ""
        return True

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())


class Proxied:
    """The page behind a login proxy, which adds the viewer's bearer token to each request.

    What a token is good for, the API server says. The proxy must take this header of browsers away.
    """

    def cookie(self, headers: Headers, path: str, query: bytes) -> bytes:  # noqa: ARG002
        """The proxy lets browsers in, not we."""
        return b""

    def viewer(self, headers: Headers) -> str:
        """The viewer's token."""
        scheme, _, token = header(headers, b"authorization").partition(" ")
        if scheme.lower() != "bearer" or not _BEARER.fullmatch(token):
            sentence = "no bearer token: the login proxy must pass the user's token in the header Authorization"
            raise RefusedError(sentence, HTTPStatus.UNAUTHORIZED)
        return token


def static_name(path: str) -> str:
    """The file that a path names, relative to the folder; "" if it names none."""
    name = path.removeprefix("/") or "index.html"
    return name if _NAME.fullmatch(name) and media_type(name) else ""


def media_type(name: str) -> str:
    """The media type of a static file; "" if such files are not served."""
    return TYPES.get("." + name.rpartition(".")[2], "")
