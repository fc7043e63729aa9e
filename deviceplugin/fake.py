"""A fake machine described by a YAML profile, for nodes without GPUs: `--fake PROFILE`.

The file is read again when it changes, so a fake GPU can become sick and recover. Schema: docs/fake-profiles.md.
"""

import re
import time
import uuid
from collections import Counter
from collections.abc import Collection, Iterator
from importlib import resources
from itertools import combinations
from pathlib import Path

import msgspec
import structlog

from deviceplugin.fake_schema import SICK, Defaults, FakeGpu, FakeInstance, FakeProcess, Links, Profile
from deviceplugin.health import GONE
from deviceplugin.machine import Gpu, Machine, MemoryLimit, SourceError, Xid
from protos import files
from protos.contract import links, mig
from protos.contract.bounds import GPUS_PER_NODE
from protos.contract.reason import Reason
from protos.files import FileError

log = structlog.get_logger()

PERIOD_S = 0.5
PROFILES = resources.files("deviceplugin") / "profiles"
UNREADABLE = "ProfileUnreadable"
CAPABILITY = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}")
KEPT_MIB = 512
"""Of an instance's memory that the driver keeps."""
LEAST_CUT_MIB, MOST_CUT_MIB = mig.MEMORY_SLICES * 1024, 9999 * 1024
"""Memory of a GPU of which instances are made: a gigabyte for each memory slice, four digits in a profile's name."""
SHOWN = 40
"""Characters of a value that a message shows."""


class FakeSource:
    """The machine of a profile: a shipped name or the path of a YAML file. Raises FileError if that cannot be used."""

    period = PERIOD_S
    trouble: Reason | None

    def __init__(self, profile: str, node: str, *, mig: bool = False) -> None:
        """`mig` says whether the instances of GPUs in MIG mode are read."""
        self.path, self.node, self._mig, self.trouble = find(profile), node, mig, None
        self._load()

    def read(self) -> Machine:
        self._refresh()
        return machine(self._profile, self.node, instances=self._mig)

    def given_over(self) -> tuple[Gpu, ...]:
        """The GPUs in MIG mode of which instances are made on demand."""
        cards = self.read().cards
        dynamic = {_uuid(gpu, place, self.node) for place, gpu in enumerate(self._profile.gpus) if gpu.dynamic}
        return tuple(gpu for gpu in cards if gpu.mig and gpu.uuid in dynamic)

    def processes(self) -> list[tuple[str, tuple[FakeProcess, ...]]]:
        """The processes on each GPU and MIG instance of the profile as it is now, by UUID."""
        self._refresh()
        found = []
        for place, gpu in enumerate(self._profile.gpus):
            if gpu.health != GONE:
                found.append((_uuid(gpu, place, self.node), gpu.processes))
                found += [
                    (_instance_uuid(each, _index(gpu, place), nth, self.node), each.processes)
                    for nth, each in enumerate(gpu.instances)
                    if gpu.split and each.health != GONE
                ]
        return found

    def poll(self, timeout: float) -> list[Xid]:
        time.sleep(timeout)
        self._refresh()
        gpus = enumerate(self._profile.gpus)
        return [Xid(_uuid(gpu, place, self.node), gpu.xid) for place, gpu in gpus if gpu.xid]

    def memory_limit(self, uuid: str, cgroup: str) -> MemoryLimit | None:
        self._refresh()
        if self._profile.limits is None:
            raise SourceError("the profile has no limits")
        mib = self._profile.limits.get(cgroup, {}).get(uuid)
        return None if mib is None else MemoryLimit(mib * 2**20)

    def close(self) -> None:
        return

    def _load(self) -> None:
        self._stamp = files.stamp(self.path)
        self._profile = files.read(self.path, parse)

    def _refresh(self) -> None:
        """Load a changed file; for an unusable one `trouble` says why, and the last profile stays."""
        if files.stamp(self.path) == self._stamp:
            return
        try:
            self._load()
            self.trouble = None
            log.info("profile_read_again", path=str(self.path))
        except FileError as error:
            sentence = "the profile of this node's fake GPUs cannot be read; the last one that could is used"
            self.trouble = Reason(UNREADABLE, sentence, str(error))


def shipped() -> list[str]:
    """The names of the profiles that come with the plugin."""
    return sorted(entry.name.removesuffix(".yaml") for entry in PROFILES.iterdir() if entry.name.endswith(".yaml"))


def find(profile: str) -> Path:
    """The file of a profile given by name or path; raises FileError."""
    if profile in shipped():
        return Path(str(PROFILES / f"{profile}.yaml"))
    path = Path(profile)
    if not path.is_file():
        raise FileError(f"no profile {profile!r}: expected a YAML file or one of {', '.join(shipped())}")
    return path


def parse(content: bytes) -> Profile:
    """The profile in a file's content; raises FileError with the place."""
    profile = files.convert(content, Profile)
    count = len(profile.gpus) + sum(len(gpu.instances) for gpu in profile.gpus)
    if count > GPUS_PER_NODE.most:
        raise FileError(GPUS_PER_NODE.exceeded(count))
    indexes = [_index(gpu, place) for place, gpu in enumerate(profile.gpus)]
    uuids = [gpu.uuid for gpu in profile.gpus if gpu.uuid]
    uuids += [each.uuid for gpu in profile.gpus for each in gpu.instances if each.uuid]
    for gpu, index in zip(profile.gpus, indexes, strict=True):
        _check_instances(gpu, index)
        _check_dynamic(gpu, index, profile.defaults.mem_mib if gpu.mem_mib is None else gpu.mem_mib)
    for what, values in (("indexes", indexes), ("uuids", uuids)):
        if len(set(values)) != len(values):
            raise FileError(f"GPU {what} {values} are not distinct")
    _check_links(profile.links, indexes)
    for cc in (profile.defaults.cc, *(gpu.cc or "" for gpu in profile.gpus)):
        if cc and not CAPABILITY.fullmatch(cc):
            raise FileError(f'cc is {cc[:SHOWN]!r}: expected a compute capability in quotes, like "8.0"')
    return profile


