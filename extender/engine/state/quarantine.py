"""Sets objects aside after an internal error, so that the engine goes on with all others.

Work for one object runs in `with quarantine.over(subject, place):`, or through `each` or `tried`. Only there errors are
caught. `recovery` handles the object; no work is done for it until it is released. It is released when it changes, or
after a while, since the error may have another cause. A part of the engine is a subject too: a part that fails as a
whole rests for a moment, and the others go on.

MemoryError, and what is no Exception, is not caught.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

import msgspec

from extender.engine.types import refusals
from extender.engine.types.subject import Subject
from protos.contract.reason import Reason

MOST = 4096
"""Subjects remembered; beyond that the oldest is forgotten and released."""
AGAIN_S, AGAIN_MOST_S = 60.0, 3600.0
"""Seconds until an unchanged object is retried, at first and at most; doubled each time."""
REST_S, REST_MOST_S = 1.0, 60.0
"""Seconds for which a part of the engine rests, at first and at most; doubled each time."""
SOON_S = 1.0
"""Seconds until a changed object is retried: it may change many times a second."""
CALM_S = 600.0
"""Seconds without an error after which a subject is forgotten."""
REPORT_S, MOST_REPORTED = 30.0, 5
"""Seconds between two reports of one subject, and reports of all in one second; the metric counts every error."""
LONGEST = 200
"""Characters of an error message that are kept."""

T = TypeVar("T")
R = TypeVar("R")


class CaughtError(NamedTuple):
    """An error over a subject, and the component in which it happened."""

    subject: Subject
    place: str
    error: Exception


class Quarantined(msgspec.Struct):
    """A subject that is in quarantine, or was recently."""

    place: str
    problem: str
    since: float
    again_at: float = 0.0
    """When it is retried, even if it has not changed."""
    faults: int = 0
    version: str = ""
    """The object's resourceVersion, if known."""
    changed: bool = True
    """It has changed since the last report."""
    reported_at: float = float("-inf")


class Over:
    """Catches errors in the work for one subject."""

    __slots__ = ("_place", "_quarantine", "_subject")

    def __init__(self, quarantine: Quarantine, subject: Subject, place: str) -> None:
        self._quarantine, self._subject, self._place = quarantine, subject, place

    def __enter__(self) -> None:
        return

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if not isinstance(error, Exception) or isinstance(error, MemoryError):
            return False
        self._quarantine.caught(CaughtError(self._subject, self._place, error))
        return True


