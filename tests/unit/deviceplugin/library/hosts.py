"""What an operator and a kubelet put on a host: the library's files, and control groups with processes."""

from __future__ import annotations

import platform
from pathlib import Path

from deviceplugin.library.levels import MACHINES
from tests.sim.standin_toolkit import group_of

ELF = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00" + MACHINES[platform.machine()].to_bytes(2, "little")
"""How a shared library of this machine begins."""


def install(folder: Path, head: bytes = ELF) -> Path:
    """The library and the list beside it, as an operator puts them there."""
    library, preload = folder / "libvgpu.so", folder / "ld.so.preload"
    for path, content in ((library, head + b"\0" * 100), (preload, b"/usr/local/vgpu/libvgpu.so\n")):
        fresh = path.with_suffix(".new")
        fresh.write_bytes(content)
        fresh.chmod(0o644)
        fresh.replace(path)
    return library


def a_group(root: Path, pod: str, container: str, *processes: int) -> Path:
    """The control group of a container with these processes."""
    group = group_of(root, pod, container)
    group.mkdir(parents=True, exist_ok=True)
    (root / "cgroup.controllers").write_text("cpu memory\n")
    (group / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in processes))
    return group
