"""The MPS component on a real node: the process as it is installed, with a stand-in of NVML and of the control program.

It runs in the mount namespace of the node, so that the kubelet mounts its pipes into real containers.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from deviceplugin.mps import component, mounts, unit
from deviceplugin.mps.settings import Settings
from tests.cluster.cluster import Cluster
from tests.cluster.process import Process
from tests.unit.deviceplugin.fake_nvml import Gpu
from tests.unit.deviceplugin.mps.conftest import STANDIN, MpsNvml

DIR = "/run/gangshare/mps"
ROOT = Path(__file__).parents[2]
CHECK_S = 0.5
"""Seconds between two checks of a server; the installed one takes its time."""


def process(cluster: Cluster, node: str, uuids: list[str]) -> Process:
    """The component of a node, not started yet. Its control program knows namespaces."""
    program = cluster.dir / "mps-control"
    program.write_text(f'#!/bin/sh\nSTANDIN_PROTOCOL=3 exec {sys.executable} -S {STANDIN} "$@"\n')
    program.chmod(0o755)
    argv = [sys.executable, "-m", "tests.cluster.mps_node", str(program), *uuids]
    return cluster.process("mps", argv, node=node, cwd=ROOT)


def main(program: str, *uuids: str) -> None:
    unit.CHECK_S = CHECK_S
    settings = Settings(mps_dir=Path(DIR), control=program, probe_s=0.0, log_format="json")
    mounts.prepare(settings.mps_dir, 64)
    asyncio.run(component.run(settings, MpsNvml(*(Gpu(index, uuid=uuid) for index, uuid in enumerate(uuids)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
