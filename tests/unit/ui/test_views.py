"""What the page shows of the books, and what of it has changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.ui import changes, views
from extender.ui.changes import MOST_KEPT, History, Seen
from extender.wire import listings, page
from extender.wire.answers import Gpu, Holder, Link, Node, NodePage, WaitingPod

POD = Holder(namespace="team-a", name="p", uid="u", mem=4, slices=0, whole=False)
NAMELESS = Holder(uid="v", mem=4, slices=0, whole=False)
KEPT = Holder(uid="w", mem=4, slices=0, whole=False, kept=True)


def gpu(**fields: object) -> page.Gpu:
    given = {"index": 0, "uuid": "GPU-0", "mem": 16, **fields}
    shown = views.node(views.full(Node(name="n", gpus=(Gpu(**given),))))  # type: ignore[arg-type]
    return shown.gpus[0]


def applied(old: Seen, change: page.Delta) -> Seen:
    """What a browser sees after a change."""
    nodes = {**old.nodes}
    for name, node in change.nodes.items():
        if node is None:
            nodes.pop(name, None)
        else:
            nodes[name] = node
    return Seen(
        nodes,
        change.queues if change.queues is not None else old.queues,
        change.workloads if change.workloads is not None else old.workloads,
        change.limits if change.limits is not None else old.limits,
    )


def test_a_gpu_is_drawn_by_what_sits_on_it() -> None:
    assert gpu().state == "free"
    assert gpu(pods=(POD,), mem_used=4).state == "part"
    assert gpu(pods=(POD,), mem_used=16, whole=True).state == "whole"
    assert gpu(index=257, profile="1g.10gb", pods=(POD,), mem_used=4).state == "mig"
    assert gpu(index=257, profile="1g.10gb").state == "free"
    assert gpu(health="unhealthy", pods=(POD,)).state == "sick"
    assert gpu(cordoned=True).state == "cordoned"
    assert gpu(pods=(KEPT,)).state == "kept"
    assert gpu(other_pods=1, mem_used=4).state == "part"


def test_amounts_are_in_mib_and_hidden_pods_have_no_name() -> None:
    shown = gpu(pods=(POD, NAMELESS), mem_used=8, other_pods=2)
    assert (shown.memory, shown.used, shown.others) == (16 * 1024, 8 * 1024, 2)
    assert [(each.pod, each.memory) for each in shown.holders] == [("team-a/p", 4096), (None, 4096)]


def test_links_are_a_table_of_the_gpus_that_have_some() -> None:
    links = (Link(gpus=(2, 0), kind="NV4"), Link(gpus=(0, 1), kind="SYS\x1b"))
    table = views.links(NodePage(name="n", links=links))
    assert table.gpus == ("0", "1", "2")
    assert table.rows == (("", "SYS\ufffd", "NV4"), ("SYS\ufffd", "", ""), ("NV4", "", ""))
    assert views.links(NodePage(name="n")) == page.Links()


def test_names_of_tenants_are_printable_and_short() -> None:
    assert views.text("a\x1b[2J\u202eb") == "a\ufffd[2J\ufffdb"
    assert len(views.text("x" * 5000)) == views.MOST_TEXT + 1


def test_a_queue_borrows_beyond_its_quota_and_lends_what_it_does_not_ask_for() -> None:
    borrower = listings.Queue(name="a", deserved={"gpus": "4"}, allocated={"gpus": "6.5"}, requested={"gpus": "7"})
    lender = listings.Queue(name="b", guarantee={"gpus": "4"}, allocated={"gpus": "1"}, requested={"gpus": "1.5"})
    free = views.queue(listings.Queue(name="c", capability={"gpus": "unlimited"}))
    assert views.queue(borrower).borrowed == 2.5
    assert views.queue(lender).lent == 2.5
    assert (free.gpus, free.limit, free.borrowed, free.lent) == (None, None, 0.0, 0.0)


def test_only_so_many_workloads_are_shown() -> None:
    pods = [WaitingPod(namespace="a", name=f"p{number}", uid=str(number)) for number in range(5)]
    assert [each.name for each in views.workloads((), reversed(pods), 2)] == ["p0", "p1"]


nodes = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["ok", "cordoned"])).map(
    lambda found: {name: page.Node(name=name, state=state) for name, state in found.items()}  # type: ignore[arg-type]
)
queues = st.lists(st.sampled_from("xyz"), max_size=3).map(lambda names: tuple(page.Queue(name=name) for name in names))
sights = st.builds(Seen, nodes, queues, st.just(()), st.lists(st.text(max_size=2), max_size=2).map(tuple), st.just(0.0))


@given(st.lists(sights, min_size=1, max_size=MOST_KEPT), st.integers(0, MOST_KEPT))
def test_the_deltas_since_any_cursor_make_the_old_sight_the_newest(sequence: list[Seen], start: int) -> None:
    history, at = History("life"), {}
    old = Seen()
    at[history.cursor] = old
    for new in sequence:
        history.add(old, new, 0.0)
        old = at[history.cursor] = new
    cursor = list(at)[start % len(at)]
    found = history.since(cursor)
    assert found is not None
    sight = at[cursor]
    for change in found:
        sight = applied(sight, change)
    assert sight == old


def test_waiting_longer_is_no_change() -> None:
    def seen(seconds: float) -> Seen:
        return Seen(workloads=(page.Workload(kind="pod", namespace="a", name="p", phase="Pending", seconds=seconds),))

    assert changes.delta(seen(1), seen(2), "c", 0.0) is None


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        (600.0, 590.0, False),
        (600.0, 580.0, False),
        (5.0, 0.0, False),
        (600.0, 7800.0, True),
        (600.0, 60.0, True),
        (None, 600.0, True),
        (600.0, None, True),
        (None, None, False),
    ],
)
def test_another_earliest_start_is_told(before: float | None, now: float | None, told: bool) -> None:
    """A job that overruns moves the start of the next; the page said that it starts at any moment."""

    def seen(start: float | None, at: float) -> Seen:
        waits = page.Workload(kind="pod", namespace="a", name="p", phase="Pending", earliest_start=start)
        return Seen(workloads=(waits,), at=at)

    assert (changes.delta(seen(before, 100.0), seen(now, 110.0), "c", 110.0) is not None) is told


def test_a_cursor_of_another_life_or_too_old_or_of_the_future_is_a_gap() -> None:
    history, old = History("life"), Seen()
    for number in range(MOST_KEPT + 2):
        new = Seen(limits=(str(number),))
        history.add(old, new, 0.0)
        old = new
    for cursor in ("", "life.0", "life.999", "other.32", "life.x", "life." + "9" * 5000, "life.²"):
        assert history.since(cursor) is None
    assert history.since(history.cursor) == []
    assert len(history.since("life.2") or ()) == MOST_KEPT
