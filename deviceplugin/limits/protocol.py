"""What the plugin and the helper tell each other: one line of JSON each, on a connection of its own.

A request names a pod by its UID, and never a path: the helper finds the control group itself.
"""

from typing import Annotated

import msgspec

from deviceplugin.helper_socket import END
from protos.contract import codec
from protos.contract.bounds import GPU_AMOUNT, GPUS_PER_NODE, HELPER_LINE
from protos.contract.inventory import Uuid
from protos.contract.printable import brief

DEFAULT_SOCKET = "/run/gangshare/limits/limits.sock"
SHOWN = 300
"""Characters of an answer's sentence."""

Pod = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f-]{32,36}$")]
Container = Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{64})?$")]
Mib = Annotated[int, msgspec.Meta(ge=1, le=GPU_AMOUNT.most)]
Version = Annotated[int, msgspec.Meta(ge=codec.VERSION, le=codec.VERSION)]


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


class LimitError(Exception):
    """A limit is not set; the message says why."""

    def __init__(self, why: str) -> None:
        super().__init__(brief(why, SHOWN))


_request = msgspec.json.Decoder(Request)
_answer = msgspec.json.Decoder(Answer)


def line(message: Request | Answer) -> bytes:
    """The message as it is sent."""
    return msgspec.json.encode(message) + END


def request(text: bytes) -> Request:
    """The request in a line; raises LimitError."""
    try:
        found: Request = _request.decode(_bounded(text))
    except codec.BAD_JSON as error:
        raise LimitError(f"not understood: {error}") from error
    return found


def answer(text: bytes) -> Answer:
    """The answer in a line; raises LimitError."""
    try:
        return _answer.decode(_bounded(text))
    except codec.BAD_JSON as error:
        raise LimitError(f"the helper's answer is not understood: {error}") from error


def _bounded(text: bytes) -> bytes:
    if len(text) > HELPER_LINE.most:
        raise LimitError(HELPER_LINE.exceeded(len(text)))
    return text
