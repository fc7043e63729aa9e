"""Work that goes on beside a test, on a thread of its own."""

from __future__ import annotations

import threading
from typing import Self


class Beside:
    """A context manager: `_turn` is called again and again while its block runs, `every_s` seconds apart."""

    every_s = 0.1

    def __enter__(self) -> Self:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self.every_s):
            self._turn()

    def _turn(self) -> None:
        raise NotImplementedError
