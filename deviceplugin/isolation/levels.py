"""The isolation that facts of a node prove. Pure.

NVIDIA's driver limits the memory of a container if the driver has that call, the host has cgroup v2, and the container
toolkit has the hook that makes the limit before a container starts. Where that hook is missing, a helper may limit the
pod instead. A library that the operator brings comes after both. Whatever is unknown counts as missing.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

import msgspec

from deviceplugin.library import levels as by_library
from protos.contract.bounds import ISOLATION_WHY
from protos.contract.isolation import Isolation

DRIVER = 615
TOOLKIT = (1, 20, 1)
VERSION = re.compile(r"v?([0-9]{1,6})(?:\.([0-9]{1,6}))?(?:\.([0-9]{1,6}))?([-+~.].*)?")
BEFORE = re.compile(r"[-~.]?(?:rc|alpha|beta|dev)")
"""What follows the numbers of a version before its release."""
Setter = Literal["", "toolkit", "helper"]
"""Who sets the driver's limits: the toolkit's hook, the helper for the whole pod, or nobody."""
Means = Literal["toolkit", "helper", "library"]
"""What limits containers."""
Refuted = Mapping[Means, str]
"""What containers have shown against a means."""
OF_PODS = "memory limits hold for pods, not for each of their containers"


class Mode(StrEnum):
    """The isolation that the operator wants."""

    OFF = "off"
    AUTO = "auto"
    DRIVER = "driver"
    LIBRARY = "library"


class OnMismatch(StrEnum):
    """What happens to a pod that runs without the memory limit that it was given."""

    REPORT = "report"
    EVICT = "evict"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What was read on this node."""

    driver: str = ""
    """Version of the driver, "" if unknown."""
    limits: bool = False
    """Whether the driver can limit the memory of a control group."""
    unified: bool = False
    """Whether the host has cgroup v2."""
    pods: bool = False
    """Whether the control groups of pods can be read, to check the limits."""
    toolkit: str = ""
    """Version of the container toolkit, "" if unknown."""
    toolkit_why: str = ""
    """Why that is unknown."""
    helper: str | None = None
    """Why the helper cannot set limits, "" if it can; None where there is none."""
    gpus: int = 0
    mig: int = 0
    """How many of them are in MIG mode."""
    library: by_library.Facts | None = None
    """None where the operator brings none, or does not want it."""


def isolation(facts: Facts, refuted: Refuted | None = None) -> Isolation:
    """The best isolation of parts that the facts prove."""
    refuted = refuted or {}
    why = obstacles(facts, refuted)
    if not why:
        of_pods = setter(facts, refuted) == "helper"
        return Isolation(memory="driver", why=f"{OF_PODS}; {by_library.COMPUTE}" if of_pods else by_library.COMPUTE)
    if facts.library is not None:
        lacks = [*by_library.obstacles(facts.library), *filter(None, [refuted.get("library", "")])]
        if not lacks and facts.gpus != facts.mig:
            return by_library.isolation(facts.library)
        why = [*lacks, *why]
    return Isolation(why="; ".join(why)[: ISOLATION_WHY.most])


def setter(facts: Facts, refuted: Refuted | None = None) -> Setter:
    """Who sets the limits of containers, if the driver has any. The toolkit goes before the helper."""
    refuted = refuted or {}
    if not (_toolkit(facts) or refuted.get("toolkit")):
        return "toolkit"
    return "helper" if facts.helper == "" and not refuted.get("helper") else ""


def obstacles(facts: Facts, refuted: Refuted) -> list[str]:
    """Why the driver does not limit the memory of containers, empty if it does."""
    found = [_driver(facts)]
    if not setter(facts, refuted):
        found += [_toolkit(facts) or refuted.get("toolkit", ""), refuted.get("helper", "")]
        found += [f"the helper that sets limits: {facts.helper}"] if facts.helper else []
    if not facts.unified:
        found.append("the host has no cgroup v2, or it is not mounted into the plugin")
    elif not facts.pods:
        found.append("the plugin does not see the control groups of pods, so it cannot check limits")
    if facts.gpus and facts.gpus == facts.mig:
        found.append("all GPUs are in MIG mode")
    return [text for text in found if text]


def _driver(facts: Facts) -> str:
    if not facts.driver:
        return "the driver does not tell its version"
    found = parsed(facts.driver)
    if found is None or found[0] < DRIVER:
        return f"driver {facts.driver[:40]} is older than {DRIVER}"
    return "" if facts.limits else f"driver {facts.driver[:40]} lacks the call for memory limits"


def _toolkit(facts: Facts) -> str:
    wanted = ".".join(map(str, TOOLKIT))
    if not facts.toolkit:
        return facts.toolkit_why or "the version of the container toolkit is unknown"
    found = parsed(facts.toolkit)
    if found is None or found < (*TOOLKIT, 1):
        return f"container toolkit {facts.toolkit[:40]} is older than {wanted}"
    return ""


def parsed(text: str) -> tuple[int, int, int, int] | None:
    """The numbers of a version, and 0 if it is one before the release (-rc.1), else 1; None if it is unreadable."""
    match = VERSION.fullmatch(text)
    if match is None:
        return None
    major, minor, patch = (int(part or 0) for part in match.groups()[:3])
    return major, minor, patch, 0 if BEFORE.match(match[4] or "") else 1
