"""What to do with a GPU that is given over to MPS, and how MPS stands on it. Pure.

MPS runs only while every container that holds the GPU was given its pipes: a container without them has the whole GPU,
or came before MPS. A daemon that no longer works is replaced once nothing holds the GPU.
"""

from collections.abc import Sequence
from enum import Enum, auto
from typing import Literal, NamedTuple

import msgspec

from deviceplugin.mps.exchange import Holder, Phase

GONE = "the driver does not show the GPU"
MIG = "the GPU is in MIG mode"
UNTOLD = "the device plugin has not said yet who holds the GPU"
STRANGER = "a process that is no client of MPS uses the GPU"
LINGERING = "a process of the last control daemon does not end"
ENDED = "the control daemon has ended"


class Step(Enum):
    """What to do now."""

    NOTHING = auto()
    START = auto()
    STOP = auto()


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one GPU."""

    present: bool = True
    mig: bool = False
    strangers: bool = False
    """Processes use it while no daemon of ours runs."""
    holders: Sequence[Holder] | None = ()
    """The containers that hold it; None before the plugin has said, and then no daemon runs."""
    daemon: Literal["none", "starting", "running", "ended"] = "none"
    servers: bool = False
    """A server of the daemon lives."""
    lingering: bool = False
    """A process of the last daemon cannot be ended."""
    trouble: str = ""
    """Why the daemon or its server does not work, "" if it does."""
    pause: bool = False
    """A start has just failed; the next attempt comes later."""


class Verdict(NamedTuple):
    """The step, and what to publish."""

    step: Step
    phase: Phase
    why: str = ""


def decide(facts: Facts) -> Verdict:
    """The next step for this GPU."""
    forbidden = _forbidden(facts)
    if forbidden:
        return Verdict(Step.NOTHING if facts.daemon == "none" else Step.STOP, "blocked", forbidden)
    holders = facts.holders
    if holders is None:
        return Verdict(Step.NOTHING, "starting", UNTOLD)
    clients = any(holder.mps for holder in holders)
    outsiders = [holder for holder in holders if not holder.mps]
    if outsiders and not clients:
        return Verdict(Step.NOTHING if facts.daemon == "none" else Step.STOP, "yielded", _held(outsiders[0]))
    trouble = ENDED if facts.daemon == "ended" else facts.trouble
    if trouble:
        idle = not clients or not facts.servers  # a restart ends nothing that could still compute
        return Verdict(Step.STOP if idle else Step.NOTHING, "wedged", trouble)
    if outsiders:
        return Verdict(Step.NOTHING, "blocked", _held(outsiders[0]))
    return _run(facts)


def _forbidden(facts: Facts) -> str:
    """Why MPS may not run whoever holds the GPU, "" if it may."""
    return GONE if not facts.present else MIG if facts.mig else ""


def _run(facts: Facts) -> Verdict:
    if facts.daemon == "running":
        return Verdict(Step.NOTHING, "serving")
    if facts.daemon == "starting":
        return Verdict(Step.NOTHING, "starting")
    if facts.lingering:
        return Verdict(Step.NOTHING, "wedged", LINGERING)
    if facts.strangers:
        return Verdict(Step.NOTHING, "blocked", STRANGER)
    if facts.pause:
        return Verdict(Step.NOTHING, "wedged", "the control daemon does not start")
    return Verdict(Step.START, "starting")


def _held(holder: Holder) -> str:
    return f"container {holder.container} of pod {holder.pod} holds the GPU without MPS"[:256]
