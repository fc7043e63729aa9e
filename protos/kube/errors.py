"""What a request to the API server can end in, other than its answer.

Every error of a request is an `ApiError`; callers never see those of the HTTP library, which are chained as causes.
"""

import msgspec

from protos.contract.codec import BAD_JSON
from protos.contract.printable import brief

SHOWN = 256
"""Characters of a server's message that an error repeats."""


class CredentialsError(Exception):
    """No usable credentials: names the file and what was expected of it. It comes before any request."""

    def __init__(self, sentence: str) -> None:
        super().__init__(brief(sentence))


class ApiError(Exception):
    """The API server did not do what was asked.

    `status` is the HTTP status (0 if there was no answer), `reason` the machine-readable word of the Status object
    ("" if there was none), `message` its sentence; both are cut to 256 characters.
    """

    def __init__(self, request: str, status: int = 0, reason: str = "", message: str = "") -> None:
        self.request, self.status = request, status
        self.reason, self.message = brief(reason, SHOWN), brief(message, SHOWN)
        parts = (str(status) if status else "", self.reason, self.message)
        super().__init__(f"{request}: {' '.join(part for part in parts if part)}")


class Unauthorized(ApiError):
    """401: the credentials were not accepted, also not after they were read anew."""


class Forbidden(ApiError):
    """403: the role lacks this right, or an admission policy denied the write."""


class NotFound(ApiError):
    """404: there is no such object, or no such resource."""


class Conflict(ApiError):
    """409: the object is in another state than the write presumed (uid, resourceVersion, already bound).

    422 where a patch carries the uid of another one: the API server takes that for an attempt to change it.
    """


class AlreadyExists(Conflict):
    """409 of a create: an object of that name is there."""


class Gone(ApiError):
    """410: the resourceVersion or the continue token is too old; list anew."""


class Invalid(ApiError):
    """400 or 422: the server does not understand the request, or the object breaks a rule."""


class TooMany(ApiError):
    """429: not done, and still refused after the waits that Retry-After asked for.

    `disruption_budget` tells an eviction that a PodDisruptionBudget forbids from a busy server.
    """

    def __init__(self, request: str, status: int, reason: str, message: str, *, disruption_budget: bool) -> None:
        super().__init__(request, status, reason, message)
        self.disruption_budget = disruption_budget


class Unavailable(ApiError):
    """No answer, a broken one, or a 5xx.

    `outcome_unknown` is true for a write that may have been done all the same: read the object to find out.
    """

    def __init__(
        self, request: str, status: int = 0, reason: str = "", message: str = "", *, outcome_unknown: bool = False
    ) -> None:
        super().__init__(request, status, reason, message)
        self.outcome_unknown = outcome_unknown


class Silent(Unavailable):
    """A stream is open and said nothing for as long as its reader waits."""


class BadAnswer(ApiError):
    """The server's answer is not of the expected form; for a write: it was done."""


class Cause(msgspec.Struct, frozen=True):
    """Of a Status' details: one cause, and which field of the object it is about."""

    reason: str = ""
    field: str = ""


class Details(msgspec.Struct, frozen=True):
    """Of a Status: the details that are read."""

    causes: tuple[Cause, ...] = ()


class Status(msgspec.Struct, frozen=True):
    """The meta/v1 Status object that the API server answers instead of the object asked for."""

    kind: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: Details | None = None


_BY_CODE: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
}


def from_answer(request: str, code: int, body: bytes, *, write: bool) -> ApiError:
    """The error that an answer other than 2xx stands for; `request` is its method and path, for the message."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except BAD_JSON:
        status = Status()
    if status.kind != "Status":
        status = Status(message=body[: SHOWN + 1].decode(errors="replace"))
    return from_status(request, code, status, write=write)


def from_status(request: str, code: int, status: Status, *, write: bool) -> ApiError:
    """The error that a Status object stands for; also that of a watch's ERROR event."""
    reason, message = status.reason, status.message
    causes = status.details.causes if status.details else ()
    if code == 422 and any(cause.field == "metadata.uid" for cause in causes):
        return Conflict(request, code, reason, message)
    if code == 429:
        budget = any(cause.reason == "DisruptionBudget" for cause in causes)
        return TooMany(request, code, reason, message, disruption_budget=budget)
    if code >= 500:
        return Unavailable(request, code, reason, message, outcome_unknown=write)
    kind = AlreadyExists if reason == "AlreadyExists" else _BY_CODE.get(code, ApiError)
    return kind(request, code, reason, message)
