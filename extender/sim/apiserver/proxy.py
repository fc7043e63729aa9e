"""The subresource `proxy` of pods: a GET is handed on to the first port of the pod, as kube-apiserver does."""

from __future__ import annotations

import re
from typing import Any

import aiohttp
from aiohttp import web

from extender.sim.apiserver import errors

_PATH = re.compile(r"/api/v1/namespaces/(?P<namespace>[^/]+)/pods/(?P<name>[^/]+)/proxy/(?P<rest>.*)")
_ANSWER_SECONDS = 10.0


def named(path: str) -> tuple[tuple[str, str], str] | None:
    """The pod that a path names, and the path there; None for other paths."""
    found = _PATH.fullmatch(path)
    return ((found["namespace"], found["name"]), found["rest"]) if found else None


async def answer(pod: dict[str, Any], path: str) -> web.Response:
    """What the pod answers; raises ApiError 503."""
    ports = [port["containerPort"] for container in pod["spec"]["containers"] for port in container.get("ports", ())]
    url = f"http://{pod['status'].get('podIP', '')}:{ports[0] if ports else 80}/{path}"
    try:
        timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as found:
            return web.Response(status=found.status, body=await found.read(), content_type=found.content_type)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise errors.ApiError(503, "ServiceUnavailable", f"error trying to reach service: {error}") from error
