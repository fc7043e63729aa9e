"""Simulated containers of one node. They live in the runtime, so they survive a restart of the kubelet.

A container only has an ID, a state and an environment. Annotations of its pod control its behaviour.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping

from extender.sim import podspec
from extender.sim.podspec import Object

RUN_SECONDS = "sim.gangshare.io/run-seconds"
"""Seconds until the pod's app containers end with exit code 0 (default: never)."""
IGNORE_TERM_SECONDS = "sim.gangshare.io/ignore-term-seconds"
"""Seconds that the pod's containers continue after TERM (default 0), at most the grace period."""
REFUSE = "sim.gangshare.io/refuse"
"""The reason with which the kubelet rejects the pod at admission, such as OutOfcpu (default: admit it)."""

_TERMINATED, _KILLED, _NOT_STARTED = 143, 137, 128


def _setting(pod: Object, annotation: str) -> float | None:
    value = (pod["metadata"].get("annotations") or {}).get(annotation)
    return None if value is None else float(value)


class HookError(Exception):
    """A hook of the container runtime failed."""


class Container:
    """One container from start to end."""

    def __init__(self, name: str, env: Mapping[str, str], ignores_term: float) -> None:
        self.name, self.env = name, dict(env)
        self.id = secrets.token_hex(32)
        self.started = podspec.timestamp()
        self.exit_code: int | None = None
        self.ended = asyncio.Event()
        self._ignores_term = ignores_term
        self._timers: list[asyncio.TimerHandle] = []

    def end_in(self, seconds: float, exit_code: int) -> None:
        self._timers.append(asyncio.get_running_loop().call_later(seconds, self.end, exit_code))

    def terminate(self, grace: float) -> None:
        """TERM now, KILL after ``grace`` seconds."""
        ignored = self._ignores_term
        self.end_in(min(ignored, grace), _TERMINATED if ignored <= grace else _KILLED)

    def end(self, exit_code: int) -> None:
        if self.exit_code is None:
            self.exit_code = exit_code
            self.cancel_timers()
            self.ended.set()

    def cancel_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()


class Runtime:
    """The containers of one node by (pod UID, name); ended ones stay until their pod is removed."""

    def __init__(self) -> None:
        self._containers: dict[tuple[str, str], Container] = {}
        self.hook: Callable[[Object, Container], None] = lambda _pod, _container: None
        """Runs before a container starts; if it raises HookError, the container does not start."""

        self.pod_hook: Callable[[Object], None] = lambda _pod: None
        """Makes the control group of a pod, as the kubelet does before it starts a container."""

    def start(self, pod: Object, container: Object, env: Mapping[str, str], init: bool) -> Container:
        """Start or restart a container."""
        made = Container(container["name"], env, _setting(pod, IGNORE_TERM_SECONDS) or 0.0)
        self._containers[(podspec.uid(pod), made.name)] = made
        try:
            self.hook(pod, made)
        except HookError:
            made.end(_NOT_STARTED)
            return made
        lasting = _setting(pod, RUN_SECONDS)
        if init and not podspec.is_sidecar(container):
            made.end_in(0.0, 0)
        elif lasting is not None and not init:
            made.end_in(lasting, 0)
        return made

    def get(self, uid: str, name: str) -> Container | None:
        return self._containers.get((uid, name))

    def of_pod(self, uid: str) -> list[Container]:
        return [c for (owner, _), c in self._containers.items() if owner == uid]

    def running(self) -> Iterable[tuple[str, str]]:
        """(pod UID, name) of the running containers."""
        return [key for key, c in self._containers.items() if c.exit_code is None]

    def remove_pod(self, uid: str) -> None:
        for key in [key for key in self._containers if key[0] == uid]:
            self._containers.pop(key).cancel_timers()

    def reboot(self) -> None:
        """End all containers, as a reboot of the machine does."""
        for container in self._containers.values():
            container.end_in(0.0, _KILLED)
