"""What a gang's phase is called on each kind of PodGroup."""

from typing import Any

import msgspec
import pytest

from extender.cluster import group_status
from extender.engine.types.effects import GroupStatus
from gangfilter import podgroups
from gangfilter.group import GroupKey
from gangfilter.table import Phase
from protos.contract.reason import Reason
from tests.unit.extender_shell.definitions import COSCHEDULING, OWN, VOLCANO

KUBE_BATCH = "scheduling.incubator.k8s.io/v1alpha1"
NOW, LATER = "2025-01-31T12:00:00Z", "2025-01-31T12:00:09Z"
NO_ROOM = Reason("GangNoRoom", "gang default/g1 waits until all its members fit", "short by 2")
SAID = GroupStatus(
    key=GroupKey("default", "g1"),
    kinds=(),
    phase=Phase.RUNNING,
    reason=None,
    min_member=3,
    present=4,
    bound=3,
    succeeded=1,
    failed=2,
)
WORDS = {
    #                  ours          Volcano, kube-batch  scheduler-plugins
    Phase.ASSEMBLING: ("Assembling", "Inqueue", "Pending"),
    Phase.WAITING: ("Waiting", "Inqueue", "Scheduling"),
    Phase.STARTING: ("Starting", "Inqueue", "Scheduling"),
    Phase.BINDING: ("Starting", "Inqueue", "Scheduling"),
    Phase.RUNNING: ("Running", "Running", "Running"),
    Phase.DEGRADED: ("Degraded", "Unknown", "Unknown"),
    Phase.UNDOING: ("Degraded", "Unknown", "Unknown"),
    Phase.COMPLETED: ("Completed", "Completed", "Finished"),
    Phase.FAILED: ("Failed", "Inqueue", "Failed"),
}


