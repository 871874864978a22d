"""A process that runs a mirror: its directories, event loop and signals."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from typing import Final

from kafkalog.config.broker import BrokerConfig
from kafkalog.manager.log_manager import LogManager
from kafkalog.manager.opening import OpenedLogs, open_logs
from kafkalog.server.client.settings import PeerSettings
from kafkalog.server.mirror.mirror import Mirror
from kafkalog.server.node.pool import CallPool
from kafkalog.server.packages import check_packages
from kafkalog.server.running import loop_factory, raise_descriptor_limit, stop_signal
from kafkalog.util.clock import SYSTEM_CLOCK
from kafkalog.util.fileio import OS

_LOG: Final = logging.getLogger(__name__)
_THREADS: Final = 4
_POLL_S: Final = 0.05


def run_mirror(
    directories: Sequence[str | os.PathLike[str]],
    bootstrap: Sequence[tuple[str, int]],
    topics: Sequence[str],
    peers: PeerSettings,
    *,
    once: bool = False,
) -> int:
    """Mirror until SIGTERM, SIGINT or SIGHUP; with `once`, until everything is copied. Return the exit status 0.

    Errors as in `open_logs` and `Mirror.start`; MissingPackage.
    """
    check_packages()
    raise_descriptor_limit()
    opened = open_mirror(directories)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_mirror(opened, bootstrap, topics, peers, once))


def open_mirror(directories: Sequence[str | os.PathLike[str]]) -> OpenedLogs:
    """Open the logs of a mirror, with jobs that sync them and delete what the source has deleted.

    No log is compacted: its batches would differ from the source's.
    """
    opened = open_logs(directories, BrokerConfig(log_cleaner_enable=False), fs=OS, clock=SYSTEM_CLOCK)
    opened.manager.schedule_jobs()
    return opened


async def _mirror(
    opened: OpenedLogs, bootstrap: Sequence[tuple[str, int]], topics: Sequence[str], peers: PeerSettings, once: bool
) -> int:
    pool = CallPool(_THREADS)
    try:
        return await _follow(opened.manager, pool, bootstrap, topics, peers, once)
    finally:
        pool.close()  # running calls finish before the logs are closed
        opened.close()


async def _follow(
    store: LogManager,
    pool: CallPool,
    bootstrap: Sequence[tuple[str, int]],
    topics: Sequence[str],
    peers: PeerSettings,
    once: bool,
) -> int:
    stopped = stop_signal()
    mirror = Mirror(store, bootstrap, topics, run=pool.run, monotonic_ms=SYSTEM_CLOCK.monotonic_ms, peers=peers)
    try:
        await mirror.start()
        _LOG.info("mirroring %s", ", ".join(topics))
        while not stopped.done() and not (once and mirror.is_in_sync):
            await asyncio.wait([stopped], timeout=_POLL_S if once else None)
    finally:
        await mirror.stop()
    return 0
