"""What the component's file means for the GPUs of the machine: which are sick, and how compute is capped. Pure.

A source whose GPUs are sick while MPS cannot serve them. GPUs that MPS does not serve stay as they are.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec
import structlog

from deviceplugin.machine import Machine, MpsLevel, Source
from deviceplugin.mps import exchange
from deviceplugin.mps.exchange import Served, State
from protos.contract.bounds import ISOLATION_WHY
from protos.contract.isolation import PROMISED, Isolation
from protos.contract.reason import Reason
from protos.files import FileError

log = structlog.get_logger()

SILENT_S = 15.0
"""A file that was not written for so long is that of a dead component."""
WEDGED = "mps server does not answer"
BLOCKED = "mps cannot serve"
SILENT = "mps component does not answer"


def trouble(served: Served, silent: bool) -> str:
    """Why the GPU takes no new parts, "" if it does."""
    if silent:
        return SILENT
    return {"wedged": WEDGED, "blocked": BLOCKED}.get(served.phase, "")


def level(state: State | None, machine: Machine, now: float) -> MpsLevel:
    """How MPS caps the compute of parts on this machine, and its phase on each GPU."""
    if state is None:
        return MpsLevel(why="no MPS component runs on this node")
    if silent(state, now):
        return MpsLevel(why=SILENT, phases=("silent",) * len(state.gpus))
    phases = tuple(sorted(served.phase for served in state.gpus.values()))
    return _level(state, machine)._replace(phases=phases)


def _level(state: State, machine: Machine) -> MpsLevel:
    """The same of a component that answers, without the phases."""
    without = [gpu.index for gpu in machine.cards if not gpu.mig and gpu.uuid not in state.gpus]
    if without:
        return MpsLevel(why=f"GPU {', '.join(map(str, without))} is not given over to MPS"[:256])
    if not any(served.phase == "serving" for served in state.gpus.values()):
        return MpsLevel(why="MPS serves no GPU now")
    if state.protocol == 2:
        return MpsLevel("cooperative", "a container can take off its MPS limits: the driver has no MPS namespaces")
    return MpsLevel("mps")


def silent(state: State, now: float) -> bool:
    """Whether the component has stopped writing; `now` in seconds since boot."""
    return now - state.beat > SILENT_S


def marked(machine: Machine, state: State | None, now: float) -> Machine:
    """The machine with the GPUs that take no new parts, and the level. GPUs in MIG mode take none anyway."""
    gpus: Mapping[str, Served] = state.gpus if state else {}
    dead = state is not None and silent(state, now)
    found = (
        msgspec.structs.replace(gpu, trouble=gpu.trouble or trouble(gpus[gpu.uuid], dead))
        if gpu.uuid in gpus and not gpu.mig
        else gpu
        for gpu in machine.gpus
    )
    return msgspec.structs.replace(machine, gpus=tuple(found), mps=level(state, machine, now))


def joined(isolation: Isolation | None, mps: MpsLevel | None) -> Isolation | None:
    """The isolation of memory, as others than MPS prove it, with that of compute; None where neither is set up."""
    if mps is None:
        return isolation
    memory = isolation or PROMISED
    why = ("" if memory.memory else memory.why, mps.why)
    return Isolation(memory=memory.memory, compute=mps.compute, why="; ".join(filter(None, why))[: ISOLATION_WHY.most])


class MpsSource:
    """A source whose GPUs are in trouble while MPS should serve them and cannot."""

    def __init__(self, source: Source, folder: Path) -> None:
        self.source, self.folder = source, folder
        self.period, self.poll, self.close = source.period, source.poll, source.close
        self.memory_limit = source.memory_limit

    @property
    def trouble(self) -> Reason | None:
        """That of the source."""
        return self.source.trouble

    def read(self) -> Machine:
        """The machine as it is now; raises SourceError."""
        machine = self.source.read()
        try:
            state = exchange.read_state(self.folder)
        except FileError as error:
            log.warning("mps_state_not_read", error=str(error))
            state = None
        return marked(machine, state, exchange.now())
