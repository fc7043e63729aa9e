"""The errors of requests to the API server.

Each is an `ApiError`; errors of the HTTP library are chained as causes.
"""

import msgspec

from protos.contract.codec import BAD_JSON
from protos.contract.printable import brief

SHOWN = 256
"""Characters of a server's message that an error message repeats."""


class CredentialsError(Exception):
    """Unusable credentials, found before any request; the message has the file and what was expected."""

    def __init__(self, sentence: str) -> None:
        super().__init__(brief(sentence))


class ApiError(Exception):
    """A failed request.

    `status` is the HTTP status (0 without an answer). `reason` and `message` are those of the Status object ("" without
    one), cut to 256 characters.
    """

    def __init__(self, request: str, status: int = 0, reason: str = "", message: str = "") -> None:
        self.request, self.status = request, status
        self.reason, self.message = brief(reason, SHOWN), brief(message, SHOWN)
        parts = (str(status) if status else "", self.reason, self.message)
        super().__init__(f"{request}: {' '.join(part for part in parts if part)}")


class Unauthorized(ApiError):
    """401: the credentials are refused, also after they were read again."""


class Forbidden(ApiError):
    """403: the role lacks a right, or an admission policy denied the write."""


class NotFound(ApiError):
    """404: the object or the resource does not exist."""


class Conflict(ApiError):
    """409: a precondition of the write does not hold (uid, resourceVersion, already bound).

    Also 422 for a patch with the uid of another object, which the API server takes for an attempt to change it, and for
    the nomination of a pod that is bound by now (from Kubernetes 1.35 on).
    """


class AlreadyExists(Conflict):
    """409 of a create: an object of this name exists."""


class Gone(ApiError):
    """410: the resourceVersion or the continue token is too old; list again."""


class TooMany(ApiError):
    """429: refused, also after the retries that Retry-After requested."""


class Protected(TooMany):
    """429: a PodDisruptionBudget forbids the eviction; the server is not busy."""


class Unavailable(ApiError):
    """No answer, a broken answer, or a 5xx.

    `outcome_unknown`: the write may have been done; read the object to find out.
    """

    def __init__(
        self, request: str, status: int = 0, reason: str = "", message: str = "", *, outcome_unknown: bool = False
    ) -> None:
        super().__init__(request, status, reason, message)
        self.outcome_unknown = outcome_unknown


class Silent(Unavailable):
    """An open stream had no data until the timeout of its reader."""


class BadAnswer(ApiError):
    """The server's answer has an unexpected form; a write has been done."""


class Cause(msgspec.Struct, frozen=True):
    """A cause in the details of a Status, with the field of the object."""

    reason: str = ""
    field: str = ""


class Details(msgspec.Struct, frozen=True):
    """The details of a Status."""

    causes: tuple[Cause, ...] = ()


class Status(msgspec.Struct, frozen=True):
    """The meta/v1 Status object that the API server answers to a failed request."""

    kind: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: Details | None = None


_BY_CODE: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    429: TooMany,
}


def from_answer(request: str, code: int, body: bytes, *, write: bool) -> ApiError:
    """The error for an answer other than 2xx; `request` is the method and path for the message."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except BAD_JSON:
        status = Status()
    if status.kind != "Status":
        status = Status(message=body[: SHOWN + 1].decode(errors="replace"))
    return from_status(request, code, status, write=write)


def from_status(request: str, code: int, status: Status, *, write: bool) -> ApiError:
    """The error for a Status object, also for that of a watch's ERROR event."""
    reason, message = status.reason, status.message
    causes = status.details.causes if status.details else ()
    if code == 422 and any(cause.field in ("metadata.uid", "status.nominatedNodeName") for cause in causes):
        return Conflict(request, code, reason, message)
    if code == 429 and any(cause.reason == "DisruptionBudget" for cause in causes):
        return Protected(request, code, reason, message)
    if code >= 500:
        return Unavailable(request, code, reason, message, outcome_unknown=write)
    kind = AlreadyExists if reason == "AlreadyExists" else _BY_CODE.get(code, ApiError)
    return kind(request, code, reason, message)
