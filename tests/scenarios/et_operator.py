"""A stand-in for ET-operator: makes the pods of TrainingJobs, and carries out ScaleIns and ScaleOuts as it does.

What it does of the real one: workers first, the launcher when they run; of the scalers of a job the newest, one at a
time; workers that are scaled in are deleted once the launcher has let go of them; workers that come, be it for lost
ones, have new indexes. Source: AliyunContainerService/et-operator, pkg/controllers.
"""

from __future__ import annotations

import asyncio
import copy
import datetime as dt
from collections.abc import Iterable, Mapping

from extender.sim.definitions import definition
from protos.contract.training import API_VERSION, GROUP, JOB_KIND, PLURALS, TIMEOUT_S
from tests.scenarios.world import Object, World

POLL_S = 0.1
SCALED_OUT_BY = "scaleout-name"
"""The label of workers that a ScaleOut made, with its name."""


def definitions() -> list[Object]:
    """The CustomResourceDefinitions of TrainingJob, ScaleIn and ScaleOut, as far as a client can notice."""
    kinds = [(JOB_KIND, "trainingjobs"), *PLURALS.items()]
    return [definition(API_VERSION, kind, plural, namespaced=True) for kind, plural in kinds]


class Operator:
    """One operator, for the TrainingJobs of one namespace."""

    def __init__(self, world: World, namespace: str = "default") -> None:
        self._world, self._namespace = world, namespace
        self.keeps: set[str] = set()
        """Workers that their launcher does not let go of."""

    async def run(self) -> None:
        """Work for ever."""
        while True:
            for job in await self._items(JOB_KIND):
                await self._reconcile(job)
            await asyncio.sleep(POLL_S)

    async def _items(self, kind: str) -> list[Object]:
        return [{**found, "kind": kind} for found in await self._world.items(API_VERSION, kind, self._namespace)]

    async def _reconcile(self, job: Object) -> None:
        status, worker = copy.deepcopy(job.get("status") or {}), job["spec"]["etReplicaSpecs"]["worker"]
        pods = {name(pod): pod for pod in await self._world.pods() if _belongs(pod, job)}
        match status.get("phase"):
            case None:
                status["targetWorkers"] = [_worker(job, index) for index in range(worker["replicas"])]
                status["phase"] = "Created"
            case "Created" if len(_running(pods, status["targetWorkers"])) == worker["replicas"]:
                launcher = f"{name(job)}-launcher"
                if launcher not in pods:
                    await self._make(job, "launcher", launcher)
                elif _running(pods, [launcher]):
                    status["phase"] = "Running"
            case "Running" | "Scaling":
                status |= await self._scale(job, pods)
        if status["phase"] != "Scaling":
            await self._refill(job, status, pods)
        if status != (job.get("status") or {}):
            await self._say(job, status)

    async def _refill(self, job: Object, status: Object, pods: Mapping[str, Object]) -> None:
        """Make workers at first, and in the place of those that are gone."""
        wanted: list[str] = status["targetWorkers"]
        if status["phase"] == "Running":
            lost = [worker for worker in wanted if worker not in pods]
            wanted = [worker for worker in wanted if worker in pods] + _next(job, wanted, len(lost))
            status["targetWorkers"] = wanted
        for worker in wanted:
            if worker not in pods:
                await self._make(job, "worker", worker)

    async def _make(self, job: Object, role: str, pod: str, **labels: str) -> None:
        template = job["spec"]["etReplicaSpecs"][role]["template"]
        metadata = template.get("metadata") or {}
        owner = {"apiVersion": API_VERSION, "kind": JOB_KIND, "name": name(job), "uid": job["metadata"]["uid"]}
        said = {"group-name": GROUP, "training-job-name": name(job), "training-job-role": role}
        made = {
            "name": pod,
            "namespace": self._namespace,
            "annotations": metadata.get("annotations") or {},
            "labels": {**(metadata.get("labels") or {}), **said, **labels, "replica-index": pod.rpartition("-")[2]},
            "ownerReferences": [{**owner, "controller": True}],
        }
        await self._world.create_pod({"metadata": made, "spec": template["spec"]})

    # -- scaling

    async def _scale(self, job: Object, pods: Mapping[str, Object]) -> Object:
        """Go on with the newest scaler, if one is unfinished; returns what that makes of the job's status."""
        found = [scaler for kind in PLURALS for scaler in await self._items(kind) if _unfinished(scaler, job)]
        if not found:
            return {"phase": "Running", "currentScaler": ""}
        scaler = max(found, key=lambda one: (one["metadata"]["creationTimestamp"], name(one)))
        if not scaler["metadata"].get("ownerReferences"):
            owner = {"apiVersion": API_VERSION, "kind": JOB_KIND, "name": name(job), "uid": job["metadata"]["uid"]}
            await self._patch(scaler, {"metadata": {"ownerReferences": [{**owner, "controller": True}]}})
        said = copy.deepcopy(scaler.get("status")) or {"conditions": [_condition("Scaling")], "phase": "Scaling"}
        go_on = self._scale_in if scaler["kind"] == "ScaleIn" else self._scale_out
        workers = await go_on(job, scaler, said, pods)
        if said != scaler.get("status"):
            await self._say(scaler, said)
        return {"phase": "Scaling", "currentScaler": f"{scaler['kind']}:{name(scaler)}", "targetWorkers": workers}

    async def _scale_in(self, job: Object, scaler: Object, said: Object, pods: Mapping[str, Object]) -> list[str]:
        workers: list[str] = job["status"]["targetWorkers"]
        goes = said.setdefault("toDeletePods", [pod for pod in scaler["spec"]["toDelete"]["podNames"] if pod in pods])
        left = [worker for worker in goes if worker in pods]
        for worker in left:
            if worker not in self.keeps and "deletionTimestamp" not in pods[worker]["metadata"]:
                await self._world.delete_pod(self._namespace, worker, 0)
        if left:
            return workers
        _end(said, "ScaleSucceeded")
        return [worker for worker in workers if worker not in goes]

    async def _scale_out(self, job: Object, scaler: Object, said: Object, pods: Mapping[str, Object]) -> list[str]:
        workers: list[str] = job["status"]["targetWorkers"]
        comes = said.setdefault("addPods", _next(job, workers, scaler["spec"]["toAdd"]["count"]))
        for worker in comes:
            if worker not in pods:
                await self._make(job, "worker", worker, **{SCALED_OUT_BY: name(scaler)})
        if len(_running(pods, comes)) == len(comes):
            _end(said, "ScaleSucceeded")
            return [*workers, *comes]
        begun = dt.datetime.fromisoformat(said["conditions"][0]["lastTransitionTime"])
        if dt.datetime.now(dt.UTC) > begun + dt.timedelta(seconds=scaler["spec"].get("timeout", TIMEOUT_S)):
            _end(said, "ScaleFailed")
            for worker in comes:
                await self._world.delete_pod(self._namespace, worker, 0)
        return workers

    async def _say(self, obj: Object, status: Object) -> None:
        await self._patch(obj, {"status": status}, "status")

    async def _patch(self, obj: Object, body: Object, subresource: str = "") -> None:
        await self._world.patch(
            API_VERSION, obj["kind"], name(obj), body, namespace=self._namespace, subresource=subresource
        )


