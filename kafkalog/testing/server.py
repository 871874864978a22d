"""A Kafka server for tests: on a free port, in a separate directory, ended with the test.

    with kafka_server(topics={"orders": 3}) as server:
        producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap})
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

from kafkalog.errors import ConfigError, IllegalArgument, IllegalState, KafkalogError
from kafkalog.testing import hosting
from kafkalog.testing.control import Control
from kafkalog.testing.controlled import Controlled
from kafkalog.testing.errors import did_not_start
from kafkalog.testing.faults import Unmatched

DEFAULTS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "log.cleaner.dedupe.buffer.size": "4194304",
}
"""Settings for a fast start of the server and of groups; settings of the caller override them."""
_DIRECTORIES: Final = ("log.dirs", "log.dir")
STOP_S: Final = 60
END_S: Final = 5
NODE: Final = 1
"""The single server among the nodes of a test."""


class KafkaServer(Controlled):
    """A server started by `kafka_server`; it can be stopped, killed and restarted on its directory.

    `bootstrap` is the address for clients, "HOST:PORT" of the first listener; `ports` has the port of every listener;
    `directory` holds the topics. Raises ConfigError for data directories among the settings.

    >>> with kafka_server(topics="orders") as server:
    ...     server.kill()
    ...     server.start()    # on the same port, after recovery
    ...     server.pid > 1, "ERROR" in server.log(), len(server.directories)
    ...     server.stop()
    (True, False, 1)
    >>> with kafka_server(registry=True) as server:
    ...     server.registry_url
    'http://127.0.0.1:...'
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, object],
        topics: Mapping[str, int],
        *,
        users: Mapping[str, str] | None = None,
        is_temporary: bool = False,
        unmatched: Unmatched = "warn",
        seed: object = 0,
        registry: bool = False,
        workers: int = 1,
        telemetry: bool = False,
    ) -> None:
        if workers < 1:
            raise IllegalArgument(f"workers={workers}", hint="use at least 1")
        if telemetry and workers > 1:
            raise IllegalArgument("metrics of clients need a server with one worker", hint="omit workers=...")
        self._workers = workers
        self._worker_ports: dict[str, dict[str, int]] = {}
        self._registry_port = 0 if registry else None
        self.directory = directory
        self.bootstrap = ""
        self.port = 0
        self.ports: dict[str, int] = {}
        self.http_port: int | None = None
        for name in _DIRECTORIES:
            if name in settings:
                raise ConfigError(f"{name} cannot be set here", hint="use directory=... instead")
        self._settings = {"listeners": "PLAINTEXT://127.0.0.1:0", **DEFAULTS, **settings}
        if workers > 1:
            self._settings["kafkalog.workers"] = workers
        self._initial_content = {"topics": dict(topics), "users": dict(users or {})}
        self._is_temporary = is_temporary
        self._log = tempfile.TemporaryFile()
        self._log_at_end = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._control: Control | None = None
        self._held = hosting.Ports()
        home = directory.parent if is_temporary else None
        super().__init__(home, unmatched=unmatched, seed=seed, telemetry=telemetry)

    def __repr__(self) -> str:
        return f"<KafkaServer {self.bootstrap}>"

    def start(self) -> None:
        """Start the server, on its former ports if it ran before.

        Raises ServerDidNotStart; IllegalState while it runs, and after its `with` block; MissingPackage without the
        extra `server`.

        A setting whose name looks like a typo causes a warning (`warnings`).
        """
        from kafkalog.server.packages import check_packages

        check_packages()
        if self._process is not None:
            raise IllegalState("the server is already running", hint="call stop() or kill() before you start it again")
        if self._log.closed:
            raise IllegalState("the server's with block has ended", hint="start it inside the block, or create another")
        control = Control()
        try:
            self._process = hosting.start_inside("serving", control.server_end, self._log)
            control.send_configuration(self._configuration())
            reply = control.read_started()
            if reply is None:
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(END_S)  # the last log lines come after the socket's end
                raise did_not_start("the server", self.log())
        except BaseException:
            control.close()
            self.kill()
            raise
        self._control = control
        self.ports, self.http_port = reply["ports"], reply["http_port"]
        self.port, self.bootstrap = next(iter(self.ports.values())), reply["bootstrap"]
        self._settings["listeners"], self._worker_ports = reply["listeners"], reply["worker_ports"]
        self._registry_port = reply["registry_port"]
        self._held.close()
        self._initial_content = {"topics": {}, "users": {}}  # not created again: a test may delete or change them
        for slip in reply["slips"]:
            warnings.warn(slip, stacklevel=2)

    def _configuration(self) -> dict[str, Any]:
        return {
            "directory": str(self.directory), "directories": [str(one) for one in self.directories],
            "settings": self._settings, **self._initial_content,
            "home": str(self._home), "syncs": not self._is_temporary, "counts": self._rules.path,
            "commands": self._commands_for(NODE), "ahead_ms": self._ahead_ms,
            "registry_port": self._registry_port, "registry_ports": {}, "worker_ports": self._worker_ports,
            "pushed": self._pushed.path,
        }  # fmt: skip

    @property
    def registry_url(self) -> str:
        """Address of the schema registry. IllegalState unless the server was started with `registry=True`."""
        if not self._registry_port:
            raise IllegalState("the server has no schema registry", hint="use kafka_server(registry=True)")
        return f"http://127.0.0.1:{self._registry_port}"

    @property
    def directories(self) -> tuple[Path, ...]:
        """Data directories: `directory`, or with several workers one of each worker inside it."""
        if self._workers == 1:
            return (self.directory,)
        return tuple(self.directory / f"worker-{number}" for number in range(self._workers))

    @property
    def data(self) -> Path:
        """Data directory: `directory`, or with several workers that of the main process."""
        return self.directories[0]

    def _data_dirs(self) -> Sequence[Path]:
        return self.directories

    def _controls(self) -> Mapping[int, Control]:
        return {} if self._control is None else {NODE: self._control}

    def _leader(self) -> int:
        return NODE

    def _all_nodes(self) -> Sequence[int]:
        return (NODE,)

    def _defer(self, node_ids: frozenset[int] | None, command: str, given: dict[str, Any]) -> None:
        """Do nothing: the server is never paused. IllegalState with several workers, which have no such commands."""
        self._check_alone()

    def _lead(self, node: int) -> None:
        """Do nothing: the server is alone."""

    @property
    def pid(self) -> int:
        """Process id of the server."""
        assert self._process is not None, "not started"
        return self._process.pid

    def log(self) -> str:
        """Return the server's log so far: warnings and errors; after its `with` block, the whole log."""
        if self._log.closed:
            return self._log_at_end
        descriptor = self._log.fileno()  # pread: the server shares the file position
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode("utf-8", "replace")

    def stop(self) -> None:
        """Stop the server as SIGTERM does: requests in progress are answered, logs are flushed and closed."""
        process = self._process
        if process is None:
            return
        assert self._control is not None
        self._control.send_stop()
        try:
            status = process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise KafkalogError(f"the server did not stop within {STOP_S} s: {self.log()[-3000:]}") from None
        self._reap()
        if status:
            raise KafkalogError(f"the server ended with status {status}: {self.log()[-3000:]}")

    def kill(self) -> None:
        """End the server with SIGKILL: nothing is flushed or marked as closed. Its workers end by themselves."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._reap(END_S if self._worker_ports else 0.0)

    def _reap(self, wait_s: float = 0.0) -> None:
        control, self._control, self._process = self._control, None, None
        self._held.hold(self._all_ports(), wait_s)  # until it starts again; workers may still listen for a moment
        if control is not None:
            control.close()

    def _all_ports(self) -> set[int]:
        found = {*self.ports.values(), self._registry_port or 0}
        return found.union(*(ports.values() for ports in self._worker_ports.values())) - {0}

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._close_log()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        try:
            try:
                self._end_faults(reports=kind is None)
            finally:
                self.stop()
        finally:
            self._close_log()

    def _close_log(self) -> None:
        self._held.close()
        self._remove_files()
        self._log_at_end = self.log()
        self._log.close()


@contextmanager
def kafka_server(
    *,
    topics: Mapping[str, int] | Iterable[str] = (),
    settings: Mapping[str, object] | None = None,
    users: Mapping[str, str] | None = None,
    directory: str | os.PathLike[str] | None = None,
    unmatched: Unmatched = "warn",
    seed: object = 0,
    registry: bool = False,
    workers: int = 1,
    telemetry: bool = False,
) -> Iterator[KafkaServer]:
    """Run a server for the duration of a `with` block.

    topics: a name, names, or names and numbers of partitions, created before the block begins; settings: as in a
    broker's `server.properties`, overriding `DEFAULTS`, ConfigError for data directories; users: names and passwords
    for listeners with SASL; directory: the directory of the topics, by default a temporary one, which is never synced;
    unmatched: "warn", "error" or "ignore", for faults that never matched a call; seed: for faults with `share`;
    registry: run a schema registry at `registry_url`, with its schemas in the topic `_schemas`; workers: number of
    serving processes, each with a directory in `directories`; with more than one there are no faults, clocks, lags or
    snapshots; telemetry: enable `subscribe_metrics` and `pushed_metrics`.

    >>> with kafka_server(topics={"orders": 3}) as server, kafkalog.open_dirs(server.directory) as data:
    ...     server.bootstrap, len(data)
    ('127.0.0.1:...', 3)
    """
    partition_counts = counts_of(topics)
    with _place(directory) as path:
        with KafkaServer(
            path, settings or {}, partition_counts, users=users, is_temporary=directory is None, unmatched=unmatched,
            seed=seed, registry=registry, workers=workers, telemetry=telemetry,
        ) as server:  # fmt: skip
            yield server


def counts_of(topics: Mapping[str, int] | Iterable[str]) -> dict[str, int]:
    """Return the number of partitions of each topic; names alone are topics of one partition."""
    names = [topics] if isinstance(topics, str) else topics
    return dict(names) if isinstance(names, Mapping) else dict.fromkeys(names, 1)


@contextmanager
def _place(directory: str | os.PathLike[str] | None) -> Iterator[Path]:
    """Yield the data directory: the given one, or a temporary one that is removed at the end."""
    if directory is not None:
        yield Path(directory)
        return
    with tempfile.TemporaryDirectory(prefix="kafkalog-server-", ignore_cleanup_errors=True) as temporary:
        yield Path(temporary) / "data"
