"""A Kafka server for tests: on a free port, on a directory of its own, gone when the test is.

    with kafka_server(topics={"orders": 3}) as server:
        producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap})

The server is a process of its own: it shares neither the interpreter nor the memory of the test, may be killed as a
crash would, and ends when the test's process does, however that ends. `kafkalog.pytest_plugin` has it as a fixture.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

from kafkalog.errors import KafkalogError

__all__ = ["DEFAULTS", "KafkaServer", "ServerDidNotStart", "kafka_server"]

DEFAULTS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.dedupe.buffer.size": "4194304",
}
"""Settings that make a server quick to start and groups quick to form; those of the caller go before them."""
START_S: Final = 30
STOP_S: Final = 30
_CHILD: Final = """
import sys
sys.argv[1] in sys.path or sys.path.insert(0, sys.argv[1])
from kafkalog.testing import serve
serve()
"""


class ServerDidNotStart(KafkalogError):
    """The server ended, or did not answer in time; the message has what it said."""


class KafkaServer:
    """A server that `kafka_server` started; it can be stopped, killed and started again on its directory.

    `bootstrap` is what clients connect to, "HOST:PORT" of the first listener; `ports` has that of every listener;
    `directory` holds the topics.
    """

    def __init__(self, directory: Path, settings: Mapping[str, Any], topics: Mapping[str, int]) -> None:
        self.directory = directory
        self.bootstrap = ""
        self.port = 0
        self.ports: dict[str, int] = {}
        self.http_port: int | None = None
        self._settings = {"listeners": "PLAINTEXT://127.0.0.1:0", **DEFAULTS, **settings}
        self._topics = dict(topics)
        self._log = tempfile.TemporaryFile()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it; on the ports that it had, if it ran before. Raises ServerDidNotStart."""
        given = {"directory": str(self.directory), "settings": self._settings, "topics": self._topics}
        root = str(Path(__file__).resolve().parent.parent)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _CHILD, root],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
        )  # fmt: skip
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(given).encode() + b"\n")
            self._process.stdin.flush()
            said = self._first_line()
        except BaseException:
            self.kill()
            raise
        self.ports, self.http_port = said["ports"], said["http_port"]
        name, self.port = next(iter(self.ports.items()))
        host = said["hosts"][name]
        self.bootstrap = f"{host}:{self.port}"
        self._settings["listeners"] = said["listeners"]

    def _first_line(self) -> Any:
        assert self._process is not None and self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], START_S)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            raise ServerDidNotStart(f"the server did not start: {self.log()[-3000:]}")
        return json.loads(line)

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None, "not started"
        return self._process.pid

    def log(self) -> str:
        """What it logged so far: warnings and errors."""
        descriptor = self._log.fileno()  # the server writes where its position is, which is ours, too
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode("utf-8", "replace")

    def stop(self) -> None:
        """Ends it as on SIGTERM: what is in work is answered, logs are flushed and closed."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        with suppress(BrokenPipeError):
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
        """Ends it with SIGKILL: nothing is flushed, nothing is marked as closed."""
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
            self._log.close()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        try:
            self.stop()
        finally:
            self._log.close()


@contextmanager
def kafka_server(
    *,
    topics: Mapping[str, int] | Iterable[str] = (),
    settings: Mapping[str, Any] | None = None,
    directory: str | os.PathLike[str] | None = None,
) -> Iterator[KafkaServer]:
    """A server for the length of a `with` block.

    topics: names, or names and numbers of partitions, made before the block begins; settings: as in a broker's
    `server.properties`, over `DEFAULTS`; directory: where the topics are kept, a temporary one where none is given.
    """
    wanted = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)
    if directory is not None:
        with KafkaServer(Path(directory), settings or {}, wanted) as server:
            yield server
        return
    with tempfile.TemporaryDirectory(prefix="kafkalog-server-") as made:
        with KafkaServer(Path(made) / "data", settings or {}, wanted) as server:
            yield server


def serve() -> None:
    """The server's process: told on standard input what to serve, it serves until that is closed."""
    import asyncio
    import logging
    import signal

    from kafkalog.server.running import loop_factory, raise_descriptor_limit

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the test, which then stops its server
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    raise_descriptor_limit()
    given = json.loads(sys.stdin.buffer.readline())
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(given))


async def _serve(given: Mapping[str, Any]) -> None:
    import asyncio
    import signal

    from kafkalog.metrics import prometheus_text
    from kafkalog.server.config import ServerConfig
    from kafkalog.server.serving import serving

    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, over.set)
    async with serving([given["directory"]], ServerConfig(given["settings"]), log_metrics=prometheus_text) as server:
        for name, partitions in given["topics"].items():
            if server.node.topics.get(name) is None:
                await server.node.topics.create(name, partitions)
        _tell(server)
        loop.add_reader(0, over.set)
        await over.wait()
        loop.remove_reader(0)


def _tell(server: Any) -> None:
    hosts = {name: host for name, (host, _) in server.node.endpoints.items()}
    bound = [one.strip().rpartition(":")[0] for one in server.config["listeners"]]
    listeners = ",".join(f"{one}:{port}" for one, port in zip(bound, server.ports.values(), strict=True))
    said = {"ports": server.ports, "hosts": hosts, "listeners": listeners}
    said["http_port"] = None if server.http is None else server.http.port
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()
