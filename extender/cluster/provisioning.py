"""Reads and writes ProvisioningRequests and their PodTemplates, and what members say about them."""

import contextlib
from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from extender.cluster.status import BY_US
from extender.engine.gangs.provisioning import Ask
from extender.engine.types.effects import PodRef
from gangfilter import podgroups
from protos.contract import names, provisioning
from protos.contract.bounds import PROVISIONING_LISTED
from protos.contract.codec import BAD_JSON
from protos.contract.objects import ObjectMeta, OwnerReference
from protos.contract.provisioning import Request
from protos.kube import errors, paths
from protos.kube.client import ApiClient

log = structlog.get_logger(__name__)
_PLURALS = {kind.api_version: (kind.plural, kind.kind) for kind in podgroups.KINDS}
_json = msgspec.json.Decoder(dict[str, Any])


class _Named(msgspec.Struct):
    metadata: ObjectMeta


_named = msgspec.json.Decoder(_Named)


class Requests:
    """The requests of one class."""

    def __init__(self, reader: ApiClient, writer: ApiClient, class_name: str, undecodable: Callable[[], None]) -> None:
        self._reader, self._writer, self._class, self._undecodable = reader, writer, class_name, undecodable

    async def found(self) -> list[Request]:
        """All requests of extenders; raises the errors of a request."""
        path = paths.path(provisioning.API_VERSION, provisioning.PLURAL)
        params = {"labelSelector": provisioning.SELECTOR, "limit": f"{PROVISIONING_LISTED.most}"}
        listed = await self._reader.fetch(path, provisioning.decode_list, params=params)
        return [request for raw in listed.items if (request := self._decoded(raw)) is not None]

    def _decoded(self, raw: msgspec.Raw) -> Request | None:
        try:
            return provisioning.decode(raw)
        except BAD_JSON as error:
            self._undecodable()
            log.warning("undecodable", path=provisioning.PLURAL, error=str(error))
            return None

    async def ask(self, ask: Ask) -> bool:
        """Create the request and its templates; returns whether there was none. Raises the errors of a request.

        The request comes last. Templates without one are made again by the next try, or go with their owner.
        """
        request, owner = ask.request, await self._owner(ask)
        for number, (pod, _) in enumerate(ask.pod_sets):
            given = await self._reader.fetch(paths.pod(pod.namespace, pod.name), _json)
            made = provisioning.template(request, number, owner, given)
            await self._create(paths.path("v1", "podtemplates", namespace=request.namespace), made)
        made = provisioning.body(request, owner, self._class, [count for _, count in ask.pod_sets])
        path = paths.path(provisioning.API_VERSION, provisioning.PLURAL, namespace=request.namespace)
        return await self._create(path, made)

    async def _owner(self, ask: Ask) -> OwnerReference:
        """The gang's PodGroup, or the first member if it has none."""
        for api_version in ask.kinds:
            plural, kind = _PLURALS[api_version]
            where = {"namespace": ask.request.namespace, "name": ask.request.group}
            try:
                found = await self._reader.fetch(paths.path(api_version, plural, **where), _named)
            except (errors.NotFound, errors.Forbidden):
                continue
            return OwnerReference(kind, ask.request.group, found.metadata.uid, api_version=api_version)
        pod, _ = ask.pod_sets[0]
        return OwnerReference("Pod", pod.name, pod.uid, api_version="v1")

    async def _create(self, path: str, made: dict[str, Any]) -> bool:
        """Whether there was no such object."""
        try:
            await self._writer.post(path, made, params=BY_US)
        except errors.Conflict:
            log.info("exists_already", path=path, object=made["metadata"]["name"])
            return False
        return True

    async def withdraw(self, request: Request) -> None:
        """Delete a request and its templates; raises the errors of a request."""
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": request.uid}}
        where = {"namespace": request.namespace, "name": request.name}
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._writer.delete(paths.path(provisioning.API_VERSION, provisioning.PLURAL, **where), options)
        for number in range(provisioning.POD_SETS):
            template = provisioning.template_name(request.name, number)
            try:
                await self._writer.delete(paths.path("v1", "podtemplates", namespace=request.namespace, name=template))
            except errors.NotFound:
                return

    async def consume(self, request: Request, pod: PodRef) -> None:
        """Say on a member that it consumes the request; raises the errors of a request."""
        metadata = {"uid": pod.uid, "annotations": provisioning.consuming(request.name, self._class)}
        path = paths.pod(pod.namespace, pod.name, "status")
        try:
            await self._writer.patch(path, {"metadata": metadata}, params={"fieldManager": names.EXTENDER})
        except (errors.NotFound, errors.Conflict):
            log.debug("member_gone", pod=str(pod))
