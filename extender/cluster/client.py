"""The API client of everything that acts: it asks for permission right before each write is sent."""

from typing import Any

import structlog

from extender.cluster.leadership import Permission
from protos.kube.client import ApiClient
from protos.kube.credentials import Credentials

log = structlog.get_logger(__name__)


class PermittedClient(ApiClient):
    """An ApiClient whose writes raise `NotLeading` unless this process may write at that very moment.

    Each sending is checked, not each call, and after all that it waited for: its turn, its connection, a Retry-After.
    """

    def __init__(self, credentials: Credentials, permission: Permission, **options: Any) -> None:
        super().__init__(credentials, **options)
        self._permission = permission

    def _about_to_send(self, method: str, target: str) -> None:
        if method != "GET":
            self._permission.require()
            log.debug("write", method=method, path=target)
