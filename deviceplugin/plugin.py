"""The plugin as a process: makes the parts, runs them, and stops them after a drain."""

import asyncio
import signal
import time
from collections.abc import Collection
from contextlib import nullcontext
from pathlib import Path

import structlog

from deviceplugin import checkpoint, register, unallocated
from deviceplugin.allocate import Allocator, Limiters
from deviceplugin.answers import CONTROL_NODES, Style
from deviceplugin.cluster import Cluster
from deviceplugin.corrections import Corrections
from deviceplugin.devices import TooManyDevicesError
from deviceplugin.exposition import Exposition
from deviceplugin.health import Health
from deviceplugin.identify import Identifier
from deviceplugin.isolation.checks import Limiter
from deviceplugin.isolation.evict import Evictor
from deviceplugin.isolation.levels import Mode, OnMismatch
from deviceplugin.isolation.pod_limits import PodLimits
from deviceplugin.isolation.probe import Probe
from deviceplugin.isolation.provers import DriverProver, Prover
from deviceplugin.isolation.readback import ReadBack, Remedies
from deviceplugin.isolation.resizing import Resizing
from deviceplugin.isolation.watch import Watch
from deviceplugin.library import parts as library
from deviceplugin.limits.client import Limits
from deviceplugin.machine import Source
from deviceplugin.metrics import Metrics
from deviceplugin.mps.holding import Held, holding
from deviceplugin.mps.partner import Partner
from deviceplugin.notices import NodeNotices
from deviceplugin.offer import Offer
from deviceplugin.partitioner import parts as partitioner
from deviceplugin.partitioner.partitions import PartitionedSource
from deviceplugin.podresources import PodResources
from deviceplugin.prestart import PreStart, Step
from deviceplugin.publish import Publisher
from deviceplugin.record import Record
from deviceplugin.register import Registrar
from deviceplugin.registrars import Registrars
from deviceplugin.sense import Senses
from deviceplugin.server import Endpoint
from deviceplugin.settings import Settings
from deviceplugin.startup_taint import StartupTaint
from deviceplugin.true_list import TrueList
from deviceplugin.usage.processes import Processes
from protos import files
from protos.contract import names, objects
from protos.kube import credentials
from protos.kube.client import ApiClient
from protos.kube.events import Recorder

log = structlog.get_logger()

TAKE_OVER_S = 2.0
"""Seconds between two checks whether another plugin gave devices."""
TWICE = "GpuResourceTwice"
TWICE_REMEDY = (
    "it registered later, so the kubelet asks it: pods get GPUs that the scheduler did not choose. Remove one of the "
    "two plugins from the node, or let Gangshare serve whole GPUs under another name (--resource-whole)"
)
FAREWELL_S = 2.0
"""Timeout of publishing `leaving`."""


