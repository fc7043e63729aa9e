"""`gangshare explain pod --scores`: the scores of a pod on nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from extender.cli import console
from extender.wire.answers import Pod

COSTS = "terms: thousandths of a GPU that it costs others; score: minus their sum, the highest is best"
EMPTINESS = "terms: thousandths; score: emptiness less links, the highest is best"
HERE = "; here: as if the pod were not there yet"


def lines(pod: Pod) -> Iterator[str]:
    """The best nodes for the pod and its own node, with its score on each and the score's terms."""
    if not pod.ranking:
        return
    names = list(dict.fromkeys(name for rank in pod.ranking for name in rank.terms))
    table = console.columns("NODE", "SCORE", *map(str.upper, names))
    for column in table.columns[1:]:
        column.justify = "right"
    for rank in pod.ranking:
        terms = (str(rank.terms[name]) if rank.terms else "–" for name in names)
        table.add_row(f"{rank.node} (here)" if rank.here else rank.node, str(rank.score), *terms)
    yield ""
    yield from (f"  {line}" for line in console.page(table).splitlines())
    units = EMPTINESS if "emptiness" in names else COSTS
    yield f"  {units}{HERE if any(rank.here for rank in pod.ranking) else ''}"
