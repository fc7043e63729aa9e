"""Errors of the API, as the Status objects that the real server answers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from extender.sim.apiserver.resources import Resource

Details = dict[str, Any]


class ApiError(Exception):
    """A refused request: HTTP code, machine-readable reason, message, details (kind, name, causes)."""

    def __init__(self, code: int, reason: str, message: str, details: Details | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message, details

    def status(self) -> dict[str, Any]:
        """The body of the answer."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
            **({"details": self.details} if self.details else {}),
        }


@contextlib.contextmanager
def tolerated(*codes: int) -> Iterator[None]:
    """Suppress ApiErrors with these codes."""
    try:
        yield
    except ApiError as error:
        if error.code not in codes:
            raise


def details(resource: Resource, name: str, suffix: str = "", **more: object) -> Details:
    """The details object: name, group (if not the core group), kind (the plural, as in the real server)."""
    group = {"group": resource.group} if resource.group else {}
    return {"name": name, **group, "kind": resource.plural + suffix, **more}


def not_found(resource: Resource, name: str) -> ApiError:
    """404: no such object."""
    return ApiError(404, "NotFound", f'{resource.qualified} "{name}" not found', details(resource, name))


def already_exists(resource: Resource, name: str) -> ApiError:
    """409: the name is taken."""
    return ApiError(409, "AlreadyExists", f'{resource.qualified} "{name}" already exists', details(resource, name))


def conflict(resource: Resource, name: str, why: str, suffix: str = "") -> ApiError:
    """409: the operation does not fit the state of the object."""
    message = f'Operation cannot be fulfilled on {resource.qualified}{suffix} "{name}": {why}'
    return ApiError(409, "Conflict", message, details(resource, name, suffix))


def wrong_uid(resource: Resource, key: str, name: str, wanted: str, found: str) -> ApiError:
    """409: the UID of a precondition differs."""
    why = (
        f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
    )
    return conflict(resource, name, why)


def invalid(resource: Resource, name: str, field: str, why: str) -> ApiError:
    """422: a field has an invalid value."""
    message = f'{resource.kind}{"." + resource.group if resource.group else ""} "{name}" is invalid: {field}: {why}'
    cause = {"reason": "FieldValueInvalid", "message": why, "field": field}
    about = {**details(resource, name), "kind": resource.kind, "causes": [cause]}
    return ApiError(422, "Invalid", message, about)


def forbidden(resource: Resource, name: str, why: str) -> ApiError:
    """403: an admission check refuses the object."""
    return ApiError(403, "Forbidden", f'{resource.qualified} "{name}" is forbidden: {why}', details(resource, name))


def expired(message: str) -> ApiError:
    """410: the resourceVersion is before the window of changes."""
    return ApiError(410, "Expired", message)


def not_allowed() -> ApiError:
    """405: the path has no such method."""
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def bad_request(message: str) -> ApiError:
    """400: the request is malformed."""
    return ApiError(400, "BadRequest", message)
