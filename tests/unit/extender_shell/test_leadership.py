"""Which process may write, by what the reads of the scheduler's Lease prove."""

import pytest

from extender.cluster.leadership import LeaseWatch
from protos.kube.client import ApiClient
from protos.kube.credentials import Credentials
from protos.kube.lease import LeaseSpec


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Looks:
    """A leadership of host-a with a renewDeadline of 10 s, fed by hand."""

    def __init__(self) -> None:
        self.clock = Clock()
        client = ApiClient(Credentials("http://127.0.0.1:9"))
        self.leadership = LeaseWatch(client, ("kube-system", "kube-scheduler"), "host-a_", 10.0, self.clock)

    def look(
        self, at: float, holder: str | None, renew: str | None, transitions: int = 0, answered: float = 0.0
    ) -> None:
        self.clock.now = 100.0 + max(at, answered)
        self.leadership.saw(
            LeaseSpec(holder_identity=holder, renew_time=renew, lease_transitions=transitions), 100.0 + at
        )

    def leads_at(self, at: float) -> bool:
        self.clock.now = 100.0 + at
        return self.leadership.leads


@pytest.fixture
def looks() -> Looks:
    return Looks()


def test_nothing_seen_is_no_leadership(looks: Looks) -> None:
    assert not looks.leads_at(0)
    assert "not seen yet" in looks.leadership.why_not()


def test_a_first_sight_proves_no_renewal(looks: Looks) -> None:
    looks.look(0, "host-a_1", "t0")
    assert not looks.leads_at(0)
    assert "was not seen renewed yet" in looks.leadership.why_not()
    looks.look(1, "host-a_1", "t0")
    assert not looks.leads_at(1)


def test_a_renewal_counts_from_the_look_before_it(looks: Looks) -> None:
    looks.look(0, "host-a_1", "t0")
    looks.look(1, "host-a_1", "t1")
    assert looks.leads_at(9.9)
    assert not looks.leads_at(10.0)
    assert "did not renew" in looks.leadership.why_not()


def test_a_stop_between_question_and_answer_makes_nothing_fresh(looks: Looks) -> None:
    looks.look(0, "host-a_1", "t0")
    looks.look(1, "host-a_1", "t1", answered=31)  # asked, stopped for 30 s, then read
    assert not looks.leads_at(31)


def test_a_stop_between_looks_makes_nothing_fresh(looks: Looks) -> None:
    looks.look(0, "host-a_1", "t0")
    looks.look(1, "host-a_1", "t1")
    looks.look(31, "host-a_1", "t2")  # renewed at some time after the look at 1 s
    assert not looks.leads_at(31)
    looks.look(32, "host-a_1", "t3")
    assert looks.leads_at(32)


def test_another_holder_ends_it_at_once(looks: Looks) -> None:
    looks.look(0, "host-a_1", "t0")
    looks.look(1, "host-a_1", "t1")
    looks.look(2, "host-b_1", "t2", transitions=1)
    assert not looks.leads_at(2)
    assert "held by host-b_1" in looks.leadership.why_not()


def test_a_name_that_only_begins_alike_is_another(looks: Looks) -> None:
    looks.look(0, "host-a2_1", "t0")
    looks.look(1, "host-a2_1", "t1")
    assert not looks.leads_at(1)


def test_acquiring_is_a_renewal(looks: Looks) -> None:
    looks.look(0, "host-b_1", "t0")
    looks.look(1, "host-a_1", "t1", transitions=1)
    assert looks.leads_at(1)
    assert looks.leadership.terms == 1


def test_a_released_lease_has_no_holder(looks: Looks) -> None:
    looks.look(0, "host-a_1", "t0")
    looks.look(1, "host-a_1", "t1")
    looks.look(2, "", "t2")
    assert not looks.leads_at(2)
    assert "has no holder" in looks.leadership.why_not()


def test_a_term_begins_when_the_lease_turns_to_us(looks: Looks) -> None:
    looks.look(0, "host-a_1", "t0")
    looks.look(1, "host-a_1", "t1")
    assert looks.leadership.terms == 1
    looks.look(2, "host-b_1", "t2", transitions=1)
    looks.look(3, "host-a_2", "t3", transitions=2)
    assert looks.leadership.terms == 2


def test_a_restarted_scheduler_of_ours_goes_on_in_the_same_term(looks: Looks) -> None:
    looks.look(0, "host-a_1", "t0", transitions=4)
    looks.look(1, "host-a_2", "t1", transitions=5)
    assert looks.leadership.terms == 1


def test_another_holder_between_two_looks_is_seen_by_the_transitions(looks: Looks) -> None:
    looks.look(0, "host-a_1", "t0", transitions=4)
    looks.look(40, "host-a_1", "t1", transitions=6)
    assert looks.leadership.terms == 2
