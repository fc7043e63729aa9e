"""Asks the extender's status port; its answers are the types of `extender.wire.answers` and `listings`."""

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

from extender.cli.commands import DEFAULT_SERVER
from extender.cli.errors import CommandError
from protos.contract import names
from protos.contract.printable import printable, printable_json

TIMEOUT_S = 10.0
TOKEN = names.TOKEN_VARIABLE
LONGEST_WHY = 1000
"""Bytes of a refusal that are shown."""
PORT_FORWARD = "kubectl -n gangshare-system port-forward deploy/gangshare-scheduler 12346"
Read = TypeVar("Read")


def fetch(
    server: str, path: str, missing: str = "", *, query: Sequence[tuple[str, str]] = (), timeout_s: float = TIMEOUT_S
) -> bytes:
    """The JSON text at that path of the status port or the secure one; raises CommandError with what to do.

    Its strings are printable: they hold what tenants wrote, and are shown on a terminal.
    `missing` is what to say where the answer is that there is no such thing. The environment's GANGSHARE_TOKEN is sent
    as a bearer token.
    """
    if not server.startswith(("http://", "https://")):
        raise CommandError(f"server is {server!r}: expected a URL like {DEFAULT_SERVER}")
    url = f"{server.rstrip('/')}/{quote(path)}{'?' * bool(query)}{urlencode(query)}"
    request = urllib.request.Request(url, headers=_token(server))
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
        cause = getattr(error, "reason", error)
        raise CommandError(
            f"no extender answers at {server} ({cause}).\n"
            f"In another terminal: {PORT_FORWARD}\n"
            "Or name it by --server URL or GANGSHARE_SERVER."
        ) from error


def _token(server: str) -> dict[str, str]:
    token = os.environ.get(TOKEN, "")
    if not token:
        return {}
    if not server.startswith("https://"):
        raise CommandError(f"server is {server!r}: expected https://, or no {TOKEN}: others would read it on its way")
    return {"Authorization": f"Bearer {token}"}


def _refused(url: str, error: urllib.error.HTTPError) -> str:
    """What a port answered instead, and what to do about it."""
    why = printable(error.read(LONGEST_WHY).decode(errors="replace"))
    told = f"{url} answered {error.code} {error.reason}: {why or 'expected 200'}"
    match error.code:
        case HTTPStatus.UNAUTHORIZED:
            return f"{told}.\n{TOKEN} is to be a token of the cluster, as `kubectl create token ACCOUNT` prints one."
        case HTTPStatus.FORBIDDEN:
            return (
                f"{told}.\nEither ask by way of: {PORT_FORWARD}\n"
                f"or at the secure port (12349), with a {TOKEN} of somebody bound to the ClusterRole gangshare-viewer."
            )
    return told


def decode(body: bytes, shape: type[Read]) -> Read:
    """An answer of the status port as values; raises CommandError."""
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.DecodeError as error:
        raise CommandError(f"the status port answered something that is not its JSON: {error}") from error
