"""Seeds and counts of what was run are told at the end."""

from __future__ import annotations

from collections import Counter
from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [*terminalreporter.stats.get("passed", ()), *terminalreporter.stats.get("failed", ())]
    told = [value for report in reports for name, value in report.user_properties if name == "fuzz"]
    if not told:
        return
    counts: Counter[str] = Counter()
    for each in told:
        counts[each["name"]] += each["inputs"]
    refused, slowest = sum(each["refused"] for each in told), max(each["slowest_s"] for each in told)
    seeds = ", ".join(str(seed) for seed in sorted({each["seed"] for each in told}))
    terminalreporter.section("fuzz")
    terminalreporter.write_line(
        f"{counts.total()} inputs of FUZZ_SEED={seeds}, {refused} of them refused, {slowest:.2f} s of CPU at most: "
        + ", ".join(f"{name} {count}" for name, count in counts.items())
    )
