"""Pods for scenarios that behave alike in both worlds: by their command in containers, by annotations in the stand-in.

Each container prints its environment, then waits; on TERM it ends, at once or after some seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from extender.sim.kubelet import runtime
from protos.contract import names
from tests.scenarios.world import Object

IMAGE = "localhost/busybox:1"
_LONG_SECONDS = 86_400


def a_container(name: str = "main", limits: Mapping[str, object] | None = None, **more: Any) -> Object:
    """A container that asks these limits."""
    return {"name": name, "resources": {"limits": {k: str(v) for k, v in (limits or {}).items()}}, **more}


def a_pod(
    name: str,
    *containers: Object,
    init: tuple[Object, ...] = (),
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    run_seconds: float | None = None,
    ignore_term_seconds: float = 0,
    **spec: Any,
) -> Object:
    """A pod for our scheduler. App containers end by themselves after ``run_seconds`` (None: never), init containers
    at once; on TERM all go on for ``ignore_term_seconds``."""
    behaviour = {runtime.IGNORE_TERM_SECONDS: f"{ignore_term_seconds:g}"}
    if run_seconds is not None:
        behaviour[runtime.RUN_SECONDS] = f"{run_seconds:g}"
    lasting = _LONG_SECONDS if run_seconds is None else run_seconds
    apps = [_with_command(c, f"{lasting:g}", ignore_term_seconds) for c in containers or (a_container(),)]
    made: Object = {
        "schedulerName": names.PROFILE,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        "containers": apps,
        **spec,
    }
    if init:
        made["initContainers"] = [_with_command(c, "0", ignore_term_seconds) for c in init]
    metadata = {"name": name, "namespace": "default", "labels": dict(labels or {})}
    return {"metadata": {**metadata, "annotations": {**behaviour, **(annotations or {})}}, "spec": made}


def _with_command(container: Object, lasting: str, ignore_term: float) -> Object:
    if container.get("restartPolicy") == "Always":  # a sidecar
        lasting = str(_LONG_SECONDS)
    script = f"env; trap 'sleep {ignore_term:g}; exit 143' TERM; sleep {lasting} & wait $!"
    return {"image": IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", script], **container}
