"""A server as a whole process: event loop, signals, ready file."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Unpack

from kafkalog._version import version
from kafkalog.errors import StorageError
from kafkalog.server.node.frozen import FrozenLogs
from kafkalog.server.serving import Server, ServingOptions, serving
from kafkalog.server.settings.config import ServerConfig
from kafkalog.util.fileio import OS, atomic_write

_LOG: Final = logging.getLogger(__name__)
WANTED_DESCRIPTORS: Final = 65_536


def run(
    directories: Sequence[str], config: ServerConfig, *, ready_file: str | None = None, **more: Unpack[ServingOptions]
) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP and return the exit status 0. Raises errors of the start and the stop."""
    raise_descriptor_limit()
    config.tell_ignored()
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
        _LOG.info("%d files and connections may be open at once (ulimit -n)", soft)
    return soft


async def _serve(
    directories: Sequence[str], config: ServerConfig, ready_file: str | None, more: ServingOptions
) -> int:
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored by nohup, and by shells for background jobs
            loop.add_signal_handler(number, _asked_to_stop, stopped, number)
    async with serving(directories, config, **more) as server:
        _say_what_runs(directories, server)
        frozen = FrozenLogs(lambda: len(server.node.store.current_logs))
        frozen.freeze()
        server.node.topics.between_parts = frozen.follow
        if server.http is not None:
            _LOG.info("metrics, health and status are at port %d", server.http.port)
        if ready_file is not None:
            _tell(ready_file, server)
        try:
            why = signal.Signals(await stopped)
            _LOG.info("stopping: %s", why.name)
        finally:
            if ready_file is not None:
                with suppress(FileNotFoundError):
                    os.unlink(ready_file)
    return 0


def _say_what_runs(directories: Sequence[str], server: Server) -> None:
    node = server.node
    count = sum(1 for _ in node.topics.names())
    _LOG.info(
        "kafkalog %s is node %d of cluster %s, with %d topics in %s",
        version, node.node_id, node.cluster_id or "(none yet)", count, ", ".join(directories),
    )  # fmt: skip
    for name, address in server.addresses.items():
        _LOG.info("listener %s is at port %d; clients are told %s", name, server.ports[name], address)


def _asked_to_stop(stopped: asyncio.Future[int], number: int) -> None:
    if not stopped.done():
        stopped.set_result(number)


def _tell(path: str, server: Server) -> None:
    lines = [f"{name} {address}\n" for name, address in server.addresses.items()]
    try:
        atomic_write(OS, path, "".join(lines).encode(), sync=False)
    except OSError as error:
        raise StorageError.from_os(error, "write the file that says the server is ready", path=path) from error
