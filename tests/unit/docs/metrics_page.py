"""The page of the metrics, made of their tables: `python -m tests.unit.docs.metrics_page > docs/metrics.md`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from deviceplugin.usage import metrics as measured
from extender import metrics


def table() -> str:
    """The page of all metrics, in Markdown."""
    lines = [
        "# Metrics of the extender",
        "",
        f"The status port serves all metrics but `{metrics.INFO.name}` to everybody under `/metrics`. That one names "
        "the pods of tenants. The secure port serves it to callers with a token "
        "([operations](operations.md#the-status-port)), the status port on loopback only, or to "
        "everybody with `--open-allocations`.",
        "",
        *_rows(metrics.TABLE),
        "",
        "## Metrics of the measuring process",
        "",
        "The optional component `usage` ([measuring.md](measuring.md)) serves these on port 12351 under `/metrics`.",
        "",
        *_rows(measured.TABLE),
    ]
    return "\n".join(lines) + "\n"


def _rows(specs: Iterable[metrics.Spec | measured.Spec]) -> Iterator[str]:
    yield "| metric | type | labels | meaning |"
    yield "|---|---|---|---|"
    for spec in specs:
        total = "_total" if spec.kind == "counter" else ""
        yield f"| `{spec.name}{total}` | {spec.kind} | {', '.join(spec.labels)} | {spec.help} |"


if __name__ == "__main__":
    print(table(), end="")
