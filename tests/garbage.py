"""What only Python's garbage collector would free."""

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PREFIXES = ("protos.", "extender.", "uvicorn.", "httptools.", "asyncio.", "_asyncio.", "_ssl.", "ssl.", "socket.")
"""Modules of the objects that are counted; frames and tracebacks are counted too."""
FRAMES = ("builtins.frame", "builtins.traceback")


@contextmanager
def uncollected() -> Iterator[Callable[[], Counter[str]]]:
    """Counts the objects in cycles that were dropped inside, by module and class."""

    def found() -> Counter[str]:
        gc.collect()
        kinds = Counter(f"{type(each).__module__}.{type(each).__name__}" for each in gc.garbage)
        return Counter({kind: count for kind, count in kinds.items() if kind.startswith(PREFIXES) or kind in FRAMES})

    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
