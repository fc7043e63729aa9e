"""Whom the secure port shows tenants' pods: those for whom the API server vouches."""

from __future__ import annotations

from http import HTTPStatus

import structlog

from extender.cluster.reviews import Reviews, TooManyReviews, User
from extender.server.desk import Refusal
from extender.server.pages import Guard, Request
from protos.kube.errors import ApiError

log = structlog.get_logger(__name__)


def vouched(reviews: Reviews) -> Guard:
    """Lets those pass whose bearer token the API server knows and who may get the path."""

    async def guard(request: Request) -> None:
        scheme, _, token = request.authorization.strip().partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Refusal(HTTPStatus.UNAUTHORIZED, "expected a bearer token: Authorization: Bearer TOKEN")
        try:
            user = await reviews.user(token)
            if user is None:
                raise Refusal(HTTPStatus.UNAUTHORIZED, "the API server does not know this bearer token")
            may = await reviews.allowed(user, request.path)
        except TooManyReviews as error:
            raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, str(error)) from error
        except (ApiError, TimeoutError) as error:
            log.warning("caller_not_reviewed", error=str(error) or "no answer in time")
            raise Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE, "the API server cannot check tokens now: try again"
            ) from error
        if not may:
            raise Refusal(HTTPStatus.FORBIDDEN, _forbidden(user, request.path))

    return guard


def _forbidden(user: User, path: str) -> str:
    role = "gangshare-metrics" if path == "/metrics" else "gangshare-viewer"
    return f"{user.username} may not get {path}: expected a ClusterRole with this nonResourceURL, as {role} has it"