class Quarantine:
    """All subjects in quarantine. A subject in `_out` is also in `_known`."""

    def __init__(self, counters: Counter[tuple[str, str]]) -> None:
        self._counters = counters
        self.now = 0.0
        """The time of the current step."""
        self._known: dict[Subject, Quarantined] = {}
        """Oldest first."""
        self._out: set[Subject] = set()
        self._caught: list[CaughtError] = []
        """Errors that `taken` has not returned yet."""
        self._second, self._reported = 0.0, 0

    def __bool__(self) -> bool:
        """Whether any subject is in quarantine, or was recently."""
        return bool(self._known)

    def __contains__(self, subject: Subject) -> bool:
        """Whether the subject is in quarantine."""
        return subject in self._out

    def over(self, subject: Subject, place: str) -> Over:
        """Sets the subject aside if the work inside raises; `place` is a constant word for logs and metrics."""
        return Over(self, subject, place)

    def part(self, place: str) -> Over:
        """Sets a part of the engine aside if the work inside raises."""
        return Over(self, Subject("part", place), place)

    def rests(self, place: str) -> bool:
        """Whether this part of the engine rests after an error."""
        return bool(self._out) and Subject("part", place) in self._out

    def each(
        self, items: Iterable[T], subject: Callable[[T], Subject], place: str, work: Callable[[T], object]
    ) -> bool:
        """Do the work for each item, and set the items aside for which it fails; returns whether none failed."""
        whole = True
        for item in items:
            try:
                work(item)
            except MemoryError:
                raise
            except Exception as error:
                self.caught(CaughtError(subject(item), place, error))
                whole = False
        return whole

    def tried(
        self, items: Iterable[T], subject: Callable[[T], Subject], place: str, work: Callable[[T], R]
    ) -> Iterator[R | None]:
        """The result of the work for each item; None for items for which it fails, which are set aside."""
        for item in items:
            try:
                made: R | None = work(item)
            except MemoryError:
                raise
            except Exception as error:
                self.caught(CaughtError(subject(item), place, error))
                made = None
            yield made

    def caught(self, caught: CaughtError) -> None:
        """Set a subject aside after an error."""
        self._counters["faults", caught.place] += 1
        self._caught.append(caught)
        self._put(*caught)

    def along(self, subject: Subject, other: Subject) -> None:
        """Set a subject aside together with another, whose error is reported."""
        aside = self._known.get(other)
        if aside is not None and subject not in self._out:
            self._put(subject, aside.place, RuntimeError(aside.problem))
            self._known[subject].changed = False

    def _put(self, subject: Subject, place: str, error: Exception) -> None:
        aside = self._known.get(subject)
        if aside is None:
            if len(self._known) >= MOST:
                self.forget(next(iter(self._known)))
            aside = self._known[subject] = Quarantined(place, "", self.now)
        if subject not in self._out:
            aside.since = self.now
        first, most = (REST_S, REST_MOST_S) if subject.kind == "part" else (AGAIN_S, AGAIN_MOST_S)
        aside.place, aside.problem = place, f"{type(error).__name__}: {error}"[:LONGEST]
        aside.again_at = self.now + min(most, first * 2.0 ** min(aside.faults, 16))
        aside.faults += 1
        self._out.add(subject)

    def of(self, subject: Subject) -> Quarantined | None:
        """The record of a subject in quarantine; None for any other."""
        return self._known.get(subject) if subject in self._out else None

    def all(self) -> Iterator[tuple[Subject, Quarantined]]:
        """All subjects in quarantine, including resting parts of the engine."""
        return ((subject, aside) for subject, aside in list(self._known.items()) if subject in self._out)

    def why(self, subject: Subject) -> Reason:
        """Why the subject is in quarantine, for people."""
        aside, reason = self._known.get(subject), refusals.SET_ASIDE
        return Reason(reason.code, reason.sentence, f"in {aside.place}: {aside.problem}" if aside is not None else "")

    # -- release

    def seen(self, subject: Subject, version: str) -> None:
        """The object failed at this resourceVersion."""
        aside = self._known.get(subject)
        if aside is not None:
            aside.version = version

    def changed(self, subject: Subject, version: str = "") -> bool:
        """The object was seen again; returns whether it may differ from the version that failed."""
        aside = self._known.get(subject)
        if aside is None:
            return True
        if version and version == aside.version:
            return False
        aside.version, aside.changed = version, True
        aside.again_at = min(aside.again_at, self.now + SOON_S)
        return True

    def release(self, subject: Subject) -> None:
        self._out.discard(subject)

    def forget(self, subject: Subject) -> None:
        self._known.pop(subject, None)
        self._out.discard(subject)

    def due(self) -> list[Subject]:
        """The subjects to retry now. Forgets released subjects that had no error for long."""
        if not self._known:
            return []
        for subject, aside in list(self._known.items()):
            if subject not in self._out and self.now >= aside.again_at + CALM_S:
                self.forget(subject)
        return [
            subject for subject in self._known if subject in self._out and self.now >= self._known[subject].again_at
        ]

    # -- reports

    def taken(self) -> list[CaughtError]:
        """The errors caught since the last call, the first of each subject."""
        caught, self._caught = self._caught, []
        return list({each.subject: each for each in reversed(caught)}.values())[::-1]

    def tells(self, subject: Subject) -> bool:
        """Whether to report the subject's last error: once for each version of the object, within the limits."""
        aside = self._known.get(subject)
        if aside is None or not aside.changed or self.now < aside.reported_at + REPORT_S:
            return False
        if self.now >= self._second + 1.0:
            self._second, self._reported = self.now, 0
        self._reported += 1
        if self._reported > MOST_REPORTED:
            return False
        aside.reported_at, aside.changed = self.now, False
        return True
