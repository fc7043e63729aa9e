"""What is set aside: objects over which the engine met an error of its own, so that it goes on with all others.

Work for one object stands in `with quarantine.over(subject, place):`, which is the one place where errors are caught.
What becomes of the object is `recovery`'s; until it is brought back nobody works for it. It is brought back when it
changes, and after a while: the error may have come of something else. A part of the engine is a subject too: one that
fails as a whole rests for a moment, and the others go on.

A MemoryError is nobody's: it goes through, as does whatever is no Exception.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import NamedTuple, TypeVar

import msgspec

from extender.engine.types import refusals
from extender.engine.types.subject import Subject
from protos.contract.reason import Reason

MOST = 4096
"""Subjects remembered at a time; past that the oldest is forgotten, and tried like any other."""
AGAIN_S, AGAIN_MOST_S = 60.0, 3600.0
"""Seconds after which an object is tried again that has not changed; doubled each time."""
REST_S, REST_MOST_S = 1.0, 60.0
"""Seconds for which a part of the engine rests; doubled each time."""
SOON_S = 1.0
"""The same for an object that has changed: it may change many times a second."""
CALM_S = 600.0
"""Seconds without another error after which one is forgotten."""
TELL_S, MOST_TOLD = 30.0, 5
"""Seconds between two tellings of one subject, and how many of all are told in a second; all are counted."""
LONGEST = 200
"""Characters of an error that are kept and shown."""


T = TypeVar("T")
R = TypeVar("R")


class CaughtError(NamedTuple):
    """An error, where it happened, and over what."""

    subject: Subject
    place: str
    error: Exception


class Quarantined(msgspec.Struct):
    """A subject that is set aside, or was a while ago."""

    place: str
    problem: str
    since: float
    again_at: float = 0.0
    """When it is tried again, whether it has changed or not."""
    out: bool = True
    """It is set aside at this moment."""
    faults: int = 0
    version: str = ""
    """The object's resourceVersion, where that is known."""
    changed: bool = True
    """It has changed since an error over it was told."""
    told_at: float = float("-inf")


class Over:
    """Catches what goes wrong in work for one subject."""

    __slots__ = ("_place", "_quarantine", "_subject")

    def __init__(self, quarantine: Quarantine, subject: Subject, place: str) -> None:
        self._quarantine, self._subject, self._place = quarantine, subject, place

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception) or isinstance(error, MemoryError):
            return False
        self._quarantine.caught(CaughtError(self._subject, self._place, error))
        return True


class Quarantine:
    """All subjects that are set aside."""

    def __init__(self, counters: Counter[tuple[str, str]]) -> None:
        self._counters = counters
        self.now = 0.0
        """The clock as of the step under way."""
        self._known: dict[Subject, Quarantined] = {}
        """Oldest first."""
        self._out: set[Subject] = set()
        self._caught: list[CaughtError] = []
        """What was caught and not settled yet."""
        self._second, self._told = 0.0, 0

    def __bool__(self) -> bool:
        """Whether anything is set aside, or was a while ago."""
        return bool(self._known)

    def __contains__(self, subject: Subject) -> bool:
        """Whether nobody is to work for this one."""
        return subject in self._out

    def over(self, subject: Subject, place: str) -> Over:
        """Sets the subject aside where the work inside raises; `place` is a constant word for logs and metrics."""
        return Over(self, subject, place)

    def part(self, place: str) -> Over:
        """The same for a part of the engine as a whole."""
        return Over(self, Subject("part", place), place)

    def rests(self, place: str) -> bool:
        """Whether this part of the engine failed a moment ago."""
        return bool(self._out) and Subject("part", place) in self._out

    def each(
        self, items: Iterable[T], subject: Callable[[T], Subject], place: str, work: Callable[[T], object]
    ) -> bool:
        """Do the work for each of these; one over which it fails is set aside, and the others come all the same.

        Returns whether it failed for none.
        """
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
        """What the work makes of each of these; None of one over which it fails, which is set aside."""
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
        """An error happened over a subject: it is set aside from this moment."""
        self._counters["faults", caught.place] += 1
        self._caught.append(caught)
        self._put(*caught)

    def along(self, subject: Subject, other: Subject) -> None:
        """This subject is set aside with another, whose error is told."""
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
        if not aside.out:
            aside.since = self.now
        first, most = (REST_S, REST_MOST_S) if subject.kind == "part" else (AGAIN_S, AGAIN_MOST_S)
        aside.place, aside.problem = place, f"{type(error).__name__}: {error}"[:LONGEST]
        aside.again_at = self.now + min(most, first * 2.0 ** min(aside.faults, 16))
        aside.faults += 1
        aside.out = True
        self._out.add(subject)

    def of(self, subject: Subject) -> Quarantined | None:
        """What is known of a subject that is set aside; None of any other."""
        return self._known.get(subject) if subject in self._out else None

    def all(self) -> Iterator[tuple[Subject, Quarantined]]:
        """All that are set aside, the parts of the engine that rest among them."""
        return ((subject, aside) for subject, aside in list(self._known.items()) if aside.out)

    def why(self, subject: Subject) -> Reason:
        """Why nobody works for this subject, for people."""
        aside, said = self._known.get(subject), refusals.SET_ASIDE
        return Reason(said.code, said.sentence, f"in {aside.place}: {aside.problem}" if aside is not None else "")

    # -- bringing back

    def seen(self, subject: Subject, version: str) -> None:
        """The object failed as it was at this resourceVersion."""
        aside = self._known.get(subject)
        if aside is not None:
            aside.version = version

    def changed(self, subject: Subject, version: str = "") -> bool:
        """The object was told anew; returns whether it may be another one than that which failed."""
        aside = self._known.get(subject)
        if aside is None:
            return True
        if version and version == aside.version:
            return False
        aside.version, aside.changed = version, True
        aside.again_at = min(aside.again_at, self.now + SOON_S)
        return True

    def release(self, subject: Subject) -> None:
        """It is tried again."""
        aside = self._known.get(subject)
        if aside is not None:
            aside.out = False
            self._out.discard(subject)

    def forget(self, subject: Subject) -> None:
        """The object is gone."""
        self._known.pop(subject, None)
        self._out.discard(subject)

    def due(self) -> list[Subject]:
        """Those that are to be tried again by now; forgets those with which all has been well for long."""
        if not self._known:
            return []
        for subject, aside in list(self._known.items()):
            if not aside.out and self.now >= aside.again_at + CALM_S:
                self.forget(subject)
        return [subject for subject, aside in self._known.items() if aside.out and self.now >= aside.again_at]

    # -- telling

    def taken(self) -> list[CaughtError]:
        """What was caught since this was asked last, the first of each subject."""
        caught, self._caught = self._caught, []
        return list({each.subject: each for each in reversed(caught)}.values())[::-1]

    def tells(self, subject: Subject) -> bool:
        """Whether the last error over this subject is to be told: once for each of its versions, and not too many."""
        aside = self._known.get(subject)
        if aside is None or not aside.changed or self.now < aside.told_at + TELL_S:
            return False
        if self.now >= self._second + 1.0:
            self._second, self._told = self.now, 0
        self._told += 1
        if self._told > MOST_TOLD:
            return False
        aside.told_at, aside.changed = self.now, False
        return True
