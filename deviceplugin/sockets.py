"""Unix sockets of the node."""

import contextlib
import socket
from pathlib import Path

LONGEST_PATH = 107
"""Bytes of a unix socket's path (unix(7))."""
UNFINISHED = "~"
"""The end of a socket's name until it has its mode."""


def sweep(path: Path) -> None:
    """Remove a socket that no process serves any more; anything else stays."""
    with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
        if not path.is_socket():  # a file refuses connections too
            return
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
