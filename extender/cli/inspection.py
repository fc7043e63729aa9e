"""Reads the extender's status port. The types of its answers are in `extender.wire.answers` and `listings`."""

from __future__ import annotations

import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Sequence
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec

from extender.cli.errors import CommandError
from extender.cli.options import DEFAULT_SERVER, port_forward
from protos.contract import names
from protos.contract.printable import printable, printable_json

TIMEOUT_S = 10.0
TOKEN = names.TOKEN_VARIABLE
MAX_REFUSAL = 1000
"""Bytes of an error answer that are shown."""
Read = TypeVar("Read")


def fetch(
    server: str,
    path: str,
    missing: str = "",
    *,
    query: Sequence[tuple[str, str]] = (),
    timeout_s: float = TIMEOUT_S,
    body: bytes | None = None,
) -> bytes:
    """The JSON at a path of the status port or the secure port; raises CommandError that says what to do.

    Its strings are made printable: tenants wrote parts of them, and a terminal shows them. `missing` is the error for
    status 404; `body` is that of a POST. GANGSHARE_TOKEN, if set, is sent as a bearer token. If nobody listens at the
    default server, the aggregated API is asked.
    """
    if not server.startswith(("http://", "https://")):
        raise CommandError(f"server is {server!r}: expected a URL like {DEFAULT_SERVER}")
    url = f"{server.rstrip('/')}/{quote(path)}{'?' * bool(query)}{urlencode(query)}"
    request = urllib.request.Request(url, data=body, headers=_token(server))
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=timeout_s) as answer:
            return printable_json(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            if missing and error.code == HTTPStatus.NOT_FOUND:
                raise CommandError(missing) from error
            raise CommandError(_refused(url, error)) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        found = _through_api(path, missing, query, timeout_s, body) if server == DEFAULT_SERVER else None
        if found is not None:
            return printable_json(found)
        cause = getattr(error, "reason", error)
        raise CommandError(
            f"no extender answers at {server} ({cause}).\n"
            f"In another terminal: {port_forward()}\n"
            "Or name the extender with --server URL or GANGSHARE_SERVER.\n"
            "With manifests/components/visibility the API server answers for it, and you need neither."
        ) from error


def _through_api(
    path: str, missing: str, query: Sequence[tuple[str, str]], timeout_s: float, body: bytes | None
) -> bytes | None:
    from extender.cli import through_api  # its libraries are loaded only if they are needed

    return through_api.page(path, missing, query, timeout_s) if body is None else through_api.what_if(body)


def _token(server: str) -> dict[str, str]:
    token = os.environ.get(TOKEN, "")
    if not token:
        return {}
    if not server.startswith("https://"):
        raise CommandError(
            f"server is {server!r}: expected https://, or no {TOKEN}: others could read it on the network"
        )
    return {"Authorization": f"Bearer {token}"}


def _refused(url: str, error: urllib.error.HTTPError) -> str:
    """The error of an unexpected answer, with what to do about it."""
    why = printable(error.read(MAX_REFUSAL).decode(errors="replace"))
    answer = f"{url} answered {error.code} {error.reason}: {why or 'expected 200'}"
    match error.code:
        case HTTPStatus.UNAUTHORIZED:
            return f"{answer}.\n{TOKEN} must be a token of the cluster, as `kubectl create token ACCOUNT` prints it."
        case HTTPStatus.FORBIDDEN:
            return (
                f"{answer}.\nEither connect through: {port_forward()}\n"
                f"or use the secure port (12349) with the {TOKEN} of an account bound to ClusterRole gangshare-viewer."
            )
    return answer


def decode(body: bytes, shape: type[Read]) -> Read:
    """The decoded answer; raises CommandError."""
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.DecodeError as error:
        raise CommandError(f"the status port's answer is not its JSON: {error}") from error
