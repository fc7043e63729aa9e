"""A fake machine described by a YAML profile, for nodes without GPUs: `--fake PROFILE`.

The file is read again when it changes, so a fake GPU can become sick and recover. Schema: docs/fake-profiles.md.
"""

import re
import time
import uuid
from collections import Counter
from collections.abc import Collection
from importlib import resources
from itertools import combinations
from pathlib import Path
from typing import Annotated

import msgspec
import structlog

from deviceplugin.machine import Gpu, Machine, MemoryLimit, SourceError, Xid
from protos import files
from protos.contract import links
from protos.contract.bounds import FAKE_PROCESSES, GPU_TEXT, GPUS_PER_NODE, PID
from protos.contract.inventory import HEALTHY, Fabric, Index, Link, LinkKind, Natural, Numa, Text, Uuid
from protos.contract.reason import Reason
from protos.files import FileError

log = structlog.get_logger()

PERIOD_S = 0.5
PROFILES = resources.files("deviceplugin") / "profiles"
SICK = "sick:"
UNREADABLE = "ProfileUnreadable"
CAPABILITY = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}")
SHOWN = 40
"""Characters of a value that a message shows."""


class Defaults(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The values of GPUs that do not set their own."""

    model: Text = ""
    mem_mib: Natural = msgspec.field(default=0, name="memMiB")
    clock_mhz: Natural = msgspec.field(default=0, name="clockMHz")
    cc: Text = ""
    numa: Numa = -1


class FakeProcess(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A process on a fake GPU, for the measuring process. Without `memMiB` or `sm` the fake driver does not tell it."""

    pid: Annotated[int, msgspec.Meta(ge=1, le=PID.most)]
    mem_mib: Natural | None = msgspec.field(default=None, name="memMiB")
    sm: Annotated[int, msgspec.Meta(ge=0, le=100)] | None = None
    """Percent of the GPU's SM time."""


class FakeGpu(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One GPU of a profile; absent values come from the defaults or from its place in the list."""

    index: Index | None = None
    uuid: Uuid | None = None
    minor: Index | None = None
    model: Text | None = None
    mem_mib: Natural | None = msgspec.field(default=None, name="memMiB")
    clock_mhz: Natural | None = msgspec.field(default=None, name="clockMHz")
    cc: Text | None = None
    numa: Numa | None = None
    pci: Text | None = None
    health: Annotated[str, msgspec.Meta(pattern=r"^(ok|mig|gone|sick:.+)$", max_length=GPU_TEXT.most)] = HEALTHY
    xid: Natural = 0
    """An error that every reading reports while it is set."""
    processes: Annotated[tuple[FakeProcess, ...], msgspec.Meta(max_length=FAKE_PROCESSES.most)] = ()


class Links(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Link kinds by pair of indexes; `all` is the kind of the other pairs."""

    all: LinkKind = ""
    pairs: tuple[Link, ...] = ()


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole file."""

    gpus: tuple[FakeGpu, ...]
    defaults: Defaults = Defaults()
    links: Links = Links()
    fabric: Fabric | None = None
    driver: Text = ""
    toolkit: Text = ""
    limits: dict[str, dict[Uuid, Natural]] | None = None
    """Memory limits in MiB by control group and GPU, as the hook of a toolkit sets them; None: they are not told."""


class FakeSource:
    """The machine of a profile: a shipped name or the path of a YAML file. Raises FileError if that cannot be used."""

    period = PERIOD_S
    trouble: Reason | None

    def __init__(self, profile: str, node: str) -> None:
        self.path, self.node, self.trouble = find(profile), node, None
        self._load()

    def read(self) -> Machine:
        self._refresh()
        return machine(self._profile, self.node)

    def gpus(self) -> list[tuple[str, FakeGpu]]:
        """The GPUs of the profile as it is now, with their UUIDs."""
        self._refresh()
        return [(_uuid(gpu, place, self.node), gpu) for place, gpu in enumerate(self._profile.gpus)]

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
    if len(profile.gpus) > GPUS_PER_NODE.most:
        raise FileError(GPUS_PER_NODE.exceeded(len(profile.gpus)))
    indexes = [_index(gpu, place) for place, gpu in enumerate(profile.gpus)]
    uuids = [gpu.uuid for gpu in profile.gpus if gpu.uuid]
    for what, values in (("indexes", indexes), ("uuids", uuids)):
        if len(set(values)) != len(values):
            raise FileError(f"GPU {what} {values} are not distinct")
    _check_links(profile.links, indexes)
    for cc in (profile.defaults.cc, *(gpu.cc or "" for gpu in profile.gpus)):
        if cc and not CAPABILITY.fullmatch(cc):
            raise FileError(f'cc is {cc[:SHOWN]!r}: expected a compute capability in quotes, like "8.0"')
    return profile


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


def machine(profile: Profile, node: str) -> Machine:
    """The machine that a profile describes, without GPUs that are `gone`. UUIDs differ from node to node."""
    present = [(place, gpu) for place, gpu in enumerate(profile.gpus) if gpu.health != "gone"]
    gpus = sorted((_gpu(gpu, place, profile.defaults, node) for place, gpu in present), key=lambda gpu: gpu.index)
    named = {(min(a, b), max(a, b)): kind for a, b, kind in profile.links.pairs}
    pairs = combinations((gpu.index for gpu in gpus), 2)
    links = tuple((a, b, kind) for a, b in pairs if (kind := named.get((a, b), profile.links.all)))
    return Machine(
        gpus=tuple(gpus),
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
        mig=gpu.health == "mig",
        trouble=gpu.health.removeprefix(SICK) if gpu.health.startswith(SICK) else "",
    )


def _index(gpu: FakeGpu, place: int) -> int:
    return place if gpu.index is None else gpu.index


def _uuid(gpu: FakeGpu, place: int, node: str) -> str:
    return gpu.uuid or f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{_index(gpu, place)}.gpu.{node}')}"