def _check_instances(gpu: FakeGpu, index: int) -> None:
    places = [_place(each, nth) for nth, each in enumerate(gpu.instances)]
    if len(set(places)) != len(places):
        raise FileError(f"the places {places} of the instances of GPU {index} are not distinct")
    if places and index >= mig.FIRST:
        raise FileError(f"GPU {index} has instances: expected an index below {mig.FIRST}")
    for each in gpu.instances:
        if mig.profile(each.profile) is None:
            raise FileError(f"profile of an instance is {each.profile[:SHOWN]!r}: expected one like 1g.10gb")


def _check_dynamic(gpu: FakeGpu, index: int, mem_mib: int) -> None:
    if not gpu.dynamic:
        return
    if gpu.instances:
        raise FileError(f"GPU {index} is dynamic and has instances: expected one of the two")
    if index >= mig.CUT_GPUS:
        raise FileError(f"GPU {index} is dynamic: expected an index below {mig.CUT_GPUS}")
    if not LEAST_CUT_MIB <= mem_mib <= MOST_CUT_MIB:
        expected = f"expected {LEAST_CUT_MIB} to {MOST_CUT_MIB}, which profiles can name"
        raise FileError(f"GPU {index} is dynamic and has {mem_mib} MiB: {expected}")


def _check_links(found: Links, indexes: Collection[int]) -> None:
    pairs = [(min(a, b), max(a, b)) for a, b, _ in found.pairs]
    for a, b in pairs:
        if a == b or not {a, b} <= set(indexes):
            raise FileError(f"links.pairs names {a} and {b}: expected two of the GPUs {indexes}")
    if twice := [pair for pair, count in Counter(pairs).items() if count > 1]:
        raise FileError(f"links.pairs names {twice[0][0]} and {twice[0][1]} twice: expected each pair once")
    for kind in (found.all, *(kind for _, _, kind in found.pairs)):
        if kind and not links.weight(kind):
            expected = f"NV and a number of links, like NV12, or {', '.join(links.PCIE_WEIGHTS)}"
            raise FileError(f"links has the kind {kind!r}: expected {expected}")


def machine(profile: Profile, node: str, *, instances: bool = False) -> Machine:
    """The machine that a profile describes, without GPUs that are `gone`. UUIDs differ from node to node."""
    present = [(place, gpu) for place, gpu in enumerate(profile.gpus) if gpu.health != GONE]
    gpus = sorted((_gpu(gpu, place, profile.defaults, node) for place, gpu in present), key=lambda gpu: gpu.index)
    named = {(min(a, b), max(a, b)): kind for a, b, kind in profile.links.pairs}
    pairs = combinations((gpu.index for gpu in gpus), 2)
    links = tuple((a, b, kind) for a, b in pairs if (kind := named.get((a, b), profile.links.all)))
    fakes = {_index(gpu, place): gpu for place, gpu in present if instances and gpu.split}
    split = [each for gpu in gpus if gpu.index in fakes for each in _instances(gpu, fakes[gpu.index], node)]
    return Machine(
        gpus=(*gpus, *split),
        links=links,
        fabric=profile.fabric,
        driver=profile.driver,
        limits=bool(profile.driver),
        toolkit=profile.toolkit,
    )


def _gpu(gpu: FakeGpu, place: int, defaults: Defaults, node: str) -> Gpu:
    index = _index(gpu, place)
    given = {name: value for name in Defaults.__struct_fields__ if (value := getattr(gpu, name)) is not None}
    return Gpu(
        **{**msgspec.structs.asdict(defaults), **given},
        index=index,
        uuid=_uuid(gpu, place, node),
        minor=index if gpu.minor is None else gpu.minor,
        pci=f"0000:{index + 1:02x}:00.0" if gpu.pci is None else gpu.pci,
        mig=gpu.split,
        trouble=gpu.health.removeprefix(SICK) if gpu.health.startswith(SICK) else "",
    )


def _instances(gpu: Gpu, fake: FakeGpu, node: str) -> Iterator[Gpu]:
    for nth, each in enumerate(fake.instances):
        found = mig.profile(each.profile)
        if found is not None and each.health != GONE:
            yield msgspec.structs.replace(
                gpu,
                index=mig.index(gpu.index, _place(each, nth)),
                uuid=_instance_uuid(each, gpu.index, nth, node),
                mem_mib=found.memory_gb * 1024 - KEPT_MIB if each.mem_mib is None else each.mem_mib,
                mig=False,
                trouble=each.health.removeprefix(SICK) if each.health.startswith(SICK) else "",
                profile=found.name,
                parent=gpu.uuid,
                gi=_place(each, nth),
                ci=0,
            )


def _place(instance: FakeInstance, nth: int) -> int:
    return nth if instance.place is None else instance.place


def _instance_uuid(instance: FakeInstance, gpu: int, nth: int, node: str) -> str:
    name = f"{_place(instance, nth)}.{instance.profile}.{gpu}.mig.{node}"
    return instance.uuid or f"MIG-{uuid.uuid5(uuid.NAMESPACE_DNS, name)}"


def _index(gpu: FakeGpu, place: int) -> int:
    return place if gpu.index is None else gpu.index


def _uuid(gpu: FakeGpu, place: int, node: str) -> str:
    return gpu.uuid or f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{_index(gpu, place)}.gpu.{node}')}"
