"""Reads pages of the status port from the aggregated API, with the user's own kubeconfig and rights.

An object's status there has the fields of its page, so the commands read both alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from http import HTTPStatus
from typing import Any

import msgspec

from extender.cli.errors import CommandError
from extender.wire import whatif as wire
from protos import logs
from protos.contract import names
from protos.kube import credentials, errors, paths
from protos.kube.client import ApiClient

GROUP_VERSION = f"{names.VISIBILITY_GROUP}/{names.VISIBILITY_VERSION}"
ANSWER_S, WHAT_IF_S = 10.0, 45.0
BAD = (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
"""Of a question that is wrong, whoever is asked."""


class _Object(msgspec.Struct, frozen=True):
    status: msgspec.Raw = msgspec.Raw(b"{}")


class _Question(msgspec.Struct, frozen=True):
    metadata: wire.Metadata = wire.Metadata()


class _List(msgspec.Struct, frozen=True):
    items: tuple[_Object, ...] = ()


class _State(msgspec.Struct, frozen=True):
    state: str = "waiting"


_objects, _lists = msgspec.json.Decoder(_Object), msgspec.json.Decoder(_List)


def page(path: str, missing: str) -> bytes | None:
    """The page at this path of the status port; None if the API has none such, or is not there.

    Raises CommandError if there is no such object (`missing`), or the user may not see it.
    """
    return _asked(_page(path), missing)


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
    except errors.ApiError as error:
        if error.status in BAD:
            raise CommandError(error.message) from error
        return None
    except errors.CredentialsError:
        return None


async def _created(body: bytes, namespace: str) -> bytes:
    access = await credentials.load()
    async with ApiClient(access, user_agent="gangshare", answer_s=WHAT_IF_S) as client:
        answer = await client.post(paths.path(GROUP_VERSION, wire.PLURAL, namespace=namespace), body)
    return bytes(_objects.decode(answer).status)


async def _page(path: str) -> bytes | None:
    access = await credentials.load()
    async with ApiClient(access, user_agent="gangshare", answer_s=ANSWER_S) as client:
        match path.split("/"):
            case ["explain", "groups", namespace, name]:
                return await _status(client, "gangs", name, namespace)
            case ["explain", namespace, name]:
                return await _status(client, "gpupods", name, namespace)
            case ["inspect", name]:
                return await _status(client, "gpunodes", name)
            case ["queues"]:
                return msgspec.json.encode({"queues": await _statuses(client, "gpuqueues")})
            case ["inspect"]:
                return msgspec.json.encode(await _inspection(client))
    return None


async def _status(client: ApiClient, plural: str, name: str, namespace: str = "") -> bytes:
    where = paths.path(GROUP_VERSION, plural, namespace=namespace, name=name)
    return bytes((await client.fetch(where, _objects)).status)


async def _statuses(client: ApiClient, plural: str) -> list[msgspec.Raw]:
    return [item.status for item in (await client.fetch(paths.path(GROUP_VERSION, plural), _lists)).items]


async def _inspection(client: ApiClient) -> dict[str, Any]:
    """The page of the whole cluster, for users with rights in all namespaces."""
    nodes, groups = await _statuses(client, "gpunodes"), await _statuses(client, "gangs")
    placed, waiting = list[msgspec.Raw](), list[msgspec.Raw]()
    for status in await _statuses(client, "gpupods"):
        pending = msgspec.json.decode(status, type=_State).state == "waiting"
        (waiting if pending else placed).append(status)
    return {"nodes": nodes, "pods": placed, "waiting": waiting, "groups": groups}
