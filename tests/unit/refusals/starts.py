"""Why the device plugin keeps the kubelet from starting a container of an admitted pod."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deviceplugin import prestart
from deviceplugin.devices import Sharing
from deviceplugin.identify import RefusedError
from deviceplugin.isolation.pod_limits import PodLimits
from deviceplugin.limits.client import Limits
from deviceplugin.offer import Offer
from deviceplugin.prestart import PreStart
from deviceplugin.record import Record
from protos.contract import names
from protos.contract.objects import Pod
from protos.contract.reason import Reason
from tests.unit.deviceplugin.builders import a_container, a_machine, a_pod
from tests.unit.deviceplugin.test_identify import Cluster
from tests.unit.refusals.case import Case, Section

IDS = ("GPU-0::m0", "GPU-0::m1")


def _not_started(*, known: bool = True, answered: bool = True) -> Reason:
    """Why the container of a pod with a memory limit does not start: the helper that sets limits does not answer."""

    async def asked() -> Reason:
        pod: Pod = a_pod("p", a_container(mem=2))
        cluster: Any = Cluster(pod)
        if known:
            cluster.pods_listed.set()
        record, offer = Record(), Offer(Sharing())
        offer.set(a_machine(16), {}, {})
        if answered:
            record.fix(pod.metadata.uid, {"main": ("GPU-0",)})
            record.note(pod.metadata.uid, "main", names.GPU_MEM, IDS)
            record.limit(pod.metadata.uid, "main", 2048)
        watch: Any = SimpleNamespace(setter="helper")
        steps = [PodLimits(record, offer, watch, Limits(Path("/nowhere.sock"))).before_start]
        with pytest.raises(RefusedError) as refused:
            await PreStart(cluster, record, steps).start(names.GPU_MEM, IDS)
        return refused.value.reason

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prestart, "KNOW_S", 0.05)
        return asyncio.run(asked())


CASES = [
    Case(
        "LimitNotSet",
        "the memory limit of the pod cannot be set, so its container does not start",
        _not_started,
        "look at the pods of the component isolation-limits: the helper does not answer, or the driver refuses",
    ),
    Case(
        "NodeUnknown",
        "the pods of this node cannot be listed",
        lambda: _not_started(known=False),
        "the plugin's log says why",
    ),
    Case(
        "NodeUnknown",
        "the plugin does not know yet which pod has these devices",
        lambda: _not_started(answered=False),
        "nothing; if it lasts, delete the pod: its controller creates another",
    ),
]
SECTION = Section(
    "Containers that do not start",
    "The kubelet asks the plugin before each start of a container, where MPS or the helper limits containers. It shows "
    "one of these in the container's status, and the pod gets an Event. `MpsNotReady` may come here as well.",
    CASES,
    "when the kubelet tries again, ever less often, up to every five minutes",
)
