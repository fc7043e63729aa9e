"""`python -m tests.bench [NAME …]`: measure all budgets, or those named, and print them beside their marks."""

from __future__ import annotations

import importlib
import logging
import sys

import structlog

from tests.bench.report import show

BENCHES = ("decisions",)


def main(wanted: list[str]) -> int:
    """Exit status: 0 if every mark holds."""
    if unknown := set(wanted) - set(BENCHES):
        print(f"no bench {', '.join(sorted(unknown))}: expected some of {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    figures = []
    for name in wanted or BENCHES:
        print(f"measuring {name} …", flush=True)
        figures += importlib.import_module(f"tests.bench.{name}").run()
    return 0 if show(figures) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
