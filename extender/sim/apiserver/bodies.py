"""Bodies of requests: JSON, and the few objects that clients send as protobuf."""

from __future__ import annotations

from typing import Any

import msgspec
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError, Message

from extender.sim.apiserver import errors
from protos.kube.binding import MAGIC
from protos.kube.binding_pb2 import Binding, Unknown
from protos.kube.client import PROTOBUF
from protos.kube.eviction_pb2 import DeleteOptions, Eviction

_KINDS: dict[str, type[Message]] = {"Binding": Binding, "DeleteOptions": DeleteOptions, "Eviction": Eviction}


def decoded(data: bytes, content_type: str) -> Any:
    """The value of a body, an empty object without one. Raises ApiError 400 if it cannot be decoded."""
    if not data:
        return {}
    try:
        return _protobuf(data) if content_type == PROTOBUF else msgspec.json.decode(data)
    except (ValueError, DecodeError) as error:
        raise errors.bad_request(f"the body cannot be decoded as {content_type}: {error}") from error


def _protobuf(data: bytes) -> dict[str, Any]:
    if not data.startswith(MAGIC):
        raise ValueError(f"expected {MAGIC!r} before protobuf, got {data[: len(MAGIC)]!r}")
    whole = Unknown.FromString(data.removeprefix(MAGIC))
    kind = _KINDS.get(whole.type_meta.kind)
    if kind is None:
        raise ValueError(f"expected one of {', '.join(_KINDS)}, got {whole.type_meta.kind}")
    found: dict[str, Any] = MessageToDict(kind.FromString(whole.raw))
    for options in (found, found.get("deleteOptions") or {}):
        if "gracePeriodSeconds" in options:  # protobuf's JSON writes 64-bit numbers as text
            options["gracePeriodSeconds"] = int(options["gracePeriodSeconds"])
    return found
