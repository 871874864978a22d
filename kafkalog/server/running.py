"""A server as a whole process: event loop, signals, ready file."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Unpack

from kafkalog._version import version
from kafkalog.server.serving import Server, ServingOptions, serving
from kafkalog.server.settings.config import ServerConfig
from kafkalog.util.fileio import OS, atomic_write
from kafkalog.util.os_errors import os_errors

_LOG: Final = logging.getLogger(__name__)
WANTED_DESCRIPTORS: Final = 65_536
NEW_LOGS: Final = 512
"""New logs that a full garbage collection may have to scan: some 25,000 objects, ten milliseconds."""


def run(
    directories: Sequence[str], config: ServerConfig, *, ready_file: str | None = None, **more: Unpack[ServingOptions]
) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP and return the exit status 0. Raises errors of the start and the stop."""
    raise_descriptor_limit()
    config.log_ignored()
    runner = asyncio.Runner(loop_factory=loop_factory())
    with runner:
        return runner.run(_serve(directories, config, ready_file, more))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop factory if it is installed, else None."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def raise_descriptor_limit(wanted: int = WANTED_DESCRIPTORS) -> int:
    """Raise this process's limit of open files to `wanted` if possible, and return the resulting limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    goal = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < goal:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (goal, hard))
            soft = goal
    if soft < wanted:
        _LOG.info("at most %d files and connections can be open at once (ulimit -n)", soft)
    return soft


async def _serve(
    directories: Sequence[str], config: ServerConfig, ready_file: str | None, more: ServingOptions
) -> int:
    stopped = stop_signal()
    async with serving(directories, config, **more) as server:
        _log_start(directories, server)
        frozen = FrozenLogs(lambda: len(server.node.store.current_logs))
        frozen.freeze()
        server.node.topics.between_steps = frozen.follow
        if server.http is not None:
            _LOG.info("metrics, health and status are on port %d", server.http.port)
        if ready_file is not None:
            _write_ready_file(ready_file, server)
        try:
            received = signal.Signals(await stopped)
            _LOG.info("stopping: %s", received.name)
        finally:
            if ready_file is not None:
                with suppress(FileNotFoundError):
                    os.unlink(ready_file)
    return 0


def _log_start(directories: Sequence[str], server: Server) -> None:
    node = server.node
    count = sum(1 for _ in node.topics.names())
    _LOG.info(
        "kafkalog %s is node %d of cluster %s, with %d topics in %s",
        version, node.node_id, node.cluster_id or "(none yet)", count, ", ".join(directories),
    )  # fmt: skip
    for name, address in server.addresses.items():
        _LOG.info("listener %s is on port %d; clients connect to %s", name, server.ports[name], address)
    for number, ports in () if node.workers is None else node.workers.ports.items():
        _LOG.info("worker %d is node %d, on %s", number, node.node_id + number, ", ".join(map(str, ports.values())))


def stop_signal() -> asyncio.Future[int]:
    """Return a future of the number of the first SIGTERM, SIGINT or SIGHUP. Call it in the running loop."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()

    def stop(number: int) -> None:
        if not stopped.done():
            stopped.set_result(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored by nohup, and by shells for background jobs
            loop.add_signal_handler(number, stop, number)
    return stopped


def _write_ready_file(path: str, server: Server) -> None:
    lines = [f"{name} {address}\n" for name, address in server.addresses.items()]
    with os_errors("write the ready file", path):
        atomic_write(OS, path, "".join(lines).encode(), sync=False)


class FrozenLogs:
    """Excludes logs from full garbage collections, which pause every thread in proportion to the number of objects.

    For a process that runs only the server: it freezes all objects when the number of logs has grown. A frozen object
    is freed with its last reference; a cycle of frozen objects is never freed. Threads: one at a time.
    """

    def __init__(self, count: Callable[[], int]) -> None:
        """`count` returns the current number of logs."""
        self._count = count
        self._frozen = 0

    def freeze(self) -> None:
        """Collect garbage, then exclude the remaining objects from collections."""
        gc.collect()
        gc.freeze()
        self._frozen = self._count()

    def follow(self) -> None:
        """Call `freeze` if there are at least NEW_LOGS more logs than at the last freeze."""
        self._frozen = min(self._frozen, self._count())
        if self._count() - self._frozen >= NEW_LOGS:
            self.freeze()
