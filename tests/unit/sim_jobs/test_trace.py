import gzip
import math
from pathlib import Path

import pytest

from extender.sim.jobtrace import figures, replay, trace
from extender.sim.jobtrace.trace import Shape
from extender.sim.table import TraceError
from tests.unit.sim_jobs.made import a_job, some_jobs

HEADER = "job,submit_s,duration_s,num_gpus,workers,gpus_per_worker,team\n"


def listed(folder: Path, *rows: str) -> Path:
    path = folder / "jobs.csv"
    path.write_text(HEADER + "".join(f"{row}\n" for row in rows))
    return path


def test_a_row_is_a_job_of_the_queue_that_its_column_names(tmp_path: Path) -> None:
    path = listed(tmp_path, "a,1.5,20,16,2,8,red")
    job, *others = trace.read_jobs(path, "team")
    assert not others
    assert (job.name, job.submit, job.duration, job.gpus, job.shape) == ("a", 1.5, 20, 16, Shape(2, 8))
    assert (job.queue, trace.read_jobs(path)[0].queue) == ("red", "default")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("a,-1,20,1,1,1,red", "line 2: submit_s is '-1': expected seconds, 0 or more"),
        ("a,nan,20,1,1,1,red", "line 2: submit_s is 'nan': expected seconds"),
        ("a,1,long,1,1,1,red", "line 2: duration_s is 'long': expected seconds"),
        ("a,1,20,0,1,1,red", "line 2: num_gpus is '0': expected a whole number from 1"),
        ("a,1,20,9,1,8,red", "line 2: num_gpus is '9': expected at most workers times gpus_per_worker, which is 8"),
    ],
)
def test_a_wrong_value_is_named(tmp_path: Path, row: str, said: str) -> None:
    with pytest.raises(TraceError, match=said):
        trace.read_jobs(listed(tmp_path, row))


def test_a_queue_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="expected squad among them"):
        trace.read_jobs(listed(tmp_path, "a,1,20,1,1,1,red"), "squad")


def test_half_a_gzip_file_is_an_error(tmp_path: Path) -> None:
    whole = gzip.compress(HEADER.encode() + b"a,1,20,1,1,1,red\n" * 100)
    path = tmp_path / "jobs.csv.gz"
    for content in (whole[: len(whole) // 2], b"no gzip at all"):
        path.write_bytes(content)
        with pytest.raises(TraceError, match="expected a whole gzip file"):
            trace.read_jobs(path)


def test_a_job_that_never_fits_is_an_error() -> None:
    with pytest.raises(TraceError, match="the list: job '0' needs 3 nodes with 8 GPUs each: expected at most 2 nodes"):
        replay.replay([a_job(0, 0, 1, 24)], 2, 8, "skip")


def test_noise_stays_within_half_of_the_run_time_and_is_the_same_for_a_seed() -> None:
    jobs = some_jobs(1)
    noisy = trace.with_expected(jobs, "noisy", 7)
    assert all(0.5 <= job.expected / job.duration <= 1.5 for job in noisy)
    assert [job.expected for job in noisy] == [job.expected for job in trace.with_expected(jobs, "noisy", 7)]
    assert [job.expected for job in noisy] != [job.expected for job in trace.with_expected(jobs, "noisy", 8)]


def test_the_true_run_times_or_nothing_is_told() -> None:
    jobs = [a_job(0, 0, 5, expected=1)]
    assert [job.expected for job in trace.with_expected(jobs, "trace", 0)] == [5]
    assert [job.expected for job in trace.with_expected(jobs, "none", 0)] == [math.inf]


def test_figures_are_means_and_percentiles_of_what_ran() -> None:
    ran = replay.replay([a_job(0, 10, 80, 8), a_job(1, 10, 10, 4), a_job(2, 30, 20, 4)], 1, 8, "fifo")
    found = figures.figures("fifo", ran, 8)
    assert (found.mean_jct_s, found.p95_jct_s, found.mean_wait_s) == (round((80 + 90 + 80) / 3, 1), 90, 46.7)
    assert found.wait_by_size == {"1": None, "2-8": 46.7, ">8": None}
    assert (found.makespan_s, found.utilisation) == (100, round((640 + 40 + 80) / 800, 4))
