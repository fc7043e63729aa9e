"""Which values hold when several sources declare a group: the stricter ones, in any order, with a sentence each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from sys import setprofile
from types import FrameType

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gangfilter.agreement import Agreement, combined
from gangfilter.group import LAXEST_FIRST, Declaration, Terms
from protos.contract.bounds import ROLES

POD_GROUP = "PodGroup scheduling.volcano.sh/v1beta1"
PODS = "pods' gangshare.io/*"


def agree(said: Iterable[Declaration]) -> Terms:
    return Agreement(said).terms()


def test_nobody_says_anything() -> None:
    assert agree(()) == Terms()
    assert agree((Declaration(source=PODS, queue="q"),)).min_member is None


def test_one_source_is_taken_at_its_word() -> None:
    said = Declaration(
        source=PODS, min_member=4, min_resources=(("cpu", 3000),), queue="q", priority_class="high",
        schedule_timeout_s=180.0, on_member_lost="restart", on_completion="launcher",
    )  # fmt: skip
    assert agree([said, said]) == Terms(
        min_member=4, min_resources=(("cpu", 3000),), queue="q", priority_class="high",
        schedule_timeout_s=180.0, on_member_lost="restart", on_completion="launcher",
    )  # fmt: skip


def test_the_stricter_holds_and_both_are_named() -> None:
    terms = agree(
        [
            Declaration(
                source=POD_GROUP, min_member=3, min_by_role=(("ps", 1), ("worker", 1)), queue="default",
                schedule_timeout_s=60.0, on_member_lost="restart", priority_class="high",
            ),
            Declaration(
                source=PODS, min_member=4, min_by_role=(("worker", 2),), min_resources=(("cpu", 1),), queue="team-a",
                schedule_timeout_s=30.0, on_member_lost="wait",
            ),
        ]
    )  # fmt: skip
    assert terms == Terms(
        min_member=4,
        min_by_role=(("ps", 1), ("worker", 2)),
        min_resources=(("cpu", 1),),
        queue="team-a",
        priority_class="high",
        schedule_timeout_s=30.0,
        on_member_lost="restart",
        conflicts=(
            f"the minimum differs: 3 by {POD_GROUP}, 4 by {PODS}; 4 holds",
            f"the queue differs: default by {POD_GROUP}, team-a by {PODS}; team-a holds",
            f"the time limit in seconds differs: 30.0 by {PODS}, 60.0 by {POD_GROUP}; 30.0 holds",
            f"the answer to a lost member differs: restart by {POD_GROUP}, wait by {PODS}; restart holds",
            f"the minimum of role worker differs: 1 by {POD_GROUP}, 2 by {PODS}; 2 holds",
        ),
    )


def test_members_that_differ_by_the_hundred_make_one_short_sentence() -> None:
    terms = agree(Declaration(source=PODS, min_member=n) for n in range(1, 501))
    assert terms.min_member == 500
    assert terms.conflicts == (
        f"the minimum differs: 1 by {PODS}, 2 by {PODS}, 3 by {PODS}, 4 by {PODS}, 496 more; 500 holds",
    )


def test_the_minimum_is_never_less_than_the_roles_together() -> None:
    roles = (("ps", 2), ("worker", 2))
    assert agree([Declaration(source=PODS, min_by_role=roles)]).min_member == 4
    assert agree([Declaration(source=PODS, min_by_role=roles, min_member=3)]).min_member == 4
    assert agree([Declaration(source=PODS, min_by_role=roles, min_member=5)]).min_member == 5


def test_what_cannot_be_read_is_told_with_the_conflicts() -> None:
    terms = agree([Declaration(source=PODS, problems=("b",)), Declaration(source=POD_GROUP, problems=("a", "b"))])
    assert terms.conflicts == ("a", "b")


def test_members_that_write_nonsense_by_the_hundred_make_few_sentences() -> None:
    terms = agree(Declaration(source=PODS, problems=(f"{n:03} is nonsense",)) for n in range(500))
    assert terms.conflicts == (*(f"{n:03} is nonsense" for n in range(4)), "496 more like these")


few = st.integers(1, 3)
amounts = st.dictionaries(st.sampled_from("abc"), few, max_size=3).map(lambda said: tuple(sorted(said.items())))
names = st.sampled_from(["", "default", "a", "b"])
declarations = st.builds(
    Declaration,
    source=st.sampled_from([POD_GROUP, PODS, "x"]),
    min_member=st.none() | few,
    min_by_role=amounts,
    min_resources=amounts,
    queue=names,
    priority_class=names,
    schedule_timeout_s=st.none() | few.map(float),
    on_member_lost=st.none() | st.sampled_from(LAXEST_FIRST),
    on_completion=names,
    problems=st.lists(st.sampled_from("pq"), unique=True, max_size=2).map(lambda told: tuple(sorted(told))),
)
several = st.lists(declarations, max_size=5)


@given(several, st.randoms(use_true_random=False))
def test_the_order_of_speaking_does_not_matter(said: list[Declaration], chance: Random) -> None:
    shuffled = said.copy()
    chance.shuffle(shuffled)
    assert agree(shuffled) == agree(said)


@given(several)
def test_saying_it_again_changes_nothing(said: list[Declaration]) -> None:
    assert agree(said + said) == agree(said)
    one, _ = combined(said)
    assert msgspec.structs.replace(agree([*said, one]), conflicts=()) == msgspec.structs.replace(
        agree(said), conflicts=()
    )


@given(several, declarations)
def test_one_more_voice_never_loosens(said: list[Declaration], more: Declaration) -> None:
    before, after = agree(said), agree([*said, more])
    assert (after.min_member or 0) >= (before.min_member or 0)
    assert all(dict(after.min_by_role)[role] >= least for role, least in before.min_by_role)
    assert (after.schedule_timeout_s or 9) <= (before.schedule_timeout_s or 9)


@given(st.lists(declarations, max_size=8), st.randoms(use_true_random=False))
def test_what_holds_is_the_same_whoever_came_and_went_before(said: list[Declaration], random: Random) -> None:
    kept = Agreement()
    for one in said:
        kept.add(one)
    stay = [one for one in said if random.random() < 0.5]
    gone = Counter(said) - Counter(stay)
    for one in gone.elements():
        kept.remove(one)
    assert kept.terms() == agree(stay)


def steps(work: Callable[[], object]) -> int:
    """The number of function calls, built-in functions included."""
    count = 0

    def called(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    setprofile(called)
    try:
        work()
    finally:
        setprofile(None)
    return count


def nonsense(n: int) -> Declaration:
    """A declaration that no other pod makes."""
    roles = tuple((f"role-{i:02}", 1 + n) for i in range(ROLES.most))
    return Declaration(source=PODS, min_by_role=roles, expected_runtime_s=1.0 + n, problems=(f"{n:05} is nonsense",))


def test_one_more_that_says_something_else_costs_no_more_the_more_there_are() -> None:
    known = Agreement()

    def one_more(n: int) -> None:
        known.add(nonsense(n))
        known.terms()

    one_more(0)
    one_more(1)
    few = steps(lambda: one_more(2))
    for n in range(3, 500):
        known.add(nonsense(n))
    assert steps(lambda: one_more(500)) <= 2 * few
    assert steps(lambda: known.remove(nonsense(250))) <= 2 * few


def test_of_more_roles_than_a_gang_may_have_the_first_count_and_it_is_told() -> None:
    said = [Declaration(source=PODS, min_by_role=((f"r{n:04}", 2),)) for n in range(ROLES.most + 100)]
    terms = agree(said)
    assert terms.min_by_role == tuple((f"r{n:04}", 2) for n in range(ROLES.most))
    assert terms.conflicts == ("roles of a gang: 164, expected at most 64",)
