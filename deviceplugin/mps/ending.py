"""Which clients of MPS are ended, and which are stuck. Pure but for the question whose process it is.

A client that is killed while its work runs may block the server for all others. So clients of a pod that is about to be
killed are ended through the daemon first.
"""

from collections.abc import Callable, Iterable, Sequence

from deviceplugin.mps.control import Client
from deviceplugin.mps.exchange import Holder

PodOf = Callable[[int], str]
"""The UID of the pod of a process, "" if it is in none."""


def due(clients: Iterable[Client], holders: Sequence[Holder], pod_of: PodOf, now: float, margin: float) -> list[Client]:
    """The clients of pods that the kubelet kills within `margin` seconds; `now` in seconds since the epoch."""
    ends: dict[str, float] = {}
    for holder in holders:
        if holder.ends:
            ends[holder.pod] = max(ends.get(holder.pod, 0.0), holder.ends)
    return [client for client in clients if 0 < ends.get(pod_of(client.pid), 0.0) <= now + margin]


class Stuck:
    """Clients that the daemon still lists although their process is gone."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since: dict[Client, float] = {}

    def see(self, clients: Iterable[Client], alive: Callable[[int], bool], now: float) -> list[Client]:
        """Those that have been gone for longer than the patience."""
        gone = [client for client in clients if not alive(client.pid)]
        self._since = {client: self._since.get(client, now) for client in gone}
        return [client for client in gone if now - self._since[client] > self._patience]
