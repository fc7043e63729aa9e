"""Jobs of batch/v1: owners that make their pods anew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from extender.sim.apiserver.api import Api
from extender.sim.apiserver.managed import Writer
from extender.sim.apiserver.patch import MERGE
from extender.sim.apiserver.resources import JOBS, PODS
from extender.sim.jobs import INDEX, TRACKING, JobController
from tests.sim.builders import a_container
from tests.sim.conftest import until

ME, STATUS = Writer("tester"), Writer("tester", "status")


def a_job(name: str = "j", **spec: Any) -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"app": "x"}, "annotations": {"a": "b"}},
        "spec": {"containers": [a_container()], "restartPolicy": "Never"},
    }
    return {"metadata": {"name": name}, "spec": {"template": template, **spec}}


class Jobs:
    def __init__(self, api: Api) -> None:
        self.api = api

    def create(self, **spec: Any) -> None:
        self.api.create(JOBS, "default", a_job(**spec), ME)

    def pods(self) -> list[dict[str, Any]]:
        return [item.obj for item in self.api.store.items(PODS)]

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.api.get(JOBS, ("default", "j")).obj["status"]
        return status

    def end(self, pod: dict[str, Any], phase: str) -> None:
        key = ("default", pod["metadata"]["name"])
        self.api.patch(PODS, key, {"status": {"phase": phase}}, MERGE, STATUS)

    async def has(self, count: int) -> list[dict[str, Any]]:
        await until(lambda: len(self.pods()) == count, f"{count} pods")
        return self.pods()


@pytest.fixture
async def jobs(api: Api) -> AsyncIterator[Jobs]:
    task = asyncio.create_task(JobController(api, backoff_seconds=0.2).run())
    await asyncio.sleep(0)
    yield Jobs(api)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_job_makes_its_pods_which_name_it_as_their_controller(jobs: Jobs) -> None:
    jobs.create(parallelism=2)
    first, second = await jobs.has(2)
    metadata = first["metadata"]
    assert metadata["name"].startswith("j-")
    assert (metadata["labels"]["app"], metadata["annotations"]) == ("x", {"a": "b"})
    owner = metadata["ownerReferences"][0]
    assert (owner["apiVersion"], owner["kind"], owner["name"], owner["controller"]) == ("batch/v1", "Job", "j", True)
    assert metadata["labels"]["batch.kubernetes.io/job-name"] == "j"
    assert TRACKING in second["metadata"]["finalizers"]
    await until(lambda: jobs.status()["active"] == 2, "told")


async def test_pods_of_an_indexed_job_know_which_they_are(jobs: Jobs) -> None:
    jobs.create(parallelism=3, completions=3, completionMode="Indexed")
    pods = await jobs.has(3)
    assert sorted(pod["metadata"]["annotations"][INDEX] for pod in pods) == ["0", "1", "2"]
    lost = pods[1]
    jobs.api.delete(PODS, ("default", lost["metadata"]["name"]), {})
    await until(lambda: lost["metadata"]["uid"] not in [p["metadata"]["uid"] for p in jobs.pods()], "gone")
    pods = await jobs.has(3)
    assert sorted(pod["metadata"]["annotations"][INDEX] for pod in pods) == ["0", "1", "2"]


async def test_a_pod_that_fails_is_replaced_after_a_while_until_the_limit_is_passed(jobs: Jobs) -> None:
    jobs.create(backoffLimit=1)
    (pod,) = await jobs.has(1)
    jobs.end(pod, "Failed")
    await jobs.has(2)
    jobs.end(jobs.pods()[1], "Failed")
    await until(lambda: jobs.status().get("conditions"), "over")
    assert jobs.status()["conditions"][0]["reason"] == "BackoffLimitExceeded"
    assert jobs.status()["failed"] == 2


async def test_a_job_is_complete_when_enough_have_succeeded(jobs: Jobs) -> None:
    jobs.create(parallelism=1, completions=2)
    (first,) = await jobs.has(1)
    jobs.end(first, "Succeeded")
    second = (await jobs.has(2))[1]
    jobs.end(second, "Succeeded")
    await until(lambda: jobs.status().get("conditions"), "over")
    assert [c["type"] for c in jobs.status()["conditions"]] == ["Complete"]
    assert jobs.status()["succeeded"] == 2


async def test_a_suspended_job_has_no_pods_and_a_deleted_one_takes_them_along(jobs: Jobs) -> None:
    jobs.create(parallelism=2, suspend=True)
    await asyncio.sleep(0.1)
    assert jobs.pods() == []
    jobs.api.patch(JOBS, ("default", "j"), {"spec": {"suspend": False}}, MERGE, ME)
    await jobs.has(2)
    jobs.api.delete(JOBS, ("default", "j"), {})
    await jobs.has(0)


async def test_a_job_tells_how_many_of_its_pods_are_ready(jobs: Jobs) -> None:
    """`kubectl wait --for=jsonpath='{.status.ready}'=1` waits for it."""
    jobs.create(parallelism=2)
    first, _ = await jobs.has(2)
    await until(lambda: jobs.status().get("ready") == 0, "none is ready")
    condition = {"type": "Ready", "status": "True"}
    key = ("default", first["metadata"]["name"])
    jobs.api.patch(PODS, key, {"status": {"phase": "Running", "conditions": [condition]}}, MERGE, STATUS)
    await until(lambda: jobs.status()["ready"] == 1, "one is ready")
