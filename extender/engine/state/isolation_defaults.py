"""What pods demand that say nothing of isolation: what their namespace says, or else the cluster."""

from __future__ import annotations

from protos.contract.isolation import Demanded


class IsolationDefaults:
    """The default of the cluster, and those of namespaces."""

    def __init__(self, cluster: Demanded) -> None:
        self._cluster = cluster
        self._of: dict[str, Demanded] = {}

    def of(self, namespace: str) -> Demanded:
        """The default of a namespace's pods."""
        return self._of.get(namespace, self._cluster)

    def put(self, namespace: str, demanded: Demanded | None) -> bool:
        """Set what a namespace says, None if nothing; returns whether the default of its pods has changed."""
        before = self.of(namespace)
        if demanded is None:
            self._of.pop(namespace, None)
        else:
            self._of[namespace] = demanded
        return self.of(namespace) != before
