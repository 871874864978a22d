"""A real broker on a data directory: one node, broker and controller in one, on two free ports."""

import base64
import functools
import re
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from kafkalog.types import TopicPartition
from tests.interop import toolchain
from tests.interop.reference import RecordTuple, Reference, record_tuple
from tests.ports import free_ports

START_S = 120
STOP_S = 60
ATTEMPTS = 3  # tries on free ports, which another program may take meanwhile
QUIET: Final = {"log.initial.task.delay.ms": "3600000", "log.cleaner.enable": "false"}
"""Settings of a broker that leaves records where they are, however old: no retention, no compaction."""
STARTED, PORT_TAKEN = "Kafka Server started", "Address already in use"
CLUSTER_ID = "a2Fma2Fsb2ctaW50ZXJvcA"  # 16 bytes in base64
META = "meta.properties"
_OF_THE_TOOL = (META, "bootstrap.checkpoint", "__cluster_metadata-0/*.checkpoint")
_formatted: dict[Any, dict[str, bytes]] = {}
"""What Kafka's own tool has made of one data directory, by version and settings: it takes a JVM each time."""


def _write_formatted(data: Path, files: Mapping[str, bytes]) -> None:
    """Write what the tool made of another directory, with an id of its own."""
    own_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=")
    for name, content in files.items():
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_bytes(re.sub(rb"(?m)^directory\.id=.*$", b"directory.id=" + own_id, content))


class Broker:
    """Runs while the `with` block does and stops as on SIGTERM; the data directory is formatted if it is new.

    reference: who asks the broker for `ask` and what stands on it, None where that is not called; work: where settings
    and the broker's own log (`broker.log`) go; data: the directory of partitions; settings: over those that all
    brokers here have; options: the JVM's; ports: of clients and of the controller, where it has to come back on the
    same ones; others: more data directories; version: of the broker, "4.3" or "4.4"; has_voters: its voters are in its
    metadata (`--standalone`), not in its settings; plug_in: a jar of classes that the settings name.
    """

    def __init__(
        self,
        reference: Reference | None,
        work: Path,
        data: Path,
        settings: Mapping[str, str] | None = None,
        options: tuple[str, ...] | None = None,
        ports: Iterable[int] | None = None,
        *,
        others: Sequence[Path] = (),
        version: str = "4.3",
        has_voters: bool = False,
        plug_in: Path | None = None,
    ) -> None:
        self._plug_in = plug_in
        self._reference = reference
        self._version, self._has_voters = version, has_voters
        self._ports = None if ports is None else tuple(ports)
        self._work = work
        self._data = data
        self._own = {"log.dirs": ",".join(map(str, (data, *others))), **(settings or {})}
        self._quick_start = quick_start(version) if options is None else toolchain.quick_start()
        self._options = self._quick_start if options is None else options
        self._process: subprocess.Popen[bytes] | None = None
        self.log_file = work / "broker.log"
        self.bootstrap = ""

    def __enter__(self) -> Self:
        for _ in range(ATTEMPTS):
            if self._starts(*(self._ports or free_ports(2))):
                return self
        raise RuntimeError(f"the broker did not start:\n{self.log()[-3000:]}")

    def _starts(self, port: int, controller: int) -> bool:
        """Return True once the broker is up; False if another program took its port first."""
        self.bootstrap = f"localhost:{port}"
        properties = self._properties(port, controller)
        if not (self._data / META).exists():
            self._format(properties)
        options = (*self._options, "-Dinterop.level=info")
        with self.log_file.open("wb") as log:
            self._process = subprocess.Popen(
                toolchain.broker_command(
                    self._version, "kafka.Kafka", str(properties), options=options, plug_in=self._plug_in
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return self._answers()

    def format(self, *options: str) -> None:
        """Formats the data directories and starts nothing."""
        self._format(self._properties(*(self._ports or (1, 2))), *options)

    def _format(self, properties: Path, *options: str) -> None:
        kind = self._version, frozenset(item for item in self._own.items() if item[0] != "log.dirs")
        is_plain = not options and not self._has_voters and self._own["log.dirs"] == str(self._data)
        if is_plain and kind in _formatted and not (self._data / META).exists():
            _write_formatted(self._data, _formatted[kind])
            return
        self._run_format(properties, *options)
        if is_plain:
            files = (path for name in _OF_THE_TOOL for path in self._data.glob(name))
            _formatted[kind] = {str(path.relative_to(self._data)): path.read_bytes() for path in files}

    def _run_format(self, properties: Path, *options: str) -> None:
        how = (*options, "--standalone") if self._has_voters else options
        format_ = ("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties), *how)
        command = toolchain.broker_command(self._version, *format_, options=self._quick_start)
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True)

    def _properties(self, port: int, controller: int) -> Path:
        self._work.mkdir(parents=True, exist_ok=True)
        path = self._work / "server.properties"
        voters = "controller.quorum.bootstrap.servers" if self._has_voters else "controller.quorum.voters"
        quorum = {voters: f"{'' if self._has_voters else '1@'}localhost:{controller}"}
        path.write_text(_settings(port, controller, quorum | self._own), encoding="utf-8")
        return path

    @property
    def process_id(self) -> int:
        """The number of its process."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Ends it with SIGKILL: nothing is flushed, nothing is marked as clean."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def __exit__(self, *raised: object) -> None:
        assert self._process is not None
        if self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise

    def _answers(self) -> bool:
        assert self._process is not None
        deadline = time.monotonic() + START_S
        while self._process.poll() is None and time.monotonic() < deadline:
            if STARTED in self.log():
                return True
            time.sleep(0.1)
        self._process.kill()
        self._process.wait()
        if PORT_TAKEN in self.log():
            return False
        raise RuntimeError(f"the broker did not start:\n{self.log()[-3000:]}")

    def log(self) -> str:
        """Return the broker's log so far."""
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def ask(self, do: str, **fields: Any) -> Any:
        """The answer to a client's command."""
        assert self._reference is not None
        return self._reference.ask(do, bootstrap=self.bootstrap, **fields)

    def consume_all(self, partitions: Iterable[TopicPartition], isolation: str) -> dict[str, list[RecordTuple]]:
        """All records of each partition that a consumer with this isolation level gets, by the partition's name."""
        named = [[one.topic, one.partition] for one in partitions]
        found = self.ask("consume_all", partitions=named, isolation=isolation)
        return {name: [record_tuple(row) for row in rows] for name, rows in found.items()}

    def consume(self, topic: str) -> list[RecordTuple]:
        """All records of partition 0, read by the real consumer."""
        return [record_tuple(row) for row in self.ask("consume", topic=topic)]


@functools.cache
def quick_start(version: str) -> tuple[str, ...]:
    """The JVM's options of a broker that runs for a short while: its classes come from an archive."""
    plain = toolchain.quick_start()

    def train(archiving: tuple[str, ...]) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            work = Path(scratch)
            with Broker(None, work, work / "data", options=(*plain, *archiving), version=version):
                pass

    return (*plain, *toolchain.class_archive(f"broker-{version}", toolchain.broker_classes(version), train))


def _settings(port: int, controller: int, own: Mapping[str, str]) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller}",
        "advertised.listeners": f"PLAINTEXT://localhost:{port}",
        "controller.listener.names": "CONTROLLER",
        "num.network.threads": "1",
        "num.io.threads": "2",
        "background.threads": "2",
        # a killed broker, or one with an older copy of its metadata, waits for its last session to expire
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "group.initial.rebalance.delay.ms": "0",
        "log.cleaner.dedupe.buffer.size": "4194304",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "auto.create.topics.enable": "false",
        **own,
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())
