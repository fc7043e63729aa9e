"""One gang through its phases: its minimum, its deadlines, and the members that count."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import pytest

from gangfilter import facts
from gangfilter.gang import Gang, Patience
from gangfilter.group import GroupKey, Terms
from gangfilter.members import Member, Stage
from gangfilter.minimum import lacking
from gangfilter.table import TRANSITIONS, Phase, Trigger
from protos.contract.objects import OwnerReference

PATIENCE = Patience(stuck_s=15, hold_s=60, again_s=10, gang_bind_timeout_s=30, doublings=3)


class Tale:
    """A gang whose members are named by a letter, and its clock."""

    def __init__(self, least: int | None = 2, **terms: object) -> None:
        self.gang = Gang(GroupKey("ns", "g"), PATIENCE, 0.0)
        self.gang.terms = Terms(min_member=least, **terms)  # type: ignore[arg-type]
        self.now = 0.0

    def come(self, names: Iterable[str], *, owner: str = "job", **fields: object) -> None:
        controller = OwnerReference(kind="Job", name=owner, uid=owner, controller=True) if owner else None
        for name in names:
            given = {"controller": controller, "created": self.now} | fields
            member = Member(uid=name, name=name, **given)  # type: ignore[arg-type]
            self.gang.join(member, self.now)
            self.gang.put(member, Stage.IDLE)

    def starts(self, names: str) -> None:
        """Until its Bindings are written."""
        self.runs()
        self.gang.start(dict.fromkeys(names, "n"), self.now)
        for name in names:
            self.gang.arrive(name, self.now)
        self.runs()
        for member in self.gang.at(Stage.IN_BIND):
            self.gang.post(member.uid, "n")

    def bound(self, names: str) -> list[Trigger]:
        for name in names:
            self.gang.bound(name, "n", self.gang.epoch, self.now)
        return self.runs()

    def runs(self, seconds: float = 0.0) -> list[Trigger]:
        """The triggers that move it on."""
        self.now += seconds
        found = []
        while (step := facts.step(self.gang, self.now)) is not None:
            found.append(step[1])
            assert len(found) < 10, "it never comes to rest"
        return found

    @property
    def phase(self) -> Phase:
        return self.gang.phase


def a_running(names: str = "ab", least: int = 2, **terms: object) -> Tale:
    tale = Tale(least, **terms)
    tale.come(names)
    tale.starts(names)
    tale.bound(names)
    assert tale.phase is Phase.RUNNING
    return tale


# -- the minimum


def test_the_minimum_is_a_number_of_members() -> None:
    tale = Tale(2)
    tale.come("a")
    assert tale.runs() == []
    tale.come("b")
    assert tale.runs() == [Trigger.COMPLETE]
    tale.gang.lose("a")
    assert tale.runs() == [Trigger.INCOMPLETE]


def test_a_gang_of_a_stateful_set_that_makes_one_pod_at_a_time_is_told_so() -> None:
    tale = Tale(3)
    tale.come("a", controller=OwnerReference(kind="StatefulSet", name="s", uid="s", controller=True))
    assert lacking(tale.gang) == (
        "1 of 3 members exist; a StatefulSet makes the next pod when this one runs: write podManagementPolicy: Parallel"
    )
    tale.come("b", controller=OwnerReference(kind="StatefulSet", name="s", uid="s", controller=True))
    assert lacking(tale.gang) == "2 of 3 members exist", "they come all at once, one after the other"


def test_a_gang_of_unknown_size_is_never_complete() -> None:
    tale = Tale(None)
    tale.come("abcdef")
    assert tale.runs(1e6) == []
    expected = "its number of members is unknown: expected gangshare.io/min-member, or a PodGroup"
    assert lacking(tale.gang) == f"{expected} {tale.gang.key}"


def test_the_minimum_of_each_role_counts_too() -> None:
    tale = Tale(3, min_by_role=(("ps", 1), ("worker", 2)))
    tale.come("abc", role="worker")
    assert tale.runs() == []
    assert lacking(tale.gang) == "0 of 1 ps exist"
    tale.come("p", role="ps")
    assert tale.runs() == [Trigger.COMPLETE]


def test_nobody_starts_without_those_that_are_required() -> None:
    tale = Tale(2)
    tale.come("abc")
    tale.come("l", required=True)
    tale.runs()
    tale.gang.start({"a": "n", "b": "n", "l": "n"}, 0.0)
    tale.gang.arrive("a", 0.0)
    tale.gang.arrive("b", 0.0)
    assert tale.runs() == []
    tale.gang.arrive("l", 0.0)
    assert tale.runs() == [Trigger.ALL_IN_BIND]


def test_a_start_planned_before_a_required_member_came_is_planned_anew() -> None:
    tale = Tale(2)
    tale.come("ab")
    tale.runs()
    tale.gang.start({"a": "n", "b": "n"}, 0.0)
    tale.come("l", required=True)
    assert tale.runs() == [Trigger.PLAN_INVALIDATED]


def test_once_started_only_as_many_required_ones_are_missed_as_the_start_had() -> None:
    tale = a_running()
    tale.come("l", required=True)
    assert tale.runs() == []
    whole = Tale(2)
    whole.come("ab")
    whole.come("l", required=True)
    whole.starts("abl")
    whole.bound("abl")
    whole.gang.lose("l")
    assert whole.runs() == [Trigger.LOST]


# -- deadlines


def test_a_start_is_given_up_when_nobody_comes_for_too_long() -> None:
    tale = Tale(2)
    tale.come("ab")
    tale.runs()
    tale.gang.start({"a": "n", "b": "n"}, tale.now)
    assert tale.runs(14.9) == []
    assert tale.runs(0.2) == [Trigger.STUCK]


def test_each_newcomer_gives_it_more_time_but_whoever_left_does_not() -> None:
    tale = Tale(3)
    tale.come("abc")
    tale.runs()
    tale.gang.start(dict.fromkeys("abc", "n"), tale.now)
    tale.runs(14)
    tale.gang.arrive("a", tale.now)
    assert tale.runs(14) == []
    tale.gang.leave("a")
    tale.gang.arrive("a", tale.now)
    assert tale.runs(2) == [Trigger.STUCK]


def test_no_bind_is_kept_waiting_for_longer_than_the_hold() -> None:
    names = "abcdefgh"
    tale = Tale(8)
    tale.come(names)
    tale.runs()
    tale.gang.start(dict.fromkeys(names, "n"), tale.now)
    for name in names[:7]:
        tale.gang.arrive(name, tale.now)
        facts = tale.runs(9)
    assert facts == [Trigger.STUCK]
    assert tale.now == 63


def test_after_a_start_that_came_to_nothing_it_waits_for_all_to_ask_again_or_a_while() -> None:
    tale = Tale(2)
    tale.come("ab")
    tale.runs()
    tale.gang.start({"a": "n", "b": "n"}, tale.now)
    tale.runs(16)
    assert not tale.gang.may_plan(tale.now)
    tale.gang.unasked.pop("a", None)
    assert not tale.gang.may_plan(tale.now)
    assert tale.gang.may_plan(tale.now + 10)
    tale.gang.unasked.pop("b", None)
    assert tale.gang.may_plan(tale.now)


def test_a_member_that_is_gone_need_not_ask_again() -> None:
    tale = Tale(2)
    tale.come("abc")
    tale.runs()
    tale.gang.start(dict.fromkeys("abc", "n"), tale.now)
    tale.runs(16)
    for name in "ab":
        tale.gang.unasked.pop(name, None)
    assert not tale.gang.may_plan(tale.now)
    tale.gang.lose("c")
    assert tale.gang.may_plan(tale.now)


def test_the_pause_doubles_and_ends_at_a_limit_and_with_a_run() -> None:
    tale = Tale(1)
    tale.come("a")
    tale.runs()
    pauses = []
    for _ in range(6):
        tale.gang.start({"a": "n"}, tale.now)
        tale.runs(16)
        began = tale.now
        while not tale.gang.may_plan(tale.now):
            tale.now += 1
        pauses.append(tale.now - began)
    assert pauses == [10, 20, 40, 80, 80, 80]
    tale.starts("a")
    tale.bound("a")
    tale.gang.lose("a")
    tale.runs()
    assert tale.gang.tries == 0


def test_a_start_whose_places_are_none_is_planned_anew_at_once() -> None:
    tale = Tale(2)
    tale.come("ab")
    tale.runs()
    tale.gang.start({"a": "n", "b": "n"}, tale.now)
    tale.gang.plan_invalidated = True
    assert tale.runs() == [Trigger.PLAN_INVALIDATED]
    for member in tale.gang.holding():
        tale.gang.put(member, Stage.IDLE)
    assert tale.gang.may_plan(tale.now)


def test_a_gang_whose_places_are_none_again_and_again_waits_and_holds_nothing_meanwhile() -> None:
    """kube-scheduler may refuse all that is planned: other gangs get their turn."""
    tale = Tale(2)
    tale.come("ab")
    tale.runs()
    for _ in range(PATIENCE.upsets):
        assert tale.gang.may_plan(tale.now)
        tale.gang.start(dict.fromkeys("ab", "n"), tale.now)
        tale.gang.plan_invalidated = True
        tale.runs()
    for pause in (10, 20):
        tale.gang.start(dict.fromkeys("ab", "n"), tale.now)
        tale.gang.plan_invalidated = True
        assert tale.runs() == [Trigger.PLAN_INVALIDATED]
        assert not tale.gang.may_plan(tale.now + pause - 1)
        tale.now += pause
        assert tale.gang.may_plan(tale.now)


def test_a_gang_that_is_not_whole_in_time_is_undone() -> None:
    tale = Tale(2)
    tale.come("ab")
    tale.starts("ab")
    tale.bound("a")
    assert tale.runs(29.9) == []
    assert tale.runs(0.2) == [Trigger.OVERDUE]
    assert tale.runs(100) == []
    tale.gang.put(tale.gang.members["b"], Stage.IDLE)
    tale.gang.put(tale.gang.members["a"], Stage.EVICTING)
    assert tale.runs() == []
    tale.gang.lose("a")
    assert tale.runs() == [Trigger.UNDONE]
    tale.come("c")
    tale.runs()
    assert not tale.gang.may_plan(tale.now - 100 + 9)
    assert tale.gang.may_plan(tale.now)


def test_a_gang_of_which_nobody_is_left_before_it_is_whole_begins_anew() -> None:
    tale = Tale(2)
    tale.come("ab")
    tale.starts("ab")
    tale.gang.lose("a")
    tale.gang.lose("b")
    assert tale.runs() == [Trigger.UNDONE]


def test_it_has_as_long_again_after_a_kubelet_has_refused_a_member_right_after_the_start() -> None:
    tale = a_running()
    tale.now += 20
    tale.gang.lose("a", refused=True)
    assert tale.runs() == [Trigger.LOST_EARLY]
    assert tale.runs(29.9) == []
    assert tale.runs(0.2) == [Trigger.OVERDUE]


def test_a_refusal_long_after_the_start_and_a_death_right_after_it_are_losses_like_others() -> None:
    late, dead = a_running(), a_running()
    late.now += 31
    late.gang.lose("a", refused=True)
    assert late.runs() == [Trigger.LOST]
    dead.gang.lose("a")
    assert dead.runs() == [Trigger.LOST]


def test_a_start_that_stands_by_is_given_up_at_once() -> None:
    tale = Tale(2)
    tale.come("ab")
    tale.runs()
    tale.gang.start({"a": "n", "b": "n"}, tale.now)
    tale.gang.give_up(tale.now)
    assert tale.runs() == [Trigger.STUCK]


def test_the_users_limit_counts_from_when_the_first_member_was_made() -> None:
    tale = Tale(3, schedule_timeout_s=60.0)
    tale.runs(500)
    tale.come("a", created=490.0)
    assert tale.runs(49) == []
    tale.come("b")
    assert tale.runs(2) == [Trigger.LIMIT]
    assert tale.runs(1000) == []
    tale.come("c")
    assert tale.runs() == [Trigger.RENEWED, Trigger.COMPLETE]


# -- life


def test_succeeded_members_count_and_the_work_is_done_when_all_have() -> None:
    tale = a_running("abc", 3)
    tale.gang.succeed("a")
    assert tale.gang.vanish("a")
    assert tale.runs() == []
    tale.gang.succeed("b")
    tale.gang.succeed("c")
    assert tale.runs() == [Trigger.DONE]


def test_a_gang_whose_last_member_failed_is_not_done() -> None:
    tale = a_running("abc", 3)
    tale.gang.succeed("a")
    tale.gang.succeed("b")
    tale.gang.lose("c")
    assert tale.runs() == [Trigger.LOST, Trigger.UNDONE]
    tale.come("d")
    assert tale.runs() == [Trigger.COMPLETE]


def test_a_role_whose_success_ends_it_ends_it() -> None:
    tale = Tale(3, on_completion="launcher")
    tale.come("ab", role="worker")
    tale.come("l", role="launcher")
    tale.starts("abl")
    tale.bound("abl")
    tale.gang.succeed("a")
    assert tale.runs() == []
    tale.gang.succeed("l")
    assert tale.runs() == [Trigger.DONE]


def test_a_role_whose_member_is_lost_has_not_succeeded_until_another_has_in_its_place() -> None:
    """Its controller replaces it a moment later: the other members are not evicted meanwhile."""
    tale = Tale(3, on_completion="worker")
    tale.come("p", role="ps")
    tale.come("ab", role="worker")
    tale.starts("pab")
    tale.bound("pab")
    tale.gang.succeed("a")
    tale.gang.lose("b")
    assert tale.runs() == [Trigger.LOST]
    tale.come("c", role="worker")
    assert tale.runs() == []
    tale.gang.post("c", "n")
    assert tale.bound("c") == [Trigger.WHOLE]
    tale.gang.succeed("c")
    assert tale.runs() == [Trigger.DONE]


def test_a_role_that_ends_it_need_not_wait_for_other_roles_nor_for_those_that_can_be_spared() -> None:
    lost = Tale(3, on_completion="launcher")
    lost.come("ab", role="worker")
    lost.come("l", role="launcher")
    lost.starts("abl")
    lost.bound("abl")
    lost.gang.lose("a")
    assert lost.runs() == [Trigger.LOST]
    lost.gang.succeed("l")
    assert lost.runs() == [Trigger.DONE]
    fewer = Tale(3, on_completion="worker")
    fewer.come("p", role="ps")
    fewer.come("abc", role="worker")
    fewer.starts("pabc")
    fewer.bound("pabc")
    fewer.gang.lose("a")
    for uid in "bc":
        assert fewer.runs() == []
        fewer.gang.succeed(uid)
    assert fewer.runs() == [Trigger.DONE]


def test_a_role_that_nobody_has_keeps_no_gang_from_being_done() -> None:
    tale = a_running(on_completion="driver")
    tale.gang.succeed("a")
    assert tale.runs() == []
    tale.gang.succeed("b")
    assert tale.runs() == [Trigger.DONE]


def test_a_completed_gang_begins_anew_with_new_members_only_and_when_nobody_is_left_of_it() -> None:
    tale = Tale(2, on_completion="launcher")
    tale.come("a", role="worker")
    tale.come("l", role="launcher")
    tale.starts("al")
    tale.bound("al")
    tale.gang.succeed("l")
    assert tale.runs() == [Trigger.DONE]
    tale.come("b", role="worker", owner="next")
    assert tale.runs() == []
    tale.gang.lose("a")
    assert tale.runs() == [Trigger.RENEWED]
    assert lacking(tale.gang) == "1 of 2 members exist"


def test_what_follows_a_loss_is_the_users_choice() -> None:
    wait, restart = a_running(), a_running(on_member_lost="restart")
    for tale in (wait, restart):
        tale.gang.lose("a")
    assert wait.runs() == [Trigger.LOST]
    assert restart.runs() == [Trigger.LOST, Trigger.RESTART]


def test_a_member_that_ends_is_lost_at_once() -> None:
    tale = a_running(on_member_lost="restart")
    tale.gang.put(tale.gang.members["a"], Stage.ABSENT)
    assert tale.runs() == [Trigger.LOST, Trigger.RESTART]


def test_nobody_is_taken_back_for_a_minimum_that_was_raised() -> None:
    tale = a_running(on_member_lost="restart")
    tale.gang.terms = Terms(min_member=3, on_member_lost="restart")
    assert tale.runs() == [Trigger.LOST]


def test_a_gang_with_members_that_nobody_makes_anew_is_not_restarted() -> None:
    tale = Tale(3, on_member_lost="restart")
    tale.come("ab")
    tale.come("x", owner="")
    tale.starts("abx")
    tale.bound("abx")
    tale.gang.lose("a")
    assert tale.runs() == [Trigger.LOST]


def test_undoing_ends_with_those_that_nobody_makes_anew() -> None:
    tale = Tale(2)
    tale.come("ab", owner="")
    tale.starts("ab")
    tale.bound("a")
    tale.gang.put(tale.gang.members["b"], Stage.IDLE)
    assert tale.runs(31) == [Trigger.OVERDUE, Trigger.STRANDED]
    tale.gang.post("b", "n")
    assert tale.bound("b") == [Trigger.WHOLE]


# -- members bound by another process


def test_members_bound_a_moment_ago_are_a_start_to_be_finished_in_what_is_left_of_its_time() -> None:
    tale = Tale(3)
    tale.now = 100.0
    tale.come("abc", created=50.0)
    tale.gang.bound("b", "n", 7, 85.0)
    tale.gang.bound("a", "n", 7, 80.0)
    assert tale.runs() == [Trigger.FOUND]
    assert tale.gang.epoch == 7
    assert tale.runs(9.9) == []
    assert tale.runs(0.2) == [Trigger.OVERDUE]


def test_the_time_is_that_of_the_latest_start() -> None:
    tale = Tale(3)
    tale.now = 100.0
    tale.come("abc", created=90.0)
    tale.gang.bound("a", "n", 6, 10.0)
    tale.gang.bound("b", "n", 7, 95.0)
    assert tale.runs() == [Trigger.FOUND]
    assert tale.runs(24) == []


def test_members_bound_long_ago_whose_replacements_wait_are_left_alone() -> None:
    tale = Tale(3, on_member_lost="restart")
    tale.now = 1000.0
    tale.come("ab", created=50.0)
    tale.come("c", created=900.0)
    tale.gang.bound("a", "n", 7, 60.0)
    tale.gang.bound("b", "n", 7, 999.0)
    assert tale.runs() == [Trigger.FOUND, Trigger.LOST]
    assert tale.phase is Phase.DEGRADED
    assert tale.runs(1000) == []


def test_members_bound_long_ago_without_one_that_was_there_are_finished_or_undone() -> None:
    tale = Tale(3)
    tale.now = 1000.0
    tale.come("abc", created=50.0)
    tale.gang.bound("a", "n", 7, 60.0)
    assert tale.runs() == [Trigger.FOUND]
    assert tale.runs(29.9) == []
    assert tale.runs(0.2) == [Trigger.OVERDUE]


def test_a_gang_that_others_started_as_a_whole_runs() -> None:
    tale = Tale(2)
    tale.come("ab")
    tale.gang.bound("a", "n", 0, 0.0)
    assert tale.runs() == [Trigger.COMPLETE]
    tale.gang.bound("b", "n", 0, 0.0)
    assert tale.runs() == [Trigger.FOUND, Trigger.WHOLE]


def test_members_bound_by_another_scheduler_are_no_start_and_never_removed() -> None:
    tale = Tale(2)
    tale.come("abc")
    tale.gang.bound("a", "n", 0, 0.0)
    tale.runs()
    assert tale.phase is Phase.WAITING
    assert not tale.gang.members["a"].removable


def test_members_that_succeeded_are_a_gang_that_is_done_unless_new_ones_wait() -> None:
    done, anew = Tale(2), Tale(2)
    for tale in (done, anew):
        tale.come("ab")
        tale.gang.succeed("a")
        tale.gang.succeed("b")
    anew.come("c", owner="next")
    assert done.runs() == [Trigger.DONE]
    assert anew.runs() == []
    assert lacking(anew.gang) == "1 of 2 members exist"


def test_those_that_succeeded_in_a_start_whose_others_still_run_count_whoever_made_them() -> None:
    tale = Tale(3)
    tale.come("ab", owner="job")
    tale.come("l", owner="launcher's job")
    tale.gang.members["l"].epoch = 7
    tale.gang.succeed("l")
    tale.gang.bound("a", "n", 7, 0.0)
    tale.gang.bound("b", "n", 7, 0.0)
    assert tale.runs() == [Trigger.FOUND, Trigger.WHOLE]


# -- preemption


def running(least: int, **terms: object) -> Tale:
    tale = Tale(least, **terms)
    tale.come("abc")
    for uid in "abc":
        tale.gang.bound(uid, "n", 7, 0.0)
    assert tale.runs()[-1] is Trigger.WHOLE
    return tale


def test_a_gang_whose_room_is_taken_goes_as_a_whole_and_begins_anew() -> None:
    tale = running(3)
    tale.gang.preempted = True
    for member in tale.gang.at(Stage.BOUND):
        tale.gang.put(member, Stage.EVICTING)
    assert tale.runs() == [Trigger.PREEMPTED]
    assert tale.runs(1000) == []
    for uid in "abc":
        tale.gang.lose(uid)
    assert tale.runs() == [Trigger.UNDONE]
    assert not tale.gang.preempted


def test_what_may_not_go_of_a_gang_whose_room_is_taken_stays_and_is_not_taken_back() -> None:
    tale = running(3)
    tale.gang.preempted = True
    tale.gang.put(tale.gang.members["a"], Stage.EVICTING)
    assert tale.runs() == [Trigger.PREEMPTED]
    tale.gang.lose("a")
    assert tale.runs() == [Trigger.STRANDED]
    assert tale.runs(1000) == []


# -- every transition, and arbitrary histories


def test_every_row_of_the_table_is_taken_and_the_tally_is_always_a_recount() -> None:
    """Arbitrary events happen to gangs, possible or not."""
    taken: Counter[tuple[Phase, Trigger]] = Counter()
    for seed in range(500):
        draw = random.Random(seed)
        tale = Tale(
            draw.choice([1, 2, 3]),
            on_member_lost=draw.choice(["wait", "restart", "ignore"]),
            on_completion=draw.choice(["", "", "l"]),
            schedule_timeout_s=draw.choice([None, 50.0]),
            min_by_role=draw.choice([(), (("l", 1),)]),
        )
        for step in range(80):
            waited = tale.phase is Phase.WAITING
            _anything(tale, draw, step)
            before = tale.phase
            taken[Phase.WAITING, Trigger.PLANNED] += waited and before is Phase.STARTING
            for fact in tale.runs(draw.choice([0, 0, 0, 1, 5, 20])):
                taken[before, fact] += 1
                before = TRANSITIONS[before, fact]
            members = tale.gang.members.values()
            recount = Counter((m.stage, m.role, m.required) for m in members)
            recount += Counter({(Stage.SUCCEEDED, *kind): count for kind, count in tale.gang._past.items()})
            assert tale.gang._tally == recount
            assert before is tale.phase
            assert tale.gang.timed or facts.fact(tale.gang, tale.now + 1e6) is None
    assert set(TRANSITIONS) - set(+taken) == set()


def _anything(tale: Tale, draw: random.Random, step: int) -> None:
    gang = tale.gang
    uid = draw.choice(sorted(gang.members)) if gang.members else ""
    what = draw.choice(
        ["come", "come", "come", "plan", "arrive", "arrive", "bound", "bound", "lose", "act", "act", "other"]
    )
    if what == "come" or not uid:
        role = draw.choice(["", "l"])
        tale.come([f"m{step}"], role=role, required=role == "l", owner=draw.choice(["job", "job", "next", ""]))
        if draw.random() < 0.1:
            gang.succeed(f"m{step}")
        return
    member = gang.members[uid]
    match what:
        case "plan" if gang.phase is Phase.WAITING:
            idle = gang.at(Stage.IDLE)
            gang.start({m.uid: "n" for m in draw.sample(idle, draw.randint(0, len(idle)))}, tale.now)
        case "arrive" if gang.phase is Phase.STARTING:
            for one in gang.at(Stage.PLANNED):
                gang.arrive(one.uid, tale.now)
        case "bound":
            for one in gang.at(Stage.POSTED):
                gang.bound(one.uid, "n", 0, tale.now)
        case "lose":
            if not gang.vanish(uid):
                gang.lose(uid, refused=draw.random() < 0.5)
        case "act":
            _act(tale, draw)
        case "other":
            _other(tale, member, draw)


def _act(tale: Tale, draw: random.Random) -> None:
    """What the caller does after a step."""
    gang = tale.gang
    if gang.phase in (Phase.BINDING, Phase.RUNNING, Phase.DEGRADED):
        for one in gang.at(Stage.IN_BIND, Stage.IDLE):
            gang.post(one.uid, "n")
    elif gang.phase is not Phase.STARTING:
        for one in gang.holding():
            gang.put(one, Stage.IDLE)
    if gang.phase is Phase.UNDOING:
        for one in gang.at(Stage.BOUND):
            if one.removable:
                gang.put(one, Stage.EVICTING)
    gang.plan_invalidated = gang.plan_invalidated or draw.random() < 0.05


def _other(tale: Tale, member: Member, draw: random.Random) -> None:
    gang = tale.gang
    match draw.choice(["found", "found", "ends", "ends", "ends", "absent", "leave", "idle", "taken"]):
        case "found" if member.stage in (Stage.IDLE, Stage.PLANNED, Stage.IN_BIND):
            gang.bound(
                member.uid, "n", draw.choice([0, gang.epoch, gang.epoch + 1]), tale.now - draw.choice([0, 5, 100])
            )
        case "ends" if member.stage is Stage.BOUND:
            gang.succeed(member.uid)
        case "absent":
            gang.put(member, Stage.ABSENT)
        case "leave":
            gang.leave(member.uid)
        case "idle" if member.stage in (Stage.POSTED, Stage.ABSENT):
            gang.put(member, Stage.IDLE)
        case "taken" if gang.phase in (Phase.RUNNING, Phase.DEGRADED):
            gang.preempted = draw.random() < 0.3


@pytest.mark.parametrize("phase", Phase)
def test_time_alone_never_moves_a_gang_in_circles(phase: Phase) -> None:
    tale = Tale(2, on_member_lost="restart", schedule_timeout_s=5.0)
    tale.come("ab", owner="")
    tale.gang.bound("a", "n", 1, 0.0)
    tale.gang.phase = phase
    for _ in range(50):
        tale.runs(10)
