"""`kafkalog serve`: a Kafka server on data directories."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from kafkalog.cli import common

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.server.groups.values import KeptPosition
    from kafkalog.server.workers.forked import ForkedWorker


@click.command("serve")
@common.dir_option
@click.option(
    "--listen",
    "listeners",
    multiple=True,
    metavar="[NAME://]HOST:PORT",
    help="Listener address; repeatable. Port 0: a free port. Default: localhost:9092, or as configured.",
)
@click.option("--config", "config_file", type=click.Path(), metavar="FILE", help="File in server.properties format.")
@common.settings_option("Server setting, such as num.partitions=3")
@click.option("--ready-file", type=click.Path(), metavar="FILE", help="File to write when ready: NAME HOST:PORT lines.")
@click.option("--http", metavar="HOST:PORT", help="Metrics, health and status page; port 0: a free port.")
@click.option(
    "--workers", type=click.IntRange(1, 64), metavar="N", help="Processes, each with data directories: repeat -d."
)
@click.option("--memory", is_flag=True, help="Keep data in memory (/dev/shm), discard it at exit; excludes -d.")
@common.recovery_option
@click.option("--read-only", is_flag=True, help="Serve the data of a stopped broker, and write nothing to it.")
@click.option("--add-user", metavar="NAME", help="Add user NAME with a password, and exit.")
@click.option(
    "--password-file",
    type=click.Path(),
    metavar="FILE",
    help="File whose first line is the password. Default: KAFKALOG_PASSWORD, or a prompt.",
)
@common.cursors_option
@common.verbosity_flags
def command(
    dirs: tuple[str, ...],
    listeners: tuple[str, ...],
    config_file: str | None,
    settings: dict[str, str],
    ready_file: str | None,
    http: str | None,
    workers: int | None,
    memory: bool,
    on_damage: str | None,
    read_only: bool,
    add_user: str | None,
    password_file: str | None,
    cursors: str | None,
) -> int:
    """Serve the topics in data directories to Kafka clients, until SIGTERM or Ctrl-C.

    All Kafka clients can connect. Missing directories are created. Settings have the names of a broker's
    server.properties; -X overrides the file.

    Example: kafkalog serve -d data --listen localhost:9092 -X num.partitions=3

    Example: kafkalog serve -d data --add-user alice --password-file password.txt
    """
    from kafkalog.metrics import prometheus_text
    from kafkalog.server.node.temporary_dirs import in_memory
    from kafkalog.server.running import run
    from kafkalog.server.settings.config import ServerConfig, read_server_properties

    is_given = click.get_current_context().get_parameter_source("dirs") is ParameterSource.COMMANDLINE
    given: dict[str, object] = dict(read_server_properties(config_file)) if config_file else {}
    given |= settings
    if listeners:
        given["listeners"] = ",".join(one if "://" in one else f"PLAINTEXT://{one}" for one in listeners)
    if http is not None:
        given["kafkalog.http.listener"] = http
    if workers is not None:
        given["kafkalog.workers"] = workers
    if on_damage is not None:
        given["kafkalog.on.damage"] = on_damage
    config = ServerConfig(given)
    if memory and (is_given or read_only or add_user):
        raise click.UsageError("--memory creates its own directory: omit -d, --read-only and --add-user")
    directories = [] if memory else common.need_dirs(dirs or config.directories)
    if add_user is not None:
        if read_only:
            raise click.UsageError("--read-only writes nothing, and --add-user writes a user: omit one of them")
        return _add_user(directories, add_user, password_file)
    if password_file is not None:
        raise click.UsageError("--password-file is for --add-user")
    common.show_server_log()
    count = config["kafkalog.workers"]
    with _forked(count) as forked, in_memory() if memory else nullcontext() as path:
        return run(
            directories if path is None else in_parts(path, count),
            config,
            ready_file=ready_file,
            log_metrics=prometheus_text,
            is_read_only=read_only,
            kept_positions=_kept_positions(directories, cursors),
            forked=forked,
        )


def _forked(count: int) -> AbstractContextManager[dict[int, ForkedWorker] | None]:
    """Fork the workers, while this process has no threads."""
    if count == 1:
        return nullcontext()
    from kafkalog.metrics import prometheus_text
    from kafkalog.server.workers.forked import forked_workers

    return forked_workers(count, prometheus_text)


def in_parts(path: str, workers: int) -> list[str]:
    """Return the data directories of workers inside a directory: itself for one worker."""
    import os

    return [path] if workers == 1 else [os.path.join(path, str(number)) for number in range(workers)]


def _kept_positions(directories: list[str], cursors: str | None) -> list[KeptPosition]:
    """Return stored cursor positions for these directories; groups of the same names continue from them."""
    from kafkalog.cursors.store import CursorStore
    from kafkalog.errors import CorruptCheckpoint, IllegalArgument
    from kafkalog.server.groups.values import KeptPosition

    try:
        store = CursorStore(cursors)
    except IllegalArgument:  # a user without a home directory has no cursors
        return []
    found = []
    for directory in directories:
        for path in store.partitions(directory):
            for name in store.names(path):
                try:
                    state = store.read(path, name)
                except CorruptCheckpoint as error:
                    common.note(f"note: {error}", always=True)
                    continue
                if state is not None:
                    found.append(KeptPosition(name, *state.topic_partition, state.position, state.committed_ms))
    return found


def _add_user(directories: Sequence[str], name: str, password_file: str | None) -> int:
    import sys

    from kafkalog.server.security.users import add_user, read_password

    password = read_password(password_file, is_asked_for=sys.stdin.isatty())
    add_user(directories[0], name, password, others=directories[1:])
    common.note(f"{name} can log in with PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512")
    return 0
