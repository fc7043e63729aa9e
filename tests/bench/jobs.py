"""Recorded lists of jobs under all policies: the known ones against the figures of an independent implementation, ours
against them, with true run times, with noisy ones (three seeds) and with none; with restarts against what is published.
And how long it takes to go through a long line.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple, get_args

from rich.console import Console
from rich.table import Table

from extender.engine.queueing.line import Line, Turn, Waiter, due
from extender.sim.jobtrace import figures, replay, restarts, trace
from extender.sim.jobtrace.choices import Durations, Policy
from extender.sim.jobtrace.figures import Figures
from tests.bench.report import Figure

FOLDER = Path(__file__).parents[1] / "data" / "jobs"
GPUS = 8
LISTS = {"trace1": 8, "trace3": 8, "philly_2017-10-02_14d": 56, "philly_2017-11-13_14d": 24}
"""Nodes by list."""
ELSEWHERE: Mapping[tuple[str, Policy], tuple[float, float]] = {
    ("trace3", "fifo"): (991_215, 976_881),
    ("trace3", "skip"): (480_913, 1_418_722),
    ("trace3", "easy"): (411_805, 733_271),
    ("trace1", "fifo"): (11_001_202, 13_979_710),
    ("trace1", "skip"): (5_548_761, 14_005_091),
    ("trace1", "easy"): (6_890_054, 12_676_741),
    ("philly_2017-10-02_14d", "fifo"): (154_965, 101_264),
    ("philly_2017-10-02_14d", "skip"): (33_088, 451_530),
    ("philly_2017-10-02_14d", "easy"): (49_386, 101_772),
    ("philly_2017-11-13_14d", "fifo"): (308_306, 358_293),
    ("philly_2017-11-13_14d", "skip"): (42_716, 597_852),
    ("philly_2017-11-13_14d", "easy"): (106_902, 286_658),
}
"""Mean JCT and mean wait of jobs of more than 8 GPUs, in seconds, as an independent implementation has them."""
TIRESIAS = {"trace1": 3_330_371, "trace3": 347_213}
"""Mean JCT in seconds, published by Muri's authors (SIGCOMM 2022): it stops jobs and knows no run times."""
WITH_RUN_TIMES: tuple[Policy, ...] = ("easy", "gangshare")
"""Policies that ask for run times."""
RESTART_S = 60.0
OFF = 3.0
SEEDS = range(3)
WAITING, QUEUES, SHAPES = 10_000, 1_000, 15
"""Of the long line."""


class Case(NamedTuple):
    """One run."""

    which: str
    policy: Policy
    durations: Durations = "trace"
    seed: int = 0
    preempt: bool = False

    def __str__(self) -> str:
        known = f"noisy {self.seed}" if self.durations == "noisy" else self.durations
        return f"{self.which}, {self.policy}{' with restarts' if self.preempt else ''}, run times: {known}"


