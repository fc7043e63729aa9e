"""Whether the API server vouches for a caller: a TokenReview says who it is, a SubjectAccessReview what it may.

Answers are remembered for a while, as the API server's own delegates do. Source: k8s.io/apiserver,
authentication.DelegatingAuthenticationOptions and authorization.DelegatingAuthorizationOptions.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import msgspec

from protos.kube.client import ApiClient, decoded

ALLOWED_S, DENIED_S = 30.0, 10.0
"""Seconds for which good and bad news is remembered."""
REMEMBERED = 512
"""Answers of each kind."""
AT_ONCE = 4
"""Reviews under way."""
A_SECOND = 20
"""Reviews begun within a second: strangers may send any number of tokens."""
ANSWER_S = 5.0
TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
T = TypeVar("T")


class TooManyReviews(Exception):
    """The API server is not asked as often as that."""


class User(msgspec.Struct, frozen=True):
    """Who somebody is, in the API server's words."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: User = User()


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False
    denied: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


_tokens, _access = msgspec.json.Decoder(_TokenReview), msgspec.json.Decoder(_AccessReview)


class _Memory(Generic[T]):
    """The latest answers, each until its time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()

    def get(self, key: Hashable) -> T | None:
        until, answer = self._known.get(key, (0.0, None))
        return answer if self._clock() < until else None

    def keep(self, key: Hashable, answer: T, seconds: float) -> T:
        self._known[key] = self._clock() + seconds, answer
        self._known.move_to_end(key)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return answer


class Reviews:
    """Asks the API server and remembers. Tokens themselves are not kept."""

    def __init__(self, client: ApiClient, clock: Callable[[], float]) -> None:
        self._client, self._clock = client, clock
        self._users = _Memory[_TokenStatus](clock)
        self._rights = _Memory[bool](clock)
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._second, self._begun = 0, 0

    async def user(self, token: str) -> User | None:
        """Whose token this is, None if it is nobody's; raises ApiError, TimeoutError, TooManyReviews."""
        key = hashlib.sha256(token.encode()).digest()
        found = self._users.get(key)
        if found is None:
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
            told = (await self._asked(TOKENS, body, _tokens)).status
            found = self._users.keep(key, told, ALLOWED_S if told.authenticated else DENIED_S)
        return found.user if found.authenticated else None

    async def allowed(self, user: User, path: str) -> bool:
        """Whether this user may get this path; raises ApiError, TimeoutError, TooManyReviews."""
        key = hashlib.sha256(msgspec.json.encode((user, path))).digest()
        found = self._rights.get(key)
        if found is None:
            named = {"user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra}
            spec = {**named, "nonResourceAttributes": {"path": path, "verb": "get"}}
            body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
            told = (await self._asked(ACCESS, body, _access)).status
            may = told.allowed and not told.denied
            found = self._rights.keep(key, may, ALLOWED_S if may else DENIED_S)
        return found

    async def _asked(self, path: str, body: object, decoder: msgspec.json.Decoder[T]) -> T:
        self._count()
        async with self._slots, asyncio.timeout(ANSWER_S):
            return decoded(f"POST {path}", await self._client.post(path, msgspec.json.encode(body)), decoder)

    def _count(self) -> None:
        second = int(self._clock())
        if second != self._second:
            self._second, self._begun = second, 0
        self._begun += 1
        if self._begun > A_SECOND:
            raise TooManyReviews(f"{A_SECOND} callers were looked up within a second: try again")
