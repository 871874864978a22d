"""Objects that a piece of code leaves for the cyclic collector."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kafkalog.server.node.pool import CallPool


@contextmanager
def left_to_collector() -> Iterator[list[Any]]:
    """Hold the collector back; at the end the list has every object that only the collector could have freed."""
    found: list[Any] = []
    was_on, debug = gc.isenabled(), gc.get_debug()
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(debug)
        gc.garbage.clear()
        if was_on:
            gc.enable()


def replace_threads(pool: CallPool) -> None:
    """End the threads of a pool, which gets others.

    Without the GIL, an object whose last reference was dropped elsewhere is freed only when the thread that made it
    runs again or ends. No cycle is freed by this.
    """
    executor = pool._executor
    pool.resize(pool.threads + 1)
    executor.shutdown()
