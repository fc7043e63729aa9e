"""`python -m deviceplugin.mps.probe`: connects to MPS as a client once, by CUDA's driver library, and says how it went.

A process of its own, since a client of a server that is wedged may hang for ever.
"""

import ctypes
import sys
from collections.abc import Callable
from typing import Any

LIBRARY = "libcuda.so.1"
FAILED, UNKNOWN = 1, 2
"""Exit statuses: the server took no client; it could not be asked."""


def connect(cuda: Any) -> str:
    """What went wrong, "" if a context could be made on the first GPU."""
    device, context = ctypes.c_int(), ctypes.c_void_p()
    steps: tuple[tuple[str, Callable[[], int]], ...] = (
        ("cuInit", lambda: cuda.cuInit(0)),
        ("cuDeviceGet", lambda: cuda.cuDeviceGet(ctypes.byref(device), 0)),
        ("cuDevicePrimaryCtxRetain", lambda: cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)),
        ("cuDevicePrimaryCtxRelease", lambda: cuda.cuDevicePrimaryCtxRelease_v2(device)),
    )
    for name, step in steps:
        if status := step():
            return f"{name} failed with status {status}"
    return ""


def main() -> int:
    """The exit status."""
    try:
        cuda = ctypes.CDLL(LIBRARY)
    except OSError as error:
        print(f"{LIBRARY} cannot be loaded ({error})", flush=True)
        return UNKNOWN
    trouble = connect(cuda)
    print(trouble, flush=True)
    return FAILED if trouble else 0


if __name__ == "__main__":
    sys.exit(main())
