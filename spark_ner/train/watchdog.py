"""Ends a process that no longer moves, so that nothing waits for ever for it or with it."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

STALLED = 87  # exit code


class Watchdog:
    """A thread that ends its process when `beat` was not called for a time.

    A process that hangs in a collective (because another was stopped, or is cut off) cannot raise an
    exception; it can only be ended, so that the launcher sees it and starts again from the last checkpoint.
    """

    def __init__(self, stall_s: float, *, end: Callable[[], None] | None = None) -> None:
        """`end` is called instead of ending the process."""
        self._stall_s = stall_s
        self._end = end or _exit
        self._last = time.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()

    def beat(self) -> None:
        """Say that the process moves."""
        self._last = time.monotonic()

    def _watch(self) -> None:
        while not self._done.wait(min(1.0, self._stall_s / 4)):
            if time.monotonic() - self._last > self._stall_s:
                log.error("no step ended in %.0f s: this process ends", self._stall_s)
                self._end()
                return


def _exit() -> None:
    sys.stderr.flush()
    os._exit(STALLED)
