"""Leader election by a Lease as in client-go: identity ``<hostname>_<uuid>``, timeouts by the local clock."""

from __future__ import annotations

import asyncio
import time
import uuid

from extender.sim import podspec
from extender.sim.apiserver.api import Api
from extender.sim.apiserver.errors import ApiError
from extender.sim.apiserver.managed import Writer
from extender.sim.apiserver.resources import LEASES, Object
from extender.sim.scheduler.config import LeaderElection, seconds

_WRITER = Writer("kube-scheduler")


class Elector:
    """Acquires and renews one Lease."""

    def __init__(self, api: Api, config: LeaderElection, hostname: str) -> None:
        self._api, self._config = api, config
        self.identity = f"{hostname}_{uuid.uuid4()}"
        self._key = (config.resource_namespace, config.resource_name)
        self._seen: tuple[object, float] = (None, 0.0)  # the last observed spec, and the time

    async def acquire(self) -> None:
        """Return once this scheduler holds the Lease."""
        while True:
            if self._try():
                return
            await asyncio.sleep(seconds(self._config.retry_period))

    async def hold(self) -> None:
        """Renew the Lease; return after renewDeadline without a renewal."""
        renewed = time.monotonic()
        while time.monotonic() - renewed < seconds(self._config.renew_deadline):
            await asyncio.sleep(seconds(self._config.retry_period))
            if self._try():
                renewed = time.monotonic()

    def release(self) -> None:
        """Release the Lease, so that another scheduler can acquire it at once."""
        item = self._api.store.get(LEASES, self._key)
        if item and item.obj["spec"].get("holderIdentity") == self.identity:
            self._put(item.obj, {**item.obj["spec"], "holderIdentity": "", "leaseDurationSeconds": 1})

    def _try(self) -> bool:
        now = podspec.micro_timestamp()
        lasting = int(seconds(self._config.lease_duration)) or 1
        wanted = {"holderIdentity": self.identity, "leaseDurationSeconds": lasting, "renewTime": now}
        item = self._api.store.get(LEASES, self._key)
        if item is None:
            spec = {**wanted, "acquireTime": now, "leaseTransitions": 0}
            self._api.create(LEASES, self._key[0], {"metadata": {"name": self._key[1]}, "spec": spec}, _WRITER)
            return True
        spec = item.obj["spec"]
        if self._seen[0] != spec:
            self._seen = (spec, time.monotonic())
        holder = spec.get("holderIdentity", "")
        if holder == self.identity:
            return self._put(item.obj, {**spec, **wanted})
        if holder and time.monotonic() < self._seen[1] + spec["leaseDurationSeconds"]:
            return False
        taken = {"acquireTime": now, "leaseTransitions": spec.get("leaseTransitions", 0) + 1}
        return self._put(item.obj, {**spec, **wanted, **taken})

    def _put(self, lease: Object, spec: Object) -> bool:
        try:
            self._api.update(LEASES, self._key, {**lease, "spec": spec}, _WRITER)
        except ApiError as error:
            if error.code != 409:
                raise
            return False
        return True
