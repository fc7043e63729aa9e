"""The page of the metrics, made of their table: `python -m tests.unit.docs.metrics_page > docs/metrics.md`."""

from __future__ import annotations

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
        "| metric | type | labels | meaning |",
        "|---|---|---|---|",
    ]
    for kind, name, labels, text in metrics.TABLE:
        total = "_total" if kind == "counter" else ""
        lines.append(f"| `{name}{total}` | {kind} | {', '.join(labels)} | {text} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
