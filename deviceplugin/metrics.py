"""The plugin's metrics for Prometheus."""

import collections

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

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
        self.gpus = self._gauge("gpus", "GPUs by health.", "health")
        self.instances = self._gauge("mig_instances", "MIG instances by profile and health.", "profile", "health")
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

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"gangshare_plugin_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"gangshare_plugin_{name}", text, labels, registry=self.registry)
