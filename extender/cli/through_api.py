"""Reads pages of the status port from the aggregated API, with the user's own kubeconfig and rights.

An object's status there has the fields of its page, so the commands read both alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from extender.cli import console
from extender.cli.errors import CommandError
from extender.cli.options import port_forward
from extender.wire import whatif as wire
from extender.wire.visibility import GROUP_VERSION
from protos import logs
from protos.contract import names
from protos.kube import credentials, errors, paths
from protos.kube.client import ApiClient

ANSWER_S, WHAT_IF_S = 10.0, 45.0
BAD = (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
"""Of a question that is wrong, whoever is asked."""
NULL = msgspec.Raw(b"null")


class _Object(msgspec.Struct, frozen=True):
    status: msgspec.Raw = msgspec.Raw(b"{}")


class _Question(msgspec.Struct, frozen=True):
    metadata: wire.Metadata = wire.Metadata()


class _List(msgspec.Struct, frozen=True):
    items: tuple[_Object, ...] = ()


class _State(msgspec.Struct, frozen=True):
    state: str = "waiting"


class _Gpu(msgspec.Struct, frozen=True, rename="camel"):
    uuid: str
    node: str
    unit_mib: int = msgspec.field(default=1024, name="unitMiB")
    slices: int = 100
    verdict: msgspec.Raw = msgspec.Raw(b"{}")
    isolation: str = ""
    isolation_why: str = ""


class _Offer(msgspec.Struct, frozen=True, rename="camel"):
    gpu_class: msgspec.Raw = NULL
    missing: msgspec.Raw = NULL
    model: msgspec.Raw = NULL


_objects, _lists = msgspec.json.Decoder(_Object), msgspec.json.Decoder(_List)


def page(path: str, missing: str, query: Sequence[tuple[str, str]] = (), answer_s: float = ANSWER_S) -> bytes | None:
    """The page at this path of the status port; None if the API has none such, or is not there.

    Raises CommandError if there is no such object (`missing`), the user may not see it, or the API fails.
    """
    return _asked(_page(path, query, answer_s), missing)


def what_if(body: bytes) -> bytes | None:
    """The answer to a question of what-if; raises CommandError."""
    namespace = msgspec.json.decode(body, type=_Question).metadata.namespace
    if not namespace:
        raise CommandError("the pods are in several namespaces: expected one, or a port-forward to the status port")
    return _asked(_created(body, namespace), "")


def _asked(answer: Coroutine[Any, Any, bytes | None], missing: str) -> bytes | None:
    logs.configure("console", "error")
    try:
        return asyncio.run(answer)
    except errors.NotFound as error:
        if names.VISIBILITY_GROUP in error.message:
            raise CommandError(missing or error.message) from error
        return None
    except errors.Forbidden as error:
        raise CommandError(f"no extender answers here, and the API server refuses: {error.message}") from error
    except errors.Unavailable as error:
        if not error.status:
            return None
        raise CommandError(
            f"no extender answers here, and the aggregated API fails: {error.message or error.status}.\n"
            f"`kubectl get apiservice {names.VISIBILITY_API_SERVICE}` says whether it is available.\n"
            f"In another terminal: {port_forward()}"
        ) from error
    except errors.ApiError as error:
        if error.status in BAD:
            raise CommandError(error.message) from error
        return None
    except errors.CredentialsError:
        return None


async def _created(body: bytes, namespace: str) -> bytes:
    access = await credentials.load()
    async with ApiClient(access, user_agent="gangshare", answer_s=WHAT_IF_S, warned=console.warn) as client:
        answer = await client.post(paths.path(GROUP_VERSION, wire.PLURAL, namespace=namespace), body)
    return bytes(_objects.decode(answer).status)


async def _page(path: str, query: Sequence[tuple[str, str]], answer_s: float) -> bytes | None:
    access = await credentials.load()
    async with ApiClient(access, user_agent="gangshare", answer_s=answer_s, warned=console.warn) as client:
        match path.split("/"):
            case ["explain", "groups", namespace, name]:
                return await _status(client, "gangs", name, namespace)
            case ["explain", namespace, name]:
                return await _status(client, "gpupods", name, namespace)
            case ["inspect", name]:
                return await _status(client, "gpunodes", name)
            case ["gpus", uuid]:
                return await _gpu(client, uuid)
            case ["queues", name]:
                return await _status(client, "gpuqueues", name)
            case ["defrag", namespace, name]:
                return await _status(client, "defragplans", name, namespace, query)
            case ["classes"]:
                return msgspec.json.encode(await _classes(client))
            case ["queues"]:
                return msgspec.json.encode({"queues": await _statuses(client, "gpuqueues")})
            case ["inspect"]:
                return msgspec.json.encode(await _inspection(client))
    return None


async def _status(
    client: ApiClient, plural: str, name: str, namespace: str = "", query: Sequence[tuple[str, str]] = ()
) -> bytes:
    where = paths.path(GROUP_VERSION, plural, namespace=namespace, name=name)
    return bytes((await client.fetch(where, _objects, params=query)).status)


async def _statuses(client: ApiClient, plural: str) -> list[msgspec.Raw]:
    return [item.status for item in (await client.fetch(paths.path(GROUP_VERSION, plural), _lists)).items]


async def _gpu(client: ApiClient, uuid: str) -> bytes:
    """The page of the GPU with this UUID; raises NotFound."""
    for status in await _statuses(client, "gpus"):
        gpu = msgspec.json.decode(status, type=_Gpu)
        if gpu.uuid == uuid:
            on = {"node": gpu.node, "unitMiB": gpu.unit_mib, "slicesPerGpu": gpu.slices, "verdict": gpu.verdict}
            isolation = {"isolation": gpu.isolation, "isolationWhy": gpu.isolation_why}
            return msgspec.json.encode({**on, **isolation, "gpu": status})
    raise errors.NotFound("GET gpus", message=f"gpus.{names.VISIBILITY_GROUP} of UUID {uuid} not found")


async def _classes(client: ApiClient) -> dict[str, list[msgspec.Raw]]:
    offers = [msgspec.json.decode(status, type=_Offer) for status in await _statuses(client, "gpuoffers")]
    return {
        "classes": [offer.gpu_class for offer in offers if offer.gpu_class != NULL],
        "missing": [offer.missing for offer in offers if offer.missing != NULL],
        "models": [offer.model for offer in offers if offer.model != NULL],
    }


async def _inspection(client: ApiClient) -> dict[str, Any]:
    """The page of the whole cluster, for users with rights in all namespaces."""
    nodes, groups = await _statuses(client, "gpunodes"), await _statuses(client, "gangs")
    placed, waiting = list[msgspec.Raw](), list[msgspec.Raw]()
    for status in await _statuses(client, "gpupods"):
        pending = msgspec.json.decode(status, type=_State).state == "waiting"
        (waiting if pending else placed).append(status)
    return {"nodes": nodes, "pods": placed, "waiting": waiting, "groups": groups}
