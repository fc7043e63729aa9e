import json
from pathlib import Path

import pytest

from tests.unit.cli.run import Ran, gangshare

KEYS = ["policy", "mean_jct_s", "p95_jct_s", "p99_jct_s", "mean_wait_s", "wait_by_size", "utilisation", "makespan_s"]
LIST = """job,submit_s,duration_s,num_gpus,workers,gpus_per_worker,team
a,0,100,6,1,6,red
b,1,50,8,1,8,red
c,2,10,1,1,1,blue
"""


@pytest.fixture
def jobs(tmp_path: Path) -> list[str]:
    (tmp_path / "jobs.csv").write_text(LIST)
    return ["--trace", str(tmp_path / "jobs.csv"), "--nodes", "1"]


def simulated(capsys: pytest.CaptureFixture[str], jobs: list[str], *more: str) -> Ran:
    return gangshare(capsys, "simulate", "jobs", *jobs, *more)


@pytest.mark.parametrize("policy", ["fifo", "skip", "easy", "gangshare"])
@pytest.mark.parametrize("durations", ["trace", "noisy", "none"])
def test_json_stands_alone_on_standard_output(
    capsys: pytest.CaptureFixture[str], jobs: list[str], policy: str, durations: str
) -> None:
    ran = simulated(capsys, jobs, "--policy", policy, "--durations", durations, "--seed", "3", "-o", "json")
    told = json.loads(ran.out)
    assert (ran.code, ran.err, list(told)) == (0, "", KEYS)
    assert told["policy"] == policy
    assert list(told["wait_by_size"]) == ["1", "2-8", ">8"]
    assert told["wait_by_size"][">8"] is None


def test_by_default_our_policy_knows_the_run_times_and_stops_nobody(
    capsys: pytest.CaptureFixture[str], jobs: list[str]
) -> None:
    said = ("--gpus-per-node", "8", "--policy", "gangshare", "--durations", "trace", "--seed", "0", "-o", "json")
    assert simulated(capsys, jobs, "-o", "json").out == simulated(capsys, jobs, *said).out
    assert json.loads(simulated(capsys, jobs, "-o", "json").out)["wait_by_size"]["1"] == 0


def test_jobs_can_be_stopped_at_a_cost(capsys: pytest.CaptureFixture[str], jobs: list[str]) -> None:
    free, dear = (
        json.loads(simulated(capsys, jobs, "--preempt", "--restart-cost", cost, "-o", "json").out)
        for cost in ("0", "60")
    )
    assert free["mean_jct_s"] <= dear["mean_jct_s"]


def test_queues_come_from_a_column(capsys: pytest.CaptureFixture[str], jobs: list[str]) -> None:
    assert simulated(capsys, jobs, "--queues", "team", "-o", "json").code == 0
    assert "squad among them" in simulated(capsys, jobs, "--queues", "squad").err


def test_a_long_replay_says_how_far_it_is_on_standard_error(
    capsys: pytest.CaptureFixture[str], jobs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("extender.cli.simulate.QUIET_S", 0.0)
    for more in ((), ("--preempt",)):
        ran = simulated(capsys, jobs, "-o", "json", *more)
        assert ran.err == "0 of 3 jobs have ended\n"  # and no other line within some seconds
        assert json.loads(ran.out)


def test_the_text_names_each_figure(capsys: pytest.CaptureFixture[str], jobs: list[str]) -> None:
    text = simulated(capsys, jobs).out
    assert all(name in text for name in ("mean JCT", "p99 JCT", "mean wait, 2-8 GPUs", "makespan", "utilisation"))
    assert "no such job" in text


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--policy", "easy", "--preempt"), "--preempt with --policy easy: expected --policy gangshare"),
        (
            ("--gpus-per-node", "4"),
            "jobs.csv, line 2: job 'a' needs 1 nodes with 6 GPUs each: expected at most 1 nodes with 4 each",
        ),
        (("--trace", "/nowhere.csv"), "cannot read /nowhere.csv"),
    ],
)
def test_what_cannot_be_is_said(
    capsys: pytest.CaptureFixture[str], jobs: list[str], more: tuple[str, ...], said: str
) -> None:
    ran = simulated(capsys, jobs, *more)
    assert ran.code != 0
    assert said in ran.err
