"""A Kafka server for tests: on a free port, in a separate directory, ended with the test.

    with kafka_server(topics={"orders": 3}) as server:
        producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap})

The server is a separate process: it does not share the interpreter or the memory of the test, and can be killed to
simulate a crash. It ends when the test's process ends for any reason, and its temporary directory is removed.
`kafkalog.pytest_plugin` has it as a fixture.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from kafkalog.errors import ConfigError, IllegalState, KafkalogError

if TYPE_CHECKING:
    from kafkalog.server.serving import Server

__all__ = ["DEFAULTS", "KafkaServer", "ServerDidNotStart", "kafka_server"]

DEFAULTS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "log.cleaner.dedupe.buffer.size": "4194304",
}
"""Settings for a fast start of the server and of groups; settings of the caller override them."""
_DIRECTORIES: Final = ("log.dirs", "log.dir")
_STOP: Final = b"stop\n"
START_S: Final = 30
STOP_S: Final = 30
_CHILD: Final = """
import sys
sys.argv[1] in sys.path or sys.path.insert(0, sys.argv[1])
from kafkalog.testing import serve
serve()
"""


class ServerDidNotStart(KafkalogError):
    """The server ended, or did not answer in time; the message has its output."""


class KafkaServer:
    """A server started by `kafka_server`; it can be stopped, killed and restarted on its directory.

    `bootstrap` is the address for clients, "HOST:PORT" of the first listener; `ports` has the port of every listener;
    `directory` holds the topics. Raises ConfigError for data directories among the settings.

    >>> with kafka_server(topics="orders") as server:
    ...     server.kill()
    ...     server.start()    # on the same port, after recovery
    ...     server.pid > 1, "ERROR" in server.log()
    ...     server.stop()
    (True, False)
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, object],
        topics: Mapping[str, int],
        *,
        users: Mapping[str, str] | None = None,
        is_temporary: bool = False,
    ) -> None:
        self.directory = directory
        self.bootstrap = ""
        self.port = 0
        self.ports: dict[str, int] = {}
        self.http_port: int | None = None
        for name in _DIRECTORIES:
            if name in settings:
                raise ConfigError(f"{name} cannot be set here", hint="use directory=... instead")
        self._settings = {"listeners": "PLAINTEXT://127.0.0.1:0", **DEFAULTS, **settings}
        self._initial_content = {"topics": dict(topics), "users": dict(users or {})}
        self._is_temporary = is_temporary
        self._log = tempfile.TemporaryFile()
        self._log_at_end = ""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server, on its former ports if it ran before.

        Raises ServerDidNotStart; IllegalState while it runs, and after its `with` block; MissingPackage without the
        extra `server`.

        A setting whose name looks like a typing error causes a warning (`warnings`).
        """
        from kafkalog.server.packages import check_packages

        check_packages()
        if self._process is not None:
            raise IllegalState("the server is already running", hint="call stop() or kill() before you start it again")
        if self._log.closed:
            raise IllegalState("the server's with block has ended", hint="start it inside the block, or create another")
        given = {"directory": str(self.directory), "settings": self._settings, **self._initial_content}
        given["is_temporary"] = self._is_temporary
        root = str(Path(__file__).resolve().parent.parent)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _CHILD, root],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
        )  # fmt: skip
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(given).encode() + b"\n")
            self._process.stdin.flush()
            reply = self._read_reply()
        except BaseException:
            self.kill()
            raise
        self.ports, self.http_port = reply["ports"], reply["http_port"]
        self.port, self.bootstrap = next(iter(self.ports.values())), reply["bootstrap"]
        self._settings["listeners"] = reply["listeners"]
        self._initial_content = {"topics": {}, "users": {}}  # not created again: a test may delete or change them
        for slip in reply["slips"]:
            warnings.warn(slip, stacklevel=2)

    def _read_reply(self) -> Any:
        assert self._process is not None and self._process.stdout is not None
        ready = select.poll()  # not select(), which takes no descriptor above 1023
        ready.register(self._process.stdout, select.POLLIN)
        line = self._process.stdout.readline() if ready.poll(START_S * 1000) else b""
        if not line:
            raise ServerDidNotStart(f"the server did not start: {self.log()[-3000:].strip()}")
        return json.loads(line)

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
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.write(_STOP)  # its end alone would not be seen while a forked process of the test has it, too
            process.stdin.close()
        try:
            status = process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        self._reap()
        if status:
            raise KafkalogError(f"the server ended with status {status}: {self.log()[-3000:]}")

    def kill(self) -> None:
        """End the server with SIGKILL: nothing is flushed or marked as closed."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._reap()

    def _reap(self) -> None:
        process, self._process = self._process, None
        assert process is not None
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._close_log()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        try:
            self.stop()
        finally:
            self._close_log()

    def _close_log(self) -> None:
        self._log_at_end = self.log()
        self._log.close()


