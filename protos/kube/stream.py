"""What came over a connection, for those who know the API server only: endless answers in chunks, and ApiErrors."""

from types import TracebackType
from typing import Self

from protos.kube import errors
from protos.kube.connection import Connection
from protos.kube.errors import CredentialsError
from protos.kube.http1 import NotConnected


class Translated:
    """Raises connection errors as ApiErrors; without a connection a write has certainly not been done."""

    def __init__(self, request: str, *, write: bool) -> None:
        self._request, self._write = request, write

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        if isinstance(error, CredentialsError):
            raise errors.Unauthorized(self._request, 401, "CredentialsError", str(error)) from error
        if isinstance(error, NotConnected):
            raise errors.Unavailable(self._request, message=str(error)) from error
        if isinstance(error, TimeoutError | OSError):
            text = str(error) or type(error).__name__
            raise errors.Unavailable(self._request, message=text, outcome_unknown=self._write) from error


class Stream:
    """The chunks of an endless answer, as an iterator.

    It raises Silent after `silence_s` seconds without data, and Unavailable for a broken connection.
    """

    def __init__(self, request: str, answer: Connection, silence_s: float) -> None:
        self._request, self._answer, self._silence_s = request, answer, silence_s

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        with Translated(self._request, write=False):
            try:
                chunk = await self._answer.chunk(self._silence_s)
            except TimeoutError as error:
                raise errors.Silent(self._request, message=f"nothing came for {self._silence_s:g} s") from error
        if not chunk:
            raise StopAsyncIteration
        return chunk

    def close(self) -> None:
        """Break the connection: whoever waits for a chunk gets Unavailable."""
        self._answer.close()
