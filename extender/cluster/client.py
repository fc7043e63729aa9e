"""The API client of everything that acts: it asks for permission right before each write is sent."""

from typing import Any

import structlog

from extender.cluster.leadership import Permission
from protos.kube.client import ApiClient
from protos.kube.credentials import Credentials
from protos.kube.http1 import Answer

log = structlog.get_logger(__name__)


class PermittedClient(ApiClient):
    """An ApiClient whose writes raise `NotLeading` unless this process may write at that very moment.

    Each sending is checked, not each call: a write that waited for its turn, or for a Retry-After, is checked anew.
    """

    def __init__(self, credentials: Credentials, permission: Permission, **options: Any) -> None:
        super().__init__(credentials, **options)
        self._permission = permission

    async def _send(self, method: str, target: str, data: bytes | None, content_type: str) -> Answer:
        if method != "GET":
            self._permission.require()
            log.debug("write", method=method, path=target)
        return await super()._send(method, target, data, content_type)
