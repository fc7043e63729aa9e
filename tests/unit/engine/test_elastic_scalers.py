"""The ScaleIns and ScaleOuts of a job: how many of them are kept, and for how long."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from extender.engine.state.quarantine import Quarantine
from extender.engine.state.scalers import Scalers
from extender.engine.types.wall import Wall
from gangfilter.group import GroupKey
from protos.contract import training
from protos.contract.bounds import SCALED, SCALERS
from protos.contract.training import Scaler, TrainingJob
from tests.unit.engine.elastic_story import KEY

OTHER = GroupKey("default", "other")


def a_scaler(name: str, **fields: Any) -> Scaler:
    """A ScaleIn of the job for one worker, with these fields changed."""
    made = Scaler(kind="ScaleIn", namespace="default", name=name, job="job", count=1)
    return msgspec.structs.replace(made, **fields)


def a_job(key: GroupKey) -> TrainingJob:
    return TrainingJob(namespace=key.namespace, name=key.name, uid=f"uid-{key.name}", least=1, most=4, running=True)


@pytest.fixture
def scalers() -> Scalers:
    """The scalers of two jobs, with no request so far."""
    made = Scalers(Counter(), Quarantine(Counter()), Wall(0.0))
    for key in (KEY, OTHER):
        made.put(key, a_job(key))
    return made


def test_so_many_of_a_job_are_kept_and_no_more(scalers: Scalers) -> None:
    for number in range(3 * SCALERS.most):
        scalers.see(a_scaler(f"s{number}"), 1.0)
    assert len(scalers.unfinished(KEY)) == SCALERS.most
    assert scalers._counters["scale_ins", "ignored"] == 2 * SCALERS.most
    scalers.see(a_scaler("elsewhere", job="other"), 1.0)
    assert len(scalers.unfinished(OTHER)) == 1, "another job has its own bound"
    scalers.gone("ScaleIn", "default", "s0", 2.0)
    scalers.see(a_scaler("late"), 3.0)
    assert "late" in {scaler.name for scaler in scalers.unfinished(KEY)}


def test_one_of_ours_that_ended_gives_its_place(scalers: Scalers) -> None:
    for number in range(SCALERS.most):
        scalers.see(a_scaler(f"s{number}", ours=True, outcome="done"), 1.0)
    scalers.see(a_scaler("new"), 2.0)
    assert [scaler.name for scaler in scalers.unfinished(KEY)] == ["new"]


def test_those_of_others_that_ended_are_not_kept(scalers: Scalers) -> None:
    for number in range(1000):
        scalers.see(a_scaler(f"s{number}"), 1.0)
        scalers.see(a_scaler(f"s{number}", outcome="failed"), float(number))
    assert scalers.unfinished(KEY) == []
    assert not scalers._of
    assert not scalers._named
    assert scalers.ended[KEY] == 999.0, "its end counts all the same"


def test_the_names_of_all_scalers_together_are_bounded(scalers: Scalers) -> None:
    for number in range(4):
        scalers.see(a_scaler(f"s{number}", pods=tuple(f"{number}-{n}" for n in range(SCALED.most))), 1.0)
    assert len(scalers.leaving(KEY)[0]) == SCALED.most


def test_a_scaler_names_so_many_workers_and_no_more() -> None:
    raw = {"metadata": {"name": "s", "namespace": "default"}, "spec": {"toDelete": {"podNames": ["p"] * 5000}}}
    read = training.decode_scaler("ScaleIn", msgspec.json.encode(raw))
    assert (len(read.pods), read.count) == (SCALED.most, 5000)


def test_a_scaler_that_names_another_job_counts_for_that_one_only(scalers: Scalers) -> None:
    scalers.see(a_scaler("s", pods=("p1",)), 1.0)
    scalers.see(a_scaler("s", pods=("p1",), job="other"), 2.0)
    assert scalers.unfinished(KEY) == []
    assert scalers.leaving(OTHER)[0] == {"p1"}
    scalers.gone("ScaleIn", "default", "s", 3.0)
    assert not scalers._of
    assert not scalers._named
