"""Who the API server's front proxy is: the client certificate with which it hands on its users' requests.

The API server publishes this in a ConfigMap. A server behind it believes the user's name in a request's headers if
that certificate came with the request, and nobody else. Source: k8s.io/apiserver, authentication.RequestHeaderConfig.
"""

import asyncio
from collections.abc import Callable, Mapping

import msgspec
import structlog

from protos.contract.codec import BAD_JSON
from protos.kube import errors, paths
from protos.kube.client import ApiClient

CONFIG_MAP = paths.path("v1", "configmaps", namespace="kube-system", name="extension-apiserver-authentication")
LOOK_S = 60.0
"""Seconds between two reads of the ConfigMap."""
SOON_S = 5.0
"""The same while it is not known."""

log = structlog.get_logger(__name__)


class FrontProxy(msgspec.Struct, frozen=True):
    """The front proxy: CAs of its certificate, in PEM, and the names that the certificate may have (none: any)."""

    ca: str
    names: tuple[str, ...] = ()

    def is_named(self, common_name: str) -> bool:
        """Whether a certificate of its CAs with this name is the front proxy's."""
        return not self.names or common_name in self.names


class _ConfigMap(msgspec.Struct, frozen=True):
    data: Mapping[str, str] | None = None


_config_maps = msgspec.json.Decoder(_ConfigMap)
_lists = msgspec.json.Decoder(tuple[str, ...])


def read(data: Mapping[str, str]) -> FrontProxy | None:
    """The front proxy that the ConfigMap tells; None if the API server has none, or it cannot be read."""
    ca, allowed = data.get("requestheader-client-ca-file", ""), data.get("requestheader-allowed-names", "[]")
    try:
        return FrontProxy(ca, _lists.decode(allowed)) if ca else None
    except BAD_JSON:
        return None


class FrontProxyWatch:
    """Reads the ConfigMap for ever."""

    def __init__(self, client: ApiClient, use: Callable[[FrontProxy], None]) -> None:
        """`use` is called with each change, and raises ValueError for a CA that it cannot read."""
        self._client, self._use = client, use
        self._used: FrontProxy | None = None

    async def run(self) -> None:
        while True:
            try:
                await self._look()
            except (errors.ApiError, ValueError) as error:
                log.warning("front_proxy_not_read", error=str(error))
            await asyncio.sleep(LOOK_S if self._used else SOON_S)

    async def _look(self) -> None:
        found = read((await self._client.fetch(CONFIG_MAP, _config_maps)).data or {})
        if found is None:
            raise ValueError(f"{CONFIG_MAP} names no front proxy: expected requestheader-client-ca-file")
        if found != self._used:
            self._use(found)
            self._used = found
