"""The published curves of the default list, which a replay is drawn and held against."""

from __future__ import annotations

import csv
from importlib import resources

from extender.sim.openb.replay import Row

DATA = resources.files("extender.sim.openb") / "published.csv"


def curves() -> dict[str, list[Row]]:
    """By the published policy's name: means of ten seeds, a row per whole % that has arrived."""
    found: dict[str, list[Row]] = {}
    with DATA.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            means = float(row["alloc_pct_mean"]), float(row["frag_pct_of_idle_mean"])
            found.setdefault(row["policy"], []).append(Row(int(row["arrived_pct"]), *means))
    return found
