"""A pod worker: it runs the containers of one admitted pod until the pod finishes or is deleted."""

from __future__ import annotations

import asyncio

import structlog

from extender.sim import podspec
from extender.sim.apiserver import errors, patch
from extender.sim.apiserver.api import Api
from extender.sim.apiserver.managed import Writer
from extender.sim.apiserver.resources import PODS
from extender.sim.kubelet import status
from extender.sim.kubelet.devices import AllocateError, DeviceManager
from extender.sim.kubelet.runtime import Container, Runtime
from extender.sim.podspec import Object

_log = structlog.get_logger()
KUBELET = Writer("kubelet", "status")
_RESTART_SECONDS = 1.0


def write_status(api: Api, pod: Object, new: Object) -> None:
    """Patch a pod's status; do nothing for a pod that has been deleted or replaced."""
    body = {"metadata": {"uid": podspec.uid(pod)}, "status": new}
    with errors.tolerated(404, 409):
        api.patch(PODS, podspec.key(pod), body, patch.STRATEGIC, KUBELET)


def confirm_deletion(api: Api, pod: Object) -> None:
    """Delete a pod that was marked for deletion and has ended."""
    with errors.tolerated(404, 409):
        api.delete(PODS, podspec.key(pod), {"gracePeriodSeconds": 0, "preconditions": {"uid": podspec.uid(pod)}})


class PodWorker:
    """One admitted pod. The kubelet keeps ``pod`` up to date."""

    def __init__(self, api: Api, runtime: Runtime, devices: DeviceManager, pod: Object) -> None:
        self._api, self._runtime, self._devices = api, runtime, devices
        self.pod = pod
        self.uid = podspec.uid(pod)
        self.ended = False  # all its containers have ended
        self._restarts: dict[str, int] = {}
        self._stop = asyncio.Event()
        self._grace = 0.0

    def stop(self, grace: float) -> None:
        """Terminate the containers within ``grace`` seconds, at least one as in the kubelet; may be called again."""
        self._grace = min(self._grace, grace) if self._stop.is_set() else max(grace, 1.0)
        self._stop.set()

    async def run(self) -> None:
        stopping = asyncio.create_task(self._stop.wait())
        work = asyncio.create_task(self._work())
        try:
            await asyncio.wait([work, stopping], return_when=asyncio.FIRST_COMPLETED)
            if self._stop.is_set():
                work.cancel()
                await self._end()
            else:
                work.result()
                self.ended = True
                await self._stop.wait()
                self._remove()
        finally:
            work.cancel()
            stopping.cancel()

    async def _work(self) -> None:
        self._write_status()
        for spec, init in podspec.containers(self.pod):
            container = await self._start(spec, init)
            if init and not podspec.is_sidecar(spec):
                await container.ended.wait()
        self._write_status()
        apps = [asyncio.create_task(self._keep(spec)) for spec in self.pod["spec"]["containers"]]
        try:
            await asyncio.gather(*apps)
        finally:
            for app in apps:
                app.cancel()
        for container in self._runtime.of_pod(self.uid):  # sidecars
            container.terminate(1.0)
            await container.ended.wait()

    async def _keep(self, spec: Object) -> None:
        """Wait until a container has ended, and restart it by its pod's restart policy."""
        while True:
            container = self._runtime.get(self.uid, spec["name"])
            assert container is not None
            await container.ended.wait()
            self._write_status()
            policy = self.pod["spec"]["restartPolicy"]
            if policy == "Never" or (policy == "OnFailure" and container.exit_code == 0):
                return
            await asyncio.sleep(_RESTART_SECONDS)
            self._restarts[spec["name"]] = self._restarts.get(spec["name"], 0) + 1
            await self._start(spec, init=False, again=True)
            self._write_status()

    async def _start(self, spec: Object, init: bool, again: bool = False) -> Container:
        present = self._runtime.get(self.uid, spec["name"])
        if present and not again:
            return present  # the kubelet has restarted
        self._runtime.pod_hook(self.pod)
        return self._runtime.start(self.pod, spec, await self._env(spec), init)

    async def _env(self, spec: Object) -> dict[str, str]:
        """The container's environment; values of the pod override those of the plugin."""
        while True:  # the kubelet tries again until the plugin answers
            try:
                await self._devices.before_start(self.pod, spec)
                break
            except AllocateError as error:
                _log.warning("container cannot start", pod=self.pod["metadata"]["name"], error=str(error))
                await asyncio.sleep(_RESTART_SECONDS)
        env: dict[str, str] = {}
        for grant in self._devices.held(self.uid, spec["name"]).values():
            env = {**grant.response.envs, **env}  # of two values for one variable the first wins
        return env | {e["name"]: e.get("value", "") for e in spec.get("env") or ()}

    def _write_status(self) -> None:
        containers = {c.name: c for c in self._runtime.of_pod(self.uid)}
        write_status(self._api, self.pod, status.of_pod(self.pod, containers, self._restarts))

    async def _end(self) -> None:
        for container in self._runtime.of_pod(self.uid):
            container.terminate(self._grace)
        for container in self._runtime.of_pod(self.uid):
            await container.ended.wait()
        self._write_status()
        self.ended = True
        self._remove()

    def _remove(self) -> None:
        self._runtime.remove_pod(self.uid)
        confirm_deletion(self._api, self.pod)
