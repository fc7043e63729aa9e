"""Runs inputs, and holds each against its limits of CPU time and memory.

An input of a decoder is made of a seed, the decoder's name and a number; the inputs of an engine of a seed and the
number of its world. So what fails is found again: both stand in the failure's message.
"""

from __future__ import annotations

import os
import resource
import signal
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from random import Random, randrange
from types import FrameType
from typing import NamedTuple

from tests.fuzz.decoders import CPU_S, LONGEST, TARGETS, Target, plain
from tests.fuzz.mutate import Mutator
from tests.fuzz.world import LIFE, World

SEED = int(os.environ.get("FUZZ_SEED", "1"))
"""Of the short run; it is the same each time, so that nobody's change fails for another's bug."""
FRESH = int(os.environ.get("FUZZ_SEED", randrange(2**32)))
"""Of the long run."""
STUCK_S = 20.0
"""After so much CPU time an input is taken for stuck."""
TRIES = 3
"""How often an input is run that took too long."""
MEMORY = 96 << 20
"""Bytes that one input may take while it is worked on."""
TRACED = 40
"""One of so many inputs is run with its memory traced; by the size of the process all are watched."""
SHOWN = 600
"""Bytes of an input that a failure shows."""


class FuzzError(AssertionError):
    """An input that did not end as it should."""


class Report(NamedTuple):
    """What was run."""

    name: str
    seed: int
    inputs: int
    refused: int
    slowest_s: float


def shares(inputs: int) -> dict[str, int]:
    """Of so many inputs those of each target, by name."""
    total = sum(target.share for target in TARGETS)
    return {target.name: max(1, inputs * target.share // total) for target in TARGETS}


def run(target: Target, inputs: int, seed: int) -> Report:
    """So many inputs of a decoder; raises FuzzError."""
    others, refused, slowest = plain(target.seeds), 0, 0.0
    for number in range(inputs):
        data = made(target, number, seed, others)
        what = f"{target.name}, input {number} of FUZZ_SEED={seed}"
        ended, spent = attempt(
            partial(_decoded, target, data), _told(what, data), target.cpu_s, traced=number % TRACED == 0
        )
        refused += not ended
        slowest = max(slowest, spent)
    return Report(target.name, seed, inputs, refused, slowest)


def live(numbers: Iterable[int], seed: int) -> Report:
    """The lives of engines; raises FuzzError."""
    inputs, refused, slowest = 0, 0, 0.0
    for number in numbers:
        spent, read = _lived(number, seed)
        for _ in range(TRIES - 1):
            if max(spent) <= CPU_S:
                break
            spent = list(map(min, spent, _lived(number, seed)[0]))
        if max(spent) > CPU_S:
            at = spent.index(max(spent))
            raise FuzzError(f"{spent[at]:.2f} s of CPU: world {number} of FUZZ_SEED={seed}, input {at}")
        inputs, refused, slowest = inputs + len(spent), refused + len(spent) - read, max(slowest, *spent)
    return Report("engine", seed, inputs, refused, slowest)


def _lived(number: int, seed: int) -> tuple[list[float], int]:
    """The CPU time of each input of a world, and how many could be read."""
    world, spent, read = World(seed, number), list[float](), 0

    def input_and_look() -> bool:
        found = world.input()
        world.sound()
        return found

    for at in range(LIFE):
        ended, seconds = attempt(input_and_look, f"world {number} of FUZZ_SEED={seed}, input {at}", CPU_S, again=False)
        spent.append(seconds)
        read += ended
    return spent, read


def made(target: Target, number: int, seed: int, others: Sequence[str]) -> bytes:
    """The input of this number: the first are the seeds themselves."""
    if number < len(target.seeds):
        return target.seeds[number].encode()
    random = Random(f"{seed} {target.name} {number}")
    return Mutator(random).changed(random.choice(target.seeds), others)


def _decoded(target: Target, data: bytes) -> bool:
    """Whether the input is taken; False if it is refused with an error that is stated."""
    try:
        target.decode(data)
    except target.states as error:
        if len(str(error)) > LONGEST:
            raise FuzzError(f"a sentence of {len(str(error))} characters: {str(error)[:200]}") from error
        return False
    return True


def attempt(
    work: Callable[[], bool], told: str, cpu_s: float, *, traced: bool = False, again: bool = True
) -> tuple[bool, float]:
    """Do the work on one input; what came of it, and its CPU time. Raises FuzzError.

    Work that took too long is done `again`: a machine has other work too.
    """
    before, spent = _size(), 0.0
    for _ in range(TRIES if again else 1):
        with _limited(told):
            began = time.process_time()
            try:
                ended = work()
            except Exception as error:
                raise FuzzError(f"{type(error).__name__}: {str(error)[:SHOWN]}: {told}") from error
            spent = time.process_time() - began
        if spent <= cpu_s:
            break
    else:
        if again:
            raise FuzzError(f"{spent:.2f} s of CPU: {told}")
    grown = max(_size() - before, _peak(work) if traced else 0)
    if grown > MEMORY:
        raise FuzzError(f"{grown >> 20} MiB: {told}")
    return ended, spent


def _told(what: str, data: bytes) -> str:
    return f"{what}: {data[:SHOWN]!r}{'…' if len(data) > SHOWN else ''}"


def _size() -> int:
    """The largest size of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _peak(work: Callable[[], bool]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@contextmanager
def _limited(told: str) -> Iterator[None]:
    """Stop work that would never end."""

    def stuck(_: int, __: FrameType | None) -> None:
        raise FuzzError(f"stuck for {STUCK_S:g} s: {told}")

    former = signal.signal(signal.SIGVTALRM, stuck)
    signal.setitimer(signal.ITIMER_VIRTUAL, STUCK_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, former)
