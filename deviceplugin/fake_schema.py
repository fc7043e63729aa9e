"""The schema of fake machines: YAML profiles, read strictly. Documented in docs/fake-profiles.md."""

from typing import Annotated

import msgspec

from protos.contract import mig
from protos.contract.bounds import FAKE_PROCESSES, GPU_TEXT, PID
from protos.contract.inventory import HEALTHY, Fabric, Index, Link, LinkKind, Natural, Numa, ProfileName, Text, Uuid

SICK = "sick:"


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


class FakeInstance(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A MIG instance of a fake GPU in MIG mode; absent values come from the profile or from its place in the list."""

    profile: ProfileName
    place: Annotated[int, msgspec.Meta(ge=0, lt=mig.PER_GPU)] | None = None
    """Its index on the GPU."""
    uuid: Uuid | None = None
    mem_mib: Natural | None = msgspec.field(default=None, name="memMiB")
    health: Annotated[str, msgspec.Meta(pattern=r"^(ok|gone|sick:.+)$", max_length=GPU_TEXT.most)] = HEALTHY
    processes: Annotated[tuple[FakeProcess, ...], msgspec.Meta(max_length=FAKE_PROCESSES.most)] = ()


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
    instances: Annotated[tuple[FakeInstance, ...], msgspec.Meta(max_length=mig.PER_GPU)] = ()
    dynamic: bool = False
    """MIG instances are made of it on demand while it is in MIG mode."""

    @property
    def split(self) -> bool:
        """Whether it is in MIG mode."""
        return self.health == "mig" or ((bool(self.instances) or self.dynamic) and self.health.startswith(SICK))


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