@contextmanager
def kafka_server(
    *,
    topics: Mapping[str, int] | Iterable[str] = (),
    settings: Mapping[str, object] | None = None,
    users: Mapping[str, str] | None = None,
    directory: str | os.PathLike[str] | None = None,
) -> Iterator[KafkaServer]:
    """Run a server for the duration of a `with` block.

    topics: a name, names, or names and numbers of partitions, created before the block begins; settings: as in a
    broker's `server.properties`, overriding `DEFAULTS`, ConfigError for data directories; users: names and passwords
    for listeners with SASL; directory: the directory of the topics, by default a temporary one.

    >>> with kafka_server(topics={"orders": 3}) as server, kafkalog.open_dirs(server.directory) as data:
    ...     server.bootstrap, len(data)
    ('127.0.0.1:...', 3)
    """
    names = [topics] if isinstance(topics, str) else topics
    partition_counts = dict(names) if isinstance(names, Mapping) else dict.fromkeys(names, 1)
    if directory is not None:
        with KafkaServer(Path(directory), settings or {}, partition_counts, users=users) as server:
            yield server
        return
    with tempfile.TemporaryDirectory(prefix="kafkalog-server-", ignore_cleanup_errors=True) as temporary:
        given = settings or {}
        with KafkaServer(Path(temporary) / "data", given, partition_counts, users=users, is_temporary=True) as server:
            yield server


def serve() -> None:
    """Run the server process: read its configuration from standard input and serve until that is closed."""
    import asyncio
    import logging
    import shutil
    import signal

    from kafkalog.server.running import loop_factory, raise_descriptor_limit

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the test, which then stops its server
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    raise_descriptor_limit()
    given = json.loads(sys.stdin.buffer.readline())
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            is_orphaned = runner.run(_serve(given))
    except KafkalogError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    if is_orphaned and given["is_temporary"]:
        shutil.rmtree(Path(given["directory"]).parent, ignore_errors=True)


async def _serve(given: Mapping[str, Any]) -> bool:
    """Serve, then return True if the test's process ended and so cannot remove the directory."""
    import asyncio
    import signal

    from kafkalog.metrics import prometheus_text
    from kafkalog.server.security.users import add_user
    from kafkalog.server.serving import serving
    from kafkalog.server.settings.config import ServerConfig

    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    config = ServerConfig(given["settings"])
    for name, password in given["users"].items():
        add_user(given["directory"], name, password)
    async with serving([given["directory"]], config, log_metrics=prometheus_text) as server:
        for name, partitions in given["topics"].items():
            if server.node.topics.get(name) is None:
                await server.node.topics.create(name, partitions)
        _report_ready(server)
        loop.add_reader(0, stopping.set)
        await stopping.wait()
        loop.remove_reader(0)
    ready = select.poll()
    ready.register(0, select.POLLIN)
    return bool(ready.poll(0)) and not os.read(0, len(_STOP))


def _report_ready(server: Server) -> None:
    from kafkalog.server.net.endpoints import parse_endpoint

    ports = {one: server.ports.get(parse_endpoint(one).name) for one in server.config["listeners"]}
    listeners = ",".join(f"{one.strip().rpartition(':')[0]}:{port}" for one, port in ports.items() if port is not None)
    bootstrap = next(iter(server.addresses.values()))
    reply: dict[str, object] = {"ports": server.ports, "listeners": listeners, "bootstrap": bootstrap}
    reply["http_port"] = None if server.http is None else server.http.port
    reply["slips"] = server.config.slips()
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()
