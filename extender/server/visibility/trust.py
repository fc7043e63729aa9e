"""Which requests come from the API server, and whose they are. Pure.

Source: client-go, transport.SetAuthProxyHeaders.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

from extender.cluster.front_proxy import FrontProxy
from extender.cluster.reviews import User
from extender.server.desk import Refusal

USER, UID, GROUP, EXTRA = b"x-remote-user", b"x-remote-uid", b"x-remote-group", b"x-remote-extra-"
Headers = Iterable[tuple[bytes, bytes]]


def caller(front_proxy: FrontProxy, certificate: Mapping[str, Any] | None, headers: Headers) -> User:
    """The user on whose behalf the front proxy asks; raises Refusal.

    `certificate` is the client's, as `ssl` tells it, and of a CA of the front proxy. Header names are in lower case.
    """
    name = common_name(certificate)
    if name is None or not front_proxy.is_named(name):
        expected = " or ".join(front_proxy.names) or "any name"
        sentence = f"the client certificate is of {name or 'nobody'}: expected the API server's front proxy, {expected}"
        raise Refusal(HTTPStatus.UNAUTHORIZED, sentence)
    try:
        found = user(headers)
    except UnicodeDecodeError as error:
        raise Refusal(HTTPStatus.UNAUTHORIZED, "the headers X-Remote-* are no UTF-8") from error
    if not found.username:
        raise Refusal(HTTPStatus.UNAUTHORIZED, "the header X-Remote-User is missing: expected the name of the user")
    return found


def common_name(certificate: Mapping[str, Any] | None) -> str | None:
    """The last common name of a certificate's subject, None without one."""
    names = [value for part in (certificate or {}).get("subject", ()) for key, value in part if key == "commonName"]
    return names[-1] if names else None


def user(headers: Headers) -> User:
    """The user that the headers name; raises UnicodeDecodeError."""
    name = uid = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}
    for key, value in headers:
        if key == USER:
            name = name or value.decode()
        elif key == UID:
            uid = uid or value.decode()
        elif key == GROUP:
            groups.append(value.decode())
        elif key.startswith(EXTRA):
            extra.setdefault(unquote(key[len(EXTRA) :].decode()), []).append(value.decode())
    return User(name, uid, tuple(groups), {key: tuple(values) for key, values in extra.items()})
