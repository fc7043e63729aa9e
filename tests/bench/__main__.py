"""`python -m tests.bench [NAME …]`: measure all budgets, or those named, and print them beside their marks.

`large` and `soak` are measured only when they are named.
"""

from __future__ import annotations

import importlib
import logging
import sys

import structlog

from tests.bench.report import show
from tests.cluster.assets import MissingAsset

BENCHES = (
    "decisions",
    "variety",
    "links",
    "throughput",
    "mixed",
    "latency",
    "start",
    "allocate",
    "wake",
    "planning",
    "queues",
    "preemption",
    "evictions",
    "backfill",
    "gang",
    "hundred",
    "shapes",
    "beside",
    "waiting",
    "sample",
    "questions",
    "page",
    "explain",
    "openb",
    "jobs",
)
ON_REQUEST = ("large", "soak")


def main(wanted: list[str]) -> int:
    """Exit status: 0 if every mark holds."""
    known = BENCHES + ON_REQUEST
    if unknown := set(wanted) - set(known):
        print(f"no bench {', '.join(sorted(unknown))}: expected some of {', '.join(known)}", file=sys.stderr)
        return 2
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    figures, left_out = [], []
    for name in wanted or BENCHES:
        print(f"measuring {name} …", flush=True)
        try:
            figures += importlib.import_module(f"tests.bench.{name}").run()
        except MissingAsset as missing:
            left_out.append(f"left out: {name}: {missing}")
    holds = show(figures)
    print(*left_out, sep="\n", end="\n" if left_out else "")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
