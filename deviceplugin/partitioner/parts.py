"""Makes the plugin's side of the partitioner."""

from functools import partial

from deviceplugin.cluster import Cluster
from deviceplugin.metrics import Metrics
from deviceplugin.partitioner import holding
from deviceplugin.partitioner.partitions import Partitions
from deviceplugin.partitioner.protocol import Held
from deviceplugin.record import Record
from deviceplugin.settings import Settings


def make(settings: Settings, cluster: Cluster, record: Record, metrics: Metrics) -> Partitions | None:
    """That of this node, None where no instances are made on demand."""
    if settings.partitioner_socket is None:
        return None

    def held() -> Held | None:
        if not cluster.pods_listed.is_set():
            return None
        return holding.held([pod for pod in cluster.pods.values() if not record.refused(pod.metadata.uid)], record)

    tell = partial(cluster.tell_node, kind="Warning")
    return Partitions(settings.partitioner_socket, held, metrics, tell, record.in_use)
