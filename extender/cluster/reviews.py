"""Who a caller is and what it may do, asked from the API server by TokenReview and SubjectAccessReview.

Answers are cached for a while, as the API server's own delegates do. Source: k8s.io/apiserver,
authentication.DelegatingAuthenticationOptions and authorization.DelegatingAuthorizationOptions.
"""

import asyncio
import hashlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from protos.kube import paths
from protos.kube.client import ApiClient, decoded

ALLOWED_S, DENIED_S, UNKNOWN_S = 30.0, 30.0, 10.0
"""Seconds for which a granted right, a denied one, and a token without a user are cached."""
REMEMBERED = 512
"""Cached users."""
REMEMBERED_RIGHTS = 16_384
"""Cached answers about what users may do."""
AT_ONCE = 4
"""The most reviews in flight."""
A_SECOND = 20
"""The most tokens reviewed within a second: strangers may send any number of them."""
RIGHTS_A_SECOND = 400
"""The most rights reviewed within a second: those of users whom the API server knows."""
OF_USER_A_SECOND = 150
"""The most rights of one user reviewed within a second, so that nobody takes the turns of all."""
ANSWER_S = 5.0


class TooManyReviews(Exception):
    """The API server is not asked more often."""


class User(msgspec.Struct, frozen=True):
    """A user as the API server knows it."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class Action(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a user wants to do with a resource. An empty namespace or name stands for all."""

    verb: str
    group: str
    version: str
    resource: str
    namespace: str = ""
    name: str = ""


class _Status(msgspec.Struct, frozen=True):
    """The status of a TokenReview (the first two fields) or of a SubjectAccessReview."""

    authenticated: bool = False
    user: User = User()
    allowed: bool = False
    denied: bool = False

    @property
    def allows(self) -> bool:
        return self.allowed and not self.denied


class _Review(msgspec.Struct, frozen=True):
    status: _Status = _Status()


_reviews = msgspec.json.Decoder(_Review)


class _Request(NamedTuple):
    path: str
    body: bytes


class _Cache:
    """The latest answers and when they expire, by the hash of the question; and the reviews of this second."""

    def __init__(self) -> None:
        self._answers: OrderedDict[bytes, tuple[float, _Status]] = OrderedDict()
        self._second, self._begun = 0, 0
        self._begun_of: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: bytes, now: float) -> _Status | None:
        expires, status = self._answers.get(key, (0.0, _Status()))
        return status if now < expires else None

    def put(self, key: bytes, expires: float, status: _Status, most: int) -> None:
        self._answers[key] = expires, status
        self._answers.move_to_end(key)
        if len(self._answers) > most:
            self._answers.popitem(last=False)

    def count(self, now: float, most: int, of: str) -> None:
        """Count a review `of` a user, "" if it is not known whose; raises TooManyReviews beyond the rates."""
        if int(now) != self._second:
            self._second, self._begun = int(now), 0
            self._begun_of.clear()
        if of and self._begun_of[of] >= OF_USER_A_SECOND:
            raise TooManyReviews(f"more than {OF_USER_A_SECOND} of your rights were asked within a second: try again")
        if self._begun >= most:
            raise TooManyReviews(f"more than {most} callers were looked up within a second: try again")
        self._begun += 1
        self._begun_of[of] += 1


class Reviews:
    """Asks the API server, within a rate, and caches its answers by hash: tokens themselves are not kept."""

    def __init__(self, client: ApiClient, clock: Callable[[], float]) -> None:
        self._client, self._clock = client, clock
        self._users, self._rights = _Cache(), _Cache()
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def user(self, token: str) -> User | None:
        """The user with this token, None if it is invalid; raises ApiError, TimeoutError, TooManyReviews."""
        body = _request("authentication.k8s.io/v1", "TokenReview", {"token": token})
        status = await self._reviewed(self._users, body, REMEMBERED, A_SECOND, UNKNOWN_S)
        return status.user if status.authenticated else None

    async def allowed(self, user: User, path: str) -> bool:
        """Whether this user may get this path; raises ApiError, TimeoutError, TooManyReviews."""
        return await self._may(user, {"nonResourceAttributes": {"path": path, "verb": "get"}})

    async def permitted(self, user: User, action: Action) -> bool:
        """Whether this user may do this; raises ApiError, TimeoutError, TooManyReviews."""
        return await self._may(user, {"resourceAttributes": action})

    async def _may(self, user: User, asked: Mapping[str, object]) -> bool:
        named = {"user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra}
        body = _request("authorization.k8s.io/v1", "SubjectAccessReview", {**named, **asked})
        status = await self._reviewed(
            self._rights, body, REMEMBERED_RIGHTS, RIGHTS_A_SECOND, DENIED_S, user.uid or user.username
        )
        return status.allows

    async def _reviewed(
        self, cache: _Cache, review: _Request, remembered: int, a_second: int, denied_s: float, of: str = ""
    ) -> _Status:
        key = hashlib.sha256(review.body).digest()
        known = cache.get(key, self._clock())
        if known is not None:
            return known
        cache.count(self._clock(), a_second, of)
        async with self._slots, asyncio.timeout(ANSWER_S):
            answer = await self._client.post(review.path, review.body)
        status = decoded(f"POST {review.path}", answer, _reviews).status
        good = status.authenticated or status.allows
        cache.put(key, self._clock() + (ALLOWED_S if good else denied_s), status, remembered)
        return status


def _request(api_version: str, kind: str, spec: object) -> _Request:
    body = msgspec.json.encode({"apiVersion": api_version, "kind": kind, "spec": spec})
    return _Request(paths.path(api_version, f"{kind.lower()}s"), body)
