"""The library's parts of the plugin, made from its settings."""

from collections.abc import Collection
from typing import NamedTuple

from deviceplugin.cluster import Cluster
from deviceplugin.library.keeper import Keeper
from deviceplugin.library.probe import Probe
from deviceplugin.library.prover import LibraryProver
from deviceplugin.library.regions import Owner, Regions
from deviceplugin.record import Record
from deviceplugin.settings import Settings
from deviceplugin.usage.processes import Processes
from protos.contract.objects import ENDED


class Parts(NamedTuple):
    """What reads the node, gives containers their regions, and checks them."""

    probe: Probe
    keeper: Keeper
    prover: LibraryProver


def make(settings: Settings, cluster: Cluster, record: Record, processes: Processes) -> Parts | None:
    """The parts, None where the operator brings no library or does not want it."""
    library, groups, caps = settings.library_path, settings.cgroup_root, settings.library_compute
    if library is None or not settings.limits_by_library:
        return None
    regions = Regions(settings.library_dir, settings.library_dir_mib)

    def pods() -> Collection[str] | None:
        return active(cluster, record) if cluster.followed else None

    def owners() -> list[Owner]:
        return limited(cluster, record)

    return Parts(
        probe=Probe(library, regions, groups, caps_compute=caps),
        keeper=Keeper(regions, library, groups, owners, pods, caps_compute=caps),
        prover=LibraryProver(regions, processes),
    )


def active(cluster: Cluster, record: Record) -> frozenset[str]:
    """The UIDs of the pods that are here or were answered, without those that have ended."""
    return (record.uids() | {pod.metadata.uid for pod in cluster.pods.values()}) - _ended(cluster)


def limited(cluster: Cluster, record: Record) -> list[Owner]:
    """The containers that were given the library, of pods that have not ended."""
    uids = record.uids() - _ended(cluster)
    return [Owner(uid, name) for uid in uids for name in record.limits_by_library(uid)]


def _ended(cluster: Cluster) -> set[str]:
    return {pod.metadata.uid for pod in cluster.pods.values() if pod.status.phase in ENDED}