def run() -> list[Figure]:
    """Prints the table of all cases; the figures are those that have a mark."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        cases = sorted(_cases(), key=lambda case: case.which)
        found = dict(zip(cases, pool.map(_run, cases), strict=True))
    _show(found)
    return [*_baselines(found), *_ours(found), *_restarts(found), *_long_line()]


def _cases() -> Iterable[Case]:
    for which in LISTS:
        for policy in get_args(Policy):
            yield Case(which, policy)
        for policy in WITH_RUN_TIMES:
            yield from (Case(which, policy, "noisy", seed) for seed in SEEDS)
            yield Case(which, policy, "none")
    yield from (Case(which, "gangshare", known, preempt=True) for which in TIRESIAS for known in ("none", "trace"))


def _run(case: Case) -> tuple[Figures, float]:
    """What came out, and the CPU seconds that it took."""
    began, nodes = time.process_time(), LISTS[case.which]
    jobs = trace.with_expected(trace.read_jobs(FOLDER / f"{case.which}.csv.gz"), case.durations, case.seed)
    if case.preempt:
        ran = restarts.replay(jobs, nodes, GPUS, RESTART_S)
    else:
        ran = replay.replay(jobs, nodes, GPUS, case.policy)
    return figures.figures(case.policy, ran, nodes * GPUS), time.process_time() - began


def _show(found: Mapping[Case, tuple[Figures, float]]) -> None:
    table = Table(title="jobs: seconds")
    columns = ("list, policy", "mean JCT", "p95", "p99", "wait", "wait 1", "2-8", ">8", "used", "makespan", "CPU")
    for column in columns:
        table.add_column(column, justify="left" if column == "list, policy" else "right")
    for case, (told, seconds) in found.items():
        waits = (told.mean_wait_s, *told.wait_by_size.values())
        times = (told.mean_jct_s, told.p95_jct_s, told.p99_jct_s, *waits)
        shown = [*("-" if value is None else f"{value:,.0f}" for value in times), f"{told.utilisation:.1%}"]
        table.add_row(str(case), *shown, f"{told.makespan_s:,.0f}", f"{seconds:.1f}")
    Console(width=190).print(table)


def _large(told: Figures) -> float:
    wait = told.wait_by_size[">8"]
    assert wait is not None
    return wait


def _baselines(found: Mapping[Case, tuple[Figures, float]]) -> Iterable[Figure]:
    """How far the known policies are from the other implementation."""
    for (which, policy), (mean, large) in ELSEWHERE.items():
        told, _ = found[Case(which, policy)]
        off = max(abs(told.mean_jct_s / mean - 1), abs(_large(told) / large - 1))
        yield Figure(f"jobs {which}, {policy}: off an independent implementation", 100 * off, "%", mark=OFF)


def _ours(found: Mapping[Case, tuple[Figures, float]]) -> Iterable[Figure]:
    """Ours over the known policies, all of which are told the same; of seeds the worst."""
    for which in LISTS:
        skip, _ = found[Case(which, "skip")]
        for known in ("trace", "noisy"):
            cases = [case for case in found if case[:3] == (which, "gangshare", known) and not case.preempt]
            mean = max(found[case][0].mean_jct_s / skip.mean_jct_s for case in cases)
            large = max(_large(found[case][0]) / _large(found[case._replace(policy="easy")][0]) for case in cases)
            yield Figure(f"jobs {which}, run times {known}: mean JCT over that of skip", mean, "×", mark=1.0)
            yield Figure(f"jobs {which}, run times {known}: wait of >8 GPUs over that of easy", large, "×", mark=1.0)


def _restarts(found: Mapping[Case, tuple[Figures, float]]) -> Iterable[Figure]:
    for which, published in TIRESIAS.items():
        told, _ = found[Case(which, "gangshare", "none", preempt=True)]
        yield Figure(f"jobs {which} with restarts, run times none: mean JCT", told.mean_jct_s, "s", mark=published)


def _long_line() -> Iterable[Figure]:
    """Going through a line, in CPU time: while everybody starts, and while no shape fits."""
    draw, line, has = random.Random(1), Line(), Counter[str]()
    for name in range(WAITING):
        turn = Turn(0, due(name, draw.expovariate(1 / 3600)), name, name)
        line.join(Waiter(name, f"queue {draw.randrange(QUEUES)}", draw.randrange(SHAPES), turn))
    began = time.process_time()
    for waiter in line.walk(has.__getitem__):
        has[waiter.queue] += 1
    all_start = time.process_time()
    walk = line.walk(has.__getitem__)
    for waiter in walk:
        walk.leave_out(waiter.shape)
    none_fits = time.process_time()
    passed = f"jobs: a pass through {WAITING:,} waiting in {QUEUES:,} queues"
    yield Figure(f"{passed}, all start", 1000 * (all_start - began), "ms")
    yield Figure(f"{passed}, no shape fits", 1000 * (none_fits - all_start), "ms", mark=50.0)
