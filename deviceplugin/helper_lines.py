"""The lines that the plugin and its helpers tell each other: bounded JSON, read with errors in a sentence."""

from collections.abc import Callable
from typing import Annotated, TypeVar

import msgspec

from deviceplugin.helper_socket import END
from protos.contract import codec
from protos.contract.bounds import HELPER_LINE
from protos.contract.printable import brief

T = TypeVar("T")
SHOWN = 300
"""Characters of a sentence."""
Version = Annotated[int, msgspec.Meta(ge=codec.VERSION, le=codec.VERSION)]


class RefusalError(Exception):
    """The helper does not do it; the message says why."""

    def __init__(self, why: str) -> None:
        super().__init__(brief(why, SHOWN))


def line(message: msgspec.Struct) -> bytes:
    """The message as it is sent."""
    return msgspec.json.encode(message) + END


def read(text: bytes, decoder: msgspec.json.Decoder[T], refused: Callable[[str], RefusalError], wrong: str) -> T:
    """The message in a line; raises what `refused` makes of a sentence, which begins with `wrong` for bad JSON."""
    if len(text) > HELPER_LINE.most:
        raise refused(HELPER_LINE.exceeded(len(text)))
    try:
        return decoder.decode(text)
    except codec.BAD_JSON as error:
        raise refused(f"{wrong}: {error}") from error
