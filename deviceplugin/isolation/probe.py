"""Reads what this node could isolate: control groups of the host, and the container toolkit. Nothing is believed.

The driver's part comes with each reading of the machine. The toolkit is asked for its version only when its file
changes, so a look costs a few file stamps.
"""

import re
import subprocess
import time
from pathlib import Path

from deviceplugin import cgroups
from deviceplugin.isolation.levels import Facts, parsed
from deviceplugin.library.probe import Probe as LibraryProbe
from deviceplugin.machine import Machine
from protos import files

TOOLS = (
    ("usr/bin/nvidia-ctk",),
    ("usr/local/nvidia/toolkit/nvidia-ctk.real", "usr/local/nvidia/toolkit/nvidia-ctk"),
)
"""Where packages and where the GPU operator install the toolkit's program, below the host's root; of each the first."""
SAID = re.compile(r"version v?([0-9]+\.[0-9]+\.[0-9]+\S{0,40})")
ANSWER_S = 5.0
RETRY_S = 60.0
"""A program that gave no version is asked again after this time."""


class Probe:
    """The facts of one node. Its calls block."""

    def __init__(self, groups: Path, host: Path | None, toolkit: str, library: LibraryProbe | None = None) -> None:
        """`host` is where the host's root is mounted; `toolkit` is the version that the operator states.

        `library` is None where the operator brings none.
        """
        self._groups, self._host, self._stated, self._library = groups, host, toolkit, library
        self._versions: dict[Path, tuple[files.Stamp, str, float]] = {}
        """By program: its stamp, the version that it told, and when."""

    def facts(self, machine: Machine) -> Facts:
        """What the node has now."""
        toolkit, why = self._toolkit(machine)
        return Facts(
            driver=machine.driver,
            limits=machine.limits,
            unified=cgroups.unified(self._groups),
            pods=cgroups.shows_pods(self._groups),
            toolkit=toolkit,
            toolkit_why=why,
            gpus=len(machine.cards),
            mig=sum(gpu.mig for gpu in machine.cards),
            library=self._library.facts(machine) if self._library else None,
        )

    def _toolkit(self, machine: Machine) -> tuple[str, str]:
        """The toolkit's version, or why it is unknown. Of several toolkits the oldest counts."""
        stated = self._stated or machine.toolkit
        if stated:
            return stated, ""
        if self._host is None:
            return "", "the version of the container toolkit is unknown (--toolkit-version, --host-root)"
        root = self._host
        paths = [next((path for name in names if (path := root / name).is_file()), None) for names in TOOLS]
        found = {path: self._version(path) for path in paths if path is not None}
        self._versions = {path: known for path, known in self._versions.items() if path in found}
        if not found:
            return "", f"no nvidia-ctk is installed below {root}"
        for path, version in found.items():
            if parsed(version) is None:
                return "", f"{path} tells no version"
        return min(found.values(), key=lambda version: parsed(version) or ()), ""

    def _version(self, path: Path) -> str:
        stamp, now = files.stamp(path), time.monotonic()
        known = self._versions.get(path)
        if stamp is None:
            return ""
        if known is None or known[0] != stamp or (not known[1] and now - known[2] >= RETRY_S):
            known = self._versions[path] = (stamp, asked(path), now)
        return known[1]


def asked(program: Path) -> str:
    """The version that a program of the toolkit tells, "" if it tells none."""
    try:
        answer = subprocess.run(
            [program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=ANSWER_S, check=True, env={}
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    found = SAID.search(answer.stdout.decode(errors="replace"))
    return found[1] if found else ""
