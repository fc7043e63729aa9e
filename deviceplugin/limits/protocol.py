"""What the plugin and the helper tell each other: one line of JSON each, on a connection of its own.

A request names a pod by its UID, and never a path: the helper finds the control group itself.
"""

from typing import Annotated

import msgspec

from deviceplugin.helper_lines import RefusalError, Version, read
from protos.contract import codec
from protos.contract.bounds import GPU_AMOUNT, GPUS_PER_NODE
from protos.contract.inventory import Uuid

DEFAULT_SOCKET = "/run/gangshare/limits/limits.sock"

Pod = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f-]{32,36}$")]
Container = Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{64})?$")]
Mib = Annotated[int, msgspec.Meta(ge=1, le=GPU_AMOUNT.most)]


class Hello(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="ask", tag="hello"):
    """Whether the helper can set limits on this node."""

    v: Version = codec.VERSION


class Limit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="ask", tag="limit", kw_only=True):
    """Set the memory limits of a pod, or of one of its containers."""

    v: Version = codec.VERSION
    pod: Pod
    container: Container = ""
    """The runtime's ID of the container, "" for the whole pod."""
    mib: Annotated[dict[Uuid, Mib], msgspec.Meta(min_length=1, max_length=GPUS_PER_NODE.most)]
    """By GPU."""


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What came of it."""

    v: Version = codec.VERSION
    why: str = ""
    """Why it was not done, "" if it was."""


Request = Hello | Limit


class LimitError(RefusalError):
    """A limit is not set; the message says why."""


_request: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
_answer = msgspec.json.Decoder(Answer)


def request(text: bytes) -> Request:
    """The request in a line; raises LimitError."""
    return read(text, _request, LimitError, "not understood")


def answer(text: bytes) -> Answer:
    """The answer in a line; raises LimitError."""
    return read(text, _answer, LimitError, "the helper's answer is not understood")