def said(phase: Phase, reason: Reason | None = None, **more: Any) -> GroupStatus:
    return msgspec.structs.replace(SAID, phase=phase, reason=reason, **more)


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Type → status and time."""
    return {found["type"]: (found["status"], found["lastTransitionTime"]) for found in status["conditions"]}


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_has_a_word_in_every_dialect(phase: Phase) -> None:
    own, volcano, coscheduling = WORDS[phase]
    for kind, word in ((OWN, own), (VOLCANO, volcano), (KUBE_BATCH, volcano), (COSCHEDULING, coscheduling)):
        assert group_status.status(kind, said(phase), {}, NOW)["phase"] == word


@pytest.mark.parametrize("kind", [OWN, VOLCANO, KUBE_BATCH, COSCHEDULING])
def test_nothing_is_said_to_run_under_its_minimum(kind: str) -> None:
    assert group_status.status(kind, said(Phase.RUNNING, bound=2, succeeded=1), {}, NOW)["phase"] == "Running"
    assert group_status.status(kind, said(Phase.RUNNING, bound=2, succeeded=0), {}, NOW)["phase"] != "Running"


def test_the_status_of_kinds_of_other_schedulers_is_left_to_them() -> None:
    left = {kind.api_group for kind in podgroups.KINDS if not group_status.writes(kind.api_version)}
    assert left == {"scheduling.run.ai", "scheduling.godel.kubewharf.io", "scheduling.k8s.io", "kai.alibabacloud.com"}


def test_ours_has_counts_and_a_condition_that_says_why_and_turns_back() -> None:
    first = group_status.status(OWN, said(Phase.WAITING, NO_ROOM, bound=0), {}, NOW)
    assert {key: first[key] for key in first if key != "conditions"} == {
        "phase": "Waiting",
        "minMember": 3,
        "members": 4,
        "bound": 0,
        "succeeded": 1,
        "failed": 2,
    }
    (waiting,) = first["conditions"]
    assert (waiting["status"], waiting["reason"], waiting["message"]) == ("True", "GangNoRoom", str(NO_ROOM))

    running = group_status.status(OWN, said(Phase.RUNNING), first, LATER)
    assert conditions(running) == {"Waiting": ("False", LATER), "Running": ("True", LATER)}
    assert running["conditions"][1]["message"] == "3 of 4 members are bound"
    assert running["conditions"][0]["reason"] == "Running"

    again = group_status.status(OWN, said(Phase.WAITING, NO_ROOM, bound=0), running, NOW)
    assert conditions(again) == {"Waiting": ("True", NOW), "Running": ("False", NOW)}


def test_a_condition_that_does_not_turn_keeps_its_time_whatever_its_message() -> None:
    first = group_status.status(OWN, said(Phase.WAITING, NO_ROOM), {}, NOW)
    fewer = Reason(NO_ROOM.code, NO_ROOM.sentence, "short by 1")
    second = group_status.status(OWN, said(Phase.WAITING, fewer), first, LATER)
    assert conditions(second) == {"Waiting": ("True", NOW)}
    assert "short by 1" in second["conditions"][0]["message"]


def test_volcanos_conditions_tell_what_is_missing_and_then_that_it_is_scheduled() -> None:
    assembling = group_status.status(VOLCANO, said(Phase.ASSEMBLING, NO_ROOM), {}, NOW)
    assert [(c["type"], c["reason"]) for c in assembling["conditions"]] == [("Unschedulable", "NotEnoughTasks")]
    waiting = group_status.status(VOLCANO, said(Phase.WAITING, NO_ROOM), assembling, LATER)
    assert conditions(waiting) == {"Unschedulable": ("True", NOW)}
    assert waiting["conditions"][0]["reason"] == "NotEnoughResources"
    assert waiting["conditions"][0]["message"] == str(NO_ROOM)
    starting = group_status.status(VOLCANO, said(Phase.STARTING), waiting, LATER)
    assert conditions(starting) == {"Unschedulable": ("False", LATER)}
    running = group_status.status(VOLCANO, said(Phase.RUNNING), starting, LATER)
    assert conditions(running) == {"Unschedulable": ("False", LATER), "Scheduled": ("True", LATER)}
    assert (running["running"], running["succeeded"], running["failed"]) == (3, 1, 2)
    degraded = group_status.status(VOLCANO, said(Phase.DEGRADED), running, NOW)
    assert conditions(degraded) == {"Unschedulable": ("True", NOW), "Scheduled": ("False", NOW)}


def test_schedulingplugins_learn_when_scheduling_began_and_their_owner_is_kept() -> None:
    before = {"phase": "Pending", "occupiedBy": "default/job"}
    assert "scheduleStartTime" not in group_status.status(COSCHEDULING, said(Phase.ASSEMBLING), before, NOW)
    first = group_status.status(COSCHEDULING, said(Phase.WAITING, NO_ROOM), before, NOW)
    assert first["scheduleStartTime"] == NOW
    assert "occupiedBy" not in first
    later = group_status.status(COSCHEDULING, said(Phase.RUNNING), {**before, **first}, LATER)
    assert later == {"phase": "Running", "running": 3, "succeeded": 1, "failed": 2, "scheduleStartTime": NOW}


@pytest.mark.parametrize("conditions", [None, "nonsense", [], ["nonsense", {}], [{"type": "Other", "status": "True"}]])
@pytest.mark.parametrize("kind", [OWN, VOLCANO, COSCHEDULING])
def test_conditions_of_others_do_no_harm(kind: str, conditions: Any) -> None:
    status = group_status.status(kind, said(Phase.WAITING, NO_ROOM), {"conditions": conditions}, NOW)
    if conditions == [{"type": "Other", "status": "True"}] and kind != COSCHEDULING:
        assert status["conditions"][0] == {"type": "Other", "status": "True"}


def test_volcanos_condition_says_what_a_gang_below_its_minimum_lacks() -> None:
    def why(reason: Reason | None) -> tuple[str, str]:
        status = group_status.status(VOLCANO, said(Phase.DEGRADED, reason, min_member=6), {}, NOW)
        (told,) = [each for each in status["conditions"] if each["type"] == "Unschedulable"]
        return told["reason"], told["message"]

    grows, lost = (Reason(code, "sentence") for code in ("GangBelowMinimum", "GangMemberLost"))
    assert why(grows) == ("NotEnoughResources", "sentence")
    assert why(lost) == ("PodDeleted", "sentence")
    assert why(None) == ("NotEnoughResources", "3 of 6 members are bound")
