"""Control groups of a host: real ones where a test may make them, else folders."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from deviceplugin import cgroups

MOUNTS = (cgroups.ROOT, cgroups.ROOT / "unified")


@contextlib.contextmanager
def real_groups() -> Iterator[Path | None]:
    """A real group with groups below it, removed at the end; None where this process may not make one."""
    root = None
    for mount in MOUNTS:
        if cgroups.unified(mount) and os.access(mount, os.W_OK):
            with contextlib.suppress(OSError):
                root = mount / f"gangshare-test-{os.getpid()}-{secrets.token_hex(4)}"
                root.mkdir()
                break
            root = None
    try:
        yield root
    finally:
        if root is not None:
            _remove(root)


@contextlib.contextmanager
def groups(folder: Path) -> Iterator[Path]:
    """The same in any case: folders where real groups cannot be had."""
    with real_groups() as found:
        if found is not None:
            yield found
            return
        (folder / "cgroup.controllers").write_text("cpu memory\n")
        yield folder


def _remove(root: Path) -> None:
    for child in root.iterdir():
        if child.is_dir():
            _remove(child)
    root.rmdir()
