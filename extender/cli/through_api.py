"""Reads pages of the status port from the aggregated API, with the user's own kubeconfig and rights.

An object's status there has the fields of its page, so the commands read both alike.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from extender.cli.errors import CommandError
from extender.cli.options import PORT_FORWARD
from protos.contract import names
from protos.kube import credentials, errors, paths
from protos.kube.client import ApiClient

GROUP_VERSION = f"{names.VISIBILITY_GROUP}/{names.VISIBILITY_VERSION}"
ANSWER_S = 10.0


class _Object(msgspec.Struct, frozen=True):
    status: msgspec.Raw = msgspec.Raw(b"{}")


class _List(msgspec.Struct, frozen=True):
    items: tuple[_Object, ...] = ()


class _State(msgspec.Struct, frozen=True):
    state: str = "waiting"


_objects, _lists = msgspec.json.Decoder(_Object), msgspec.json.Decoder(_List)


def page(path: str, missing: str) -> bytes | None:
    """The page at this path of the status port; None if the API has none such, or is not there.

    Raises CommandError if there is no such object (`missing`), the user may not see it, or the API fails.
    """
    try:
        return asyncio.run(_page(path))
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
            f"In another terminal: {PORT_FORWARD}"
        ) from error
    except (errors.CredentialsError, errors.ApiError):
        return None


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
