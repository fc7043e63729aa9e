"""Who a caller is and what it may do, asked from the API server by TokenReview and SubjectAccessReview.

Answers are cached for a while, as the API server's own delegates do. Source: k8s.io/apiserver,
authentication.DelegatingAuthenticationOptions and authorization.DelegatingAuthorizationOptions.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from protos.kube import paths
from protos.kube.client import ApiClient, decoded

ALLOWED_S, DENIED_S = 30.0, 10.0
"""Seconds for which a granted and a denied answer is cached."""
REMEMBERED = 512
"""Cached answers of each kind."""
AT_ONCE = 4
"""The most reviews in flight."""
A_SECOND = 20
"""The most reviews begun within a second: strangers may send any number of tokens."""
ANSWER_S = 5.0


class TooManyReviews(Exception):
    """The API server is not asked more often."""


class User(msgspec.Struct, frozen=True):
    """A user as the API server knows it."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


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
_Cache = OrderedDict[bytes, tuple[float, _Status]]
"""The latest answers and when they expire, by the hash of the question."""


class Reviews:
    """Asks the API server, within a rate, and caches its answers by hash: tokens themselves are not kept."""

    def __init__(self, client: ApiClient, clock: Callable[[], float]) -> None:
        self._client, self._clock = client, clock
        self._users: _Cache = OrderedDict()
        self._rights: _Cache = OrderedDict()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._second, self._begun = 0, 0

    async def user(self, token: str) -> User | None:
        """The user with this token, None if it is invalid; raises ApiError, TimeoutError, TooManyReviews."""
        spec = {"token": token}
        status = await self._reviewed(self._users, "authentication.k8s.io/v1", "TokenReview", spec)
        return status.user if status.authenticated else None

    async def allowed(self, user: User, path: str) -> bool:
        """Whether this user may get this path; raises ApiError, TimeoutError, TooManyReviews."""
        named = {"user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra}
        spec = {**named, "nonResourceAttributes": {"path": path, "verb": "get"}}
        return (await self._reviewed(self._rights, "authorization.k8s.io/v1", "SubjectAccessReview", spec)).allows

    async def _reviewed(self, cache: _Cache, api_version: str, kind: str, spec: object) -> _Status:
        body = msgspec.json.encode({"apiVersion": api_version, "kind": kind, "spec": spec})
        key = hashlib.sha256(body).digest()
        expires, status = cache.get(key, (0.0, _Status()))
        if self._clock() < expires:
            return status
        self._count()
        where = paths.path(api_version, f"{kind.lower()}s")
        async with self._slots, asyncio.timeout(ANSWER_S):
            status = decoded(f"POST {where}", await self._client.post(where, body), _reviews).status
        good = status.authenticated or status.allows
        cache[key] = self._clock() + (ALLOWED_S if good else DENIED_S), status
        cache.move_to_end(key)
        if len(cache) > REMEMBERED:
            cache.popitem(last=False)
        return status

    def _count(self) -> None:
        """Count a review; raises TooManyReviews beyond the rate."""
        second = int(self._clock())
        if second != self._second:
            self._second, self._begun = second, 0
        self._begun += 1
        if self._begun > A_SECOND:
            raise TooManyReviews(f"more than {A_SECOND} callers were looked up within a second: try again")