def name(obj: Object) -> str:
    """Its name."""
    found: str = obj["metadata"]["name"]
    return found


def _belongs(pod: Object, job: Object) -> bool:
    labels: dict[str, str] = pod["metadata"].get("labels") or {}
    return labels.get("training-job-name") == name(job)


def _worker(job: Object, index: int) -> str:
    return f"{name(job)}-worker-{index}"


def _next(job: Object, workers: Iterable[str], count: int) -> list[str]:
    """The names of so many new workers."""
    first = max((int(worker.rpartition("-")[2]) for worker in workers), default=-1) + 1
    return [_worker(job, first + i) for i in range(count)]


def _running(pods: Mapping[str, Object], wanted: Iterable[str]) -> list[str]:
    return [each for each in wanted if each in pods and pods[each]["status"].get("phase") == "Running"]


def _unfinished(scaler: Object, job: Object) -> bool:
    conditions = (scaler.get("status") or {}).get("conditions", ())
    ended = any(condition["type"] in ("ScaleSucceeded", "ScaleFailed") for condition in conditions)
    asked: str = scaler["spec"]["selector"]["name"]
    return not ended and asked == name(job)


def _condition(kind: str) -> Object:
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": kind, "status": "True", "lastTransitionTime": now, "lastUpdateTime": now}


def _end(said: Object, how: str) -> None:
    said["conditions"] = [*said["conditions"], _condition(how)]
    said["phase"] = how
