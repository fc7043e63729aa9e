"""Limits the memory of pods before their containers start, where the helper does that instead of the toolkit."""

import structlog

from deviceplugin.identify import RefusedError
from deviceplugin.isolation import demands
from deviceplugin.isolation.watch import Watch
from deviceplugin.limits.client import Limits
from deviceplugin.limits.protocol import Limit, LimitError
from deviceplugin.offer import Offer
from deviceplugin.record import Record
from protos.contract.books import NodeBooks
from protos.contract.objects import Pod
from protos.contract.reason import Reason

log = structlog.get_logger()

NOT_SET = "LimitNotSet"


class PodLimits:
    """The limits of pods whose containers are about to start."""

    def __init__(self, record: Record, offer: Offer, watch: Watch, limits: Limits) -> None:
        self._record, self._offer, self._watch, self._limits = record, offer, watch, limits

    async def before_start(self, pod: Pod, _container: str) -> None:
        """Set the limits of the container's pod; raises RefusedError."""
        ledger = NodeBooks(self._offer.inventory)
        wanted = demands.of_pod(pod, self._record, ledger, self._offer.sharing.resources)
        if not wanted or self._watch.setter == "toolkit":
            return  # it was given none, or the hook sets it
        try:
            await self._limits.ask(Limit(pod=pod.metadata.uid, mib=wanted))
        except LimitError as error:
            sentence = "the memory limit of the pod cannot be set, so its container does not start"
            raise RefusedError(Reason(NOT_SET, sentence, str(error))) from error
        log.info("pod_limited", pod=f"{pod.metadata.namespace}/{pod.metadata.name}", mib=wanted)