async def run(settings: Settings, source: Source, processes: Processes) -> None:
    """Serve until SIGTERM or SIGINT; raises CredentialsError, SettingsError and TooManyDevicesError."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    access = await credentials.load(settings.kubeconfig or None)
    async with ApiClient(access, user_agent=names.PLUGIN) as client:
        plugin = Plugin(settings, source, processes, client)
        try:
            await plugin.run(stop)
        except ExceptionGroup as failed:
            too_many = failed.subgroup(TooManyDevicesError)
            raise too_many.exceptions[0] if too_many else failed from None
        finally:
            await plugin.kubelet.close()


class Plugin:
    """All parts of the plugin and the callbacks between them."""

    def __init__(self, settings: Settings, source: Source, processes: Processes, client: ApiClient) -> None:
        self.settings, self.metrics, self.record = settings, Metrics(), Record()
        self.offer = Offer(settings.sharing)
        self.kubelet = PodResources(settings.pod_resources)
        recorder = Recorder(client, component=names.PLUGIN, instance=settings.node_name, clock=time.monotonic)
        self.cluster = Cluster(client, settings.node_name, recorder)
        standalone = settings.standalone
        self.corrections = Corrections(self.cluster, self.offer, self.record, self.metrics, standalone=standalone)
        self._notices = NodeNotices(self.cluster, self.offer)
        health = Health(settings.ignored_xids, settings.cool_down_s)
        tell = self.cluster.tell_node
        self._library = library.make(settings, self.cluster, self.record, processes)
        by_library = self._library.probe if self._library else None
        probe = Probe(settings.cgroup_root, settings.host_root, settings.toolkit_version, by_library)
        self._limits = Limits(settings.limits_socket) if settings.limits_socket else None
        self._isolation = Watch(settings.isolation, probe, tell, self._limits)
        self.partitions = partitioner.make(settings, self.cluster, self.record, self.metrics)
        source = PartitionedSource(source, self.partitions.marked) if self.partitions else source
        self.senses = Senses(source, health, self.offer, self.kubelet, self.metrics, tell, self._isolation)
        self.senses.in_use = self.record.in_use
        self._resizing = Resizing(self.cluster, self.record, self.offer, self._isolation, self._limits)
        self._read_back = self._make_read_back()
        self.registrars: Registrars | None = None
        self._checkpoint = settings.kubelet_dir / names.KUBELET_CHECKPOINT
        self.publisher = Publisher(self.cluster, self.offer, self.metrics, self._settled)
        self.mps = self._make_partner(settings.mps_dir) if settings.mps_dir is not None else None
        self.cluster.on_pod, self.cluster.on_gone = self._look, self._forget

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`, then publish `leaving`, drain and end."""
        await self.senses.read([])
        self._take_over()
        if self.partitions is not None:
            await self.senses.read([])  # what pods were given tells which instances were made for them
        register.sweep(self.settings.kubelet_dir)
        port = self.settings.metrics_port
        exposed = Exposition(self.metrics.registry, port) if port else nullcontext()
        async with exposed, asyncio.TaskGroup() as group:
            self.registrars = self._make_registrars(group)
            parts = [
                self.registrars.run(),
                self.senses.run(),
                self.cluster.watch_pods(),
                self.cluster.watch_node(),
                self.corrections.run(),
                self.publisher.run(),
                *(taint.run() for taint in self._startup_taints()),
                self._follow_others(),
                unallocated.Watch(self.cluster, self.record, self.kubelet, self.offer.sharing, self.metrics).run(),
                *([self._read_back.run(), self._resizing.run()] if self._read_back else []),
                *([self._library.keeper.run()] if self._library else []),
                *([self.partitions.run()] if self.partitions else []),
                *([self.mps.run()] if self.mps else []),
                *(true_list.run() for true_list in self._true_lists()),
            ]
            tasks = [group.create_task(part) for part in parts]
            await stop.wait()
            await self._leave()
            for task in tasks:
                task.cancel()

    def _make_read_back(self) -> ReadBack | None:
        """The checks of memory limits, None where none are set."""
        if self.settings.isolation is Mode.OFF:
            return None
        provers: dict[Limiter, Prover] = {"driver": DriverProver(self.senses.source, pods=self._limits is not None)}
        if self._library is not None:
            provers["library"] = self._library.prover
        evicts = self.settings.on_isolation_mismatch is OnMismatch.EVICT
        remedies = Remedies(Evictor(self.cluster) if evicts else None, self._limits, self._resizing.pending)
        groups = self.settings.cgroup_root
        return ReadBack(self.senses, self.cluster, self.record, self._isolation, groups, provers, remedies)

    def _make_partner(self, folder: Path) -> Partner:
        """The plugin's side of MPS."""

        def held() -> list[Held] | None:
            if not self.cluster.pods_listed.is_set():
                return None
            pods = [pod for pod in self.cluster.pods.values() if not self.record.refused(pod.metadata.uid)]
            return holding(pods, self.settings.resources, self.record, self.offer.inventory)

        def wanted() -> bool:
            return self.cluster.node is not None and self.cluster.node.metadata.labels.get(names.MPS) == "true"

        return Partner(folder, held, lambda: self.offer.inventory, wanted)

    def _look(self, pod: objects.Pod) -> None:
        self.corrections.look(pod)
        if self.mps is not None:
            self.mps.changed = True

    def _make_registrars(self, group: asyncio.TaskGroup) -> Registrars:
        style = Style(
            strategy=self.settings.device_list_strategy,
            control_nodes=tuple(node for node in CONTROL_NODES if Path(node).exists()),
            cdi_kind=self.settings.cdi_kind,
            gpushare=self.settings.gpushare,
            single=self.settings.time_slicing.single,
        )
        identify = Identifier(self.kubelet, self.cluster, self.record)
        others = Limiters(self.mps, self._library.keeper if self._library else None, self.partitions)
        allocator = Allocator(identify, self.offer, self.corrections, self.metrics, style, group.create_task, others)

        def make(resource: str) -> Registrar:
            endpoint = Endpoint(resource, self.offer, allocator, self.metrics, self._prestart(resource))
            folder, tell = self.settings.kubelet_dir, self.cluster.tell_node
            return Registrar(endpoint, folder, self.kubelet, self.metrics, tell, self._kubelet_restarted)

        return Registrars(self.offer, make)

    def _prestart(self, resource: str) -> PreStart | None:
        """What must be done before containers with this resource start, None if nothing."""
        sharing, steps = self.offer.sharing, list[Step]()
        parts = resource in (sharing.resources.mem, sharing.resources.slice, *sharing.replicas)
        if self._limits is not None and parts:
            steps.append(PodLimits(self.record, self.offer, self._isolation, self._limits).before_start)
        steps += [self.mps.before_start] if self.mps is not None else []
        return PreStart(self.cluster, self.record, steps) if steps else None

    def _true_lists(self) -> list[TrueList]:
        """The server of PodResources, if it is wanted."""
        socket = self.settings.serve_pod_resources
        parts = self.kubelet, self.cluster, self.record, self.offer, self.metrics
        true = self.partitions.true if self.partitions is not None else str
        return [TrueList(socket, *parts, true=true)] if socket else []

    def _startup_taints(self) -> list[StartupTaint]:
        """What removes the startup taint, if there is one."""
        key, mem = self.settings.startup_taint, self.settings.resources.mem
        return [StartupTaint(self.cluster, key, mem, self._settled)] if key else []

    async def _leave(self) -> None:
        log.info("leaving", stop_delay_s=self.settings.stop_delay_s)
        try:
            async with asyncio.timeout(FAREWELL_S):
                await self.publisher.leave()
        except TimeoutError:
            log.warning("leaving_not_told")
        await asyncio.sleep(self.settings.stop_delay_s)

    async def _follow_others(self) -> None:
        """Forget pods that left, correct annotations, take over what another plugin gives, tell of the node."""
        await self.cluster.pods_listed.wait()
        gone = self._forget_gone(self.record.uids())
        self.corrections.look_at_all()
        seen = files.stamp(self._checkpoint)
        while True:
            await asyncio.sleep(TAKE_OVER_S)
            gone = self._forget_gone(gone)
            await self._isolation.tell()
            if self.settings.standalone:
                await self._notices.tell()
            stamp = files.stamp(self._checkpoint)
            if stamp == seen:
                continue
            seen, ours = stamp, self.registrars.ours if self.registrars else frozenset[str]()
            for resource in sorted(self._take_over(self._here()) & ours):
                sentence = f"another device plugin gives {resource} too, {TWICE_REMEDY}"
                await self.cluster.tell_node(TWICE, sentence, "Warning")
            self.corrections.look_at_all()

    def _forget_gone(self, before: Collection[str]) -> frozenset[str]:
        """Forget pods that are gone now and were gone `before`: a pod may be deleted during its Allocate.

        Returns the UIDs that are gone now.
        """
        gone = self.record.uids() - self._here()
        for uid in gone.intersection(before) if self.cluster.followed else ():
            self._forget(uid)
        return gone

    def _here(self) -> set[str]:
        return {pod.metadata.uid for pod in self.cluster.pods.values()}

    def _take_over(self, here: Collection[str] | None = None) -> frozenset[str]:
        """Take over the devices given so far to these pods (by default to all), by us and by other plugins.

        Returns the resources that another plugin gave to pods new to us.
        """
        entries = [entry for entry in self._read_checkpoint() or () if here is None or entry.uid in here]
        if self.mps is not None:
            self.mps.load(entry for entry in entries if self.offer.sharing.counts(entry.resource))
        return self.record.load(entries, self.offer.inventory, self.offer.sharing)

    def _kubelet_restarted(self, resource: str) -> None:
        entries = self._read_checkpoint()
        if entries is not None:
            self.record.recall(resource, entries)

    def _read_checkpoint(self) -> tuple[checkpoint.Entry, ...] | None:
        """The entries of the kubelet's checkpoint, None if it cannot be read."""
        try:
            return checkpoint.read(self._checkpoint)
        except files.FileError as error:
            log.warning("checkpoint_not_read", error=str(error))
            return None

    def _settled(self) -> bool:
        return self.registrars is not None and self.registrars.settled

    def _forget(self, uid: str) -> None:
        self.record.forget(uid)
        if self.mps is not None:
            self.mps.forget(uid)
        self.corrections.forget(uid)
