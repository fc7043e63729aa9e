"""What to do with a GPU that is given over to MPS."""

from typing import Any

import pytest

from deviceplugin.mps import decide
from deviceplugin.mps.decide import Facts, Step
from tests.unit.deviceplugin.mps.conftest import a_holder

PART, WHOLE = a_holder("part"), a_holder("whole", mps=False)


@pytest.mark.parametrize(
    ("facts", "step", "phase"),
    [
        ({}, Step.START, "starting"),
        ({"holders": None}, Step.NOTHING, "starting"),
        ({"holders": [PART]}, Step.START, "starting"),
        ({"daemon": "running"}, Step.NOTHING, "serving"),
        ({"daemon": "running", "holders": [PART]}, Step.NOTHING, "serving"),
        ({"present": False}, Step.NOTHING, "blocked"),
        ({"present": False, "daemon": "running"}, Step.STOP, "blocked"),
        ({"mig": True}, Step.NOTHING, "blocked"),
        ({"mig": True, "daemon": "running", "holders": [PART]}, Step.STOP, "blocked"),
        ({"strangers": True}, Step.NOTHING, "blocked"),
        ({"pause": True}, Step.NOTHING, "wedged"),
        ({"lingering": True}, Step.NOTHING, "wedged"),
        ({"lingering": True, "holders": [WHOLE]}, Step.NOTHING, "yielded"),
        ({"holders": [WHOLE]}, Step.NOTHING, "yielded"),
        ({"holders": [WHOLE], "daemon": "running"}, Step.STOP, "yielded"),
        ({"holders": [WHOLE], "daemon": "running", "trouble": "x"}, Step.STOP, "yielded"),
        ({"holders": [WHOLE, PART]}, Step.NOTHING, "blocked"),
        ({"holders": [WHOLE, PART], "daemon": "running"}, Step.NOTHING, "blocked"),
        ({"holders": [PART], "daemon": "running", "trouble": "x", "servers": True}, Step.NOTHING, "wedged"),
        ({"holders": [PART], "daemon": "running", "trouble": "x"}, Step.STOP, "wedged"),
        ({"daemon": "running", "trouble": "x"}, Step.STOP, "wedged"),
        ({"holders": [PART], "daemon": "ended", "servers": True}, Step.NOTHING, "wedged"),
        ({"holders": [PART], "daemon": "ended"}, Step.STOP, "wedged"),
        ({"daemon": "ended", "servers": True}, Step.STOP, "wedged"),
    ],
)
def test_the_step_follows_from_the_facts(facts: dict[str, Any], step: Step, phase: str) -> None:
    verdict = decide.decide(Facts(**facts))
    assert (verdict.step, verdict.phase) == (step, phase)


def test_a_verdict_says_who_holds_the_gpu() -> None:
    assert decide.decide(Facts(holders=[WHOLE])).why == "container main of pod whole holds the GPU without MPS"
    long = a_holder("p" * 250, "c" * 250, mps=False)
    assert len(decide.decide(Facts(holders=[long])).why) <= 256
