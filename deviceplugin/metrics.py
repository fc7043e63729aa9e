"""The plugin's metrics for Prometheus."""

import collections
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from deviceplugin.machine import MpsLevel
from protos.contract import mig
from protos.contract.inventory import Inventory

BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Metrics:
    """The plugin's metrics in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.allocate = Histogram(
            "gangshare_plugin_allocate_seconds",
            "Time from the kubelet's Allocate to its answer.",
            ["resource"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.refusals = self._counter("refusals", "Allocate calls refused.", "reason")
        self.placements = self._counter("placements", "Pods given GPUs, by how the GPUs were chosen.", "how")
        self.corrections = self._counter("corrections", "Annotations corrected to the GPUs given.", "outcome")
        self.takeovers = self._counter("takeovers", "Running pods taken over from another plugin.")
        self.duplicates = self._counter("duplicate_devices", "Device IDs given while another container had them.")
        self.registrations = self._counter("registrations", "Registrations with the kubelet.", "resource")
        self.publications = self._counter("publications", "Inventories written to the node.")
        self.pod_resources = self._counter(
            "pod_resources", "Lists made for --serve-pod-resources; short ones leave out pods.", "size"
        )
        self.registered = self._gauge("registered", "1 while the kubelet follows our device list.", "resource")
        self.unallocated = self._gauge("unallocated_pods", "Pods that run although nothing was allocated to them.")
        self.gpus = self._gauge("gpus", "GPUs by health.", "health")
        self.instances = self._gauge("mig_instances", "MIG instances by profile and health.", "profile", "health")
        self.made = self._gauge("mig_instances_made", "MIG instances that were made on demand, by profile.", "profile")
        self.mps_gpus = self._gauge("mps_gpus", "GPUs given over to MPS, by its phase on them.", "phase")
        self.isolation_checks = self._counter(
            "isolation_checks", "Containers whose memory limit was read back, by outcome.", "outcome"
        )
        self.isolated = self._gauge(
            "isolated_containers",
            "Running containers that were given a memory limit, by what was read back.",
            "state",
        )

    def count_gpus(self, inventory: Inventory) -> None:
        """Set the numbers of GPUs and of MIG instances."""
        words = collections.Counter((gpu.profile, gpu.health.partition(":")[0]) for gpu in inventory.gpus)
        self.gpus.clear()
        self.instances.clear()
        for (profile, health), count in words.items():
            (self.instances.labels(profile, health) if profile else self.gpus.labels(health)).set(count)

    def count_made(self, places: Iterable[str]) -> None:
        """Set the numbers of MIG instances that were made on demand at these places."""
        self.made.clear()
        profiles = (place.profile for name in places if (place := mig.place(name)) is not None)
        for profile, count in collections.Counter(profiles).items():
            self.made.labels(profile).set(count)

    def count_mps(self, level: MpsLevel | None) -> None:
        """Set the numbers of GPUs that are given over to MPS."""
        self.mps_gpus.clear()
        for phase, count in collections.Counter(level.phases if level else ()).items():
            self.mps_gpus.labels(phase).set(count)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"gangshare_plugin_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"gangshare_plugin_{name}", text, labels, registry=self.registry)
