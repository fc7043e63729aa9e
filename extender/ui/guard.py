"""Whose requests are answered. Pure."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from typing import NamedTuple
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
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")


def header(headers: Headers, name: bytes) -> str:
    """The first header of this name; "" if there is none."""
    return next((value.decode("latin-1") for key, value in headers if key.lower() == name), "")


class Local(NamedTuple):
    """The page on the machine of its one viewer."""

    token: str
    port: int

    def host_fits(self, headers: Headers) -> bool:
        """Whether the browser means this machine: a name that others resolve to it is refused."""
        return header(headers, b"host") in {f"{host}:{self.port}" for host in ("127.0.0.1", "localhost")}

    def opens(self, query: bytes) -> bool:
        """Whether the query has the token, as the URL that the command prints has it."""
        given = parse_qs(query.decode("latin-1")).get("token", [""])[0] if len(query) < 1000 else ""
        return self._is_token(given)

    def knows(self, headers: Headers) -> bool:
        """Whether the cookie has the token."""
        try:
            cookies = SimpleCookie(header(headers, b"cookie")[:4000])
        except CookieError:
            return False
        found = cookies.get(self._cookie)
        return found is not None and self._is_token(found.value)

    def cookie(self) -> bytes:
        """The header that lets the browser in from now on."""
        return f"{self._cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict".encode()

    @property
    def _cookie(self) -> str:
        return f"{COOKIE}-{self.port}"

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())


def static_name(path: str) -> str:
    """The file that a path names, relative to the folder; "" if it names none."""
    name = path.removeprefix("/") or "index.html"
    return name if _NAME.fullmatch(name) and media_type(name) else ""


def media_type(name: str) -> str:
    """The media type of a static file; "" if such files are not served."""
    return TYPES.get("." + name.rpartition(".")[2], "")
