"""A `kafkalog serve` of its own, and a client that does nothing wrong: it wants to be served whatever others do."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from kafkalog.server.wire.header import response_header
from kafkalog.server.wire.reader import read_response
from kafkalog.server.wire.versions import APIS
from kafkalog.server.wire.writer import write_request
from tests.raw_batches import batch

USER: Final = "well-behaved"
PASSWORD: Final = "fdf7a0c1"
OWN_TOPIC: Final = "of-the-well-behaved-client"
START_S: Final = 120
SETTINGS: Final = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "authorizer.class.name": "StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": f"User:{USER}",
    "auto.create.topics.enable": "false",
    "connection.failed.authentication.delay.ms": "0",
    "transaction.max.timeout.ms": "2000",
    "log.segment.delete.delay.ms": "500",
}
KEYS: Final = {api.name: key for key, api in APIS.items()}


class Served:
    """The server's processes. `root` is the tree whose kafkalog they run; `environment` is added to this process's."""

    def __init__(self, directory: Path, root: Path, environment: Mapping[str, str], workers: int = 1) -> None:
        self._environment = {**os.environ, "PYTHONPATH": str(root), "KAFKALOG_PASSWORD": PASSWORD, **environment}
        self.directories = [str(directory / name) for name in ("data", "more", *map(str, range(2, workers)))]
        self.workers = workers
        self._command = [sys.executable, "-P", "-m", "kafkalog.cli.main", "serve"]
        for path in self.directories:
            self._command += ["-d", path]
        self._directory = directory
        self.log_path = directory / "log"
        self.process: subprocess.Popen[bytes] | None = None
        self.ports: dict[str, int] = {}
        self.all_ports: dict[str, list[int]] = {}
        """The ports of each listener in all processes; the main process's first."""

    def start(self) -> None:
        """Make its user, start it, and wait until it answers."""
        with self.log_path.open("ab") as log:
            add = [*self._command, "--add-user", USER]
            subprocess.run(add, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True)
            ready = self._directory / "ready"
            more = ["--ready-file", str(ready), "-q"]
            for name in ("PLAINTEXT", "SASL_PLAINTEXT"):
                more += ["--listen", f"{name}://127.0.0.1:0"]
            if self.workers > 1:
                more += ["--workers", str(self.workers)]
            for key, value in SETTINGS.items():
                more += ["-X", f"{key}={value}"]
            self.process = subprocess.Popen([*self._command, *more], env=self._environment, stdout=log, stderr=log)
        until = time.monotonic() + START_S
        while not ready.exists():
            if not self.is_alive or time.monotonic() > until:
                raise AssertionError(f"the server did not start: {self.log()[-3000:]}")
            time.sleep(0.02)
        for line in ready.read_text().splitlines():
            name, _, address = line.partition(" ")
            self.ports[name] = int(address.rpartition(":")[2])
        for name, port in self.ports.items():
            with Client(port, START_S, is_login=name == "SASL_PLAINTEXT") as client:
                nodes = client.ask("metadata", 8, _metadata(())).brokers
            self.all_ports[name] = [port, *(one.port for one in nodes if one.port != port)]
            assert len(self.all_ports[name]) == self.workers

    def _processes(self) -> list[int]:
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [self.process.pid, *map(int, children)]

    @property
    def is_alive(self) -> bool:
        """Return True while the process runs."""
        return self.process is not None and self.process.poll() is None

    def log(self) -> str:
        """Return the log: warnings, errors and sanitizer reports."""
        return self.log_path.read_text("utf-8", "replace")

    def rss_mb(self) -> float:
        """Return the resident memory of all processes."""
        return sum(map(_rss_mb, self._processes()))

    def descriptors(self) -> int:
        """Return the number of open files and sockets of all processes."""
        return sum(len(os.listdir(f"/proc/{one}/fd")) for one in self._processes())

    def stop(self) -> int:
        """Its status after SIGTERM."""
        assert self.process is not None
        self.process.terminate()
        try:
            return self.process.wait(120)
        finally:
            self.process.kill()


def _rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def _metadata(topics: Sequence[Mapping[str, str]] | None) -> dict[str, Any]:
    return {
        "topics": topics, "allow_auto_topic_creation": False, "include_topic_authorized_operations": False,
        "include_cluster_authorized_operations": False,
    }  # fmt: skip


class Client:
    """A connection that is logged in, if it is one for that; one request at a time."""

    def __init__(self, port: int, timeout_s: float, *, is_login: bool = True) -> None:
        self._port = port
        self._timeout_s = timeout_s
        self._sock = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self._file = self._sock.makefile("rb")
        self._number = 0
        if is_login:
            self._log_in()

    def _log_in(self) -> None:
        assert self.ask("sasl_handshake", 1, {"mechanism": "PLAIN"}).error_code == 0
        token = f"\0{USER}\0{PASSWORD}".encode()
        assert self.ask("sasl_authenticate", 1, {"auth_bytes": token}).error_code == 0

    def ask(self, name: str, version: int, tree: Mapping[str, Any]) -> Any:
        """The answer to a call. ConnectionError where there is none, TimeoutError where it does not come in time."""
        key = KEYS[name]
        self._number += 1
        head = struct.pack(">hhih", key, version, self._number, -1)
        head += b"\0" if APIS[key].is_flexible(version) else b""
        request = head + write_request(key, version, tree)
        self._sock.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", self._exactly(4))
        answer = self._exactly(size)
        assert struct.unpack_from(">i", answer)[0] == self._number
        return read_response(key, version, bytearray(answer), len(response_header(key, version, self._number)))

    def _exactly(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) < size:
            raise ConnectionError("the server closed the connection of a client that did nothing wrong")
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """End it."""
        self._file.close()
        self._sock.close()

    def topic(self, name: str, partitions: int) -> bytes:
        """Return a topic's id; create the topic if it is missing."""
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": []}
        self.ask("create_topics", 7, {"topics": [topic], "timeout": 30_000, "validate_only": False})
        wanted = {"topics": [{"topic_id": None, "name": name}], "allow_auto_topic_creation": False,
                  "include_topic_authorized_operations": False}  # fmt: skip
        found = self.ask("metadata", 12, wanted).topics[0]
        assert found.error_code == 0, found
        return bytes(found.topic_id.bytes)

    def write_and_read(self, value: bytes, partitions: int = 1) -> None:
        """Produce a record to each of so many partitions, where its leader is, and fetch it."""
        self.topic(OWN_TOPIC, partitions)
        found = self.ask("metadata", 8, _metadata([{"name": OWN_TOPIC}]))
        ports = {one.node_id: one.port for one in found.brokers}
        for one in found.topics[0].partitions:
            port = ports[one.leader_id]
            if port == self._port:
                self._write_and_read(value, one.partition_index)
            else:
                with Client(port, self._timeout_s) as other:
                    other._write_and_read(value, one.partition_index)

    def _write_and_read(self, value: bytes, index: int) -> None:
        data = [{"name": OWN_TOPIC, "partition_data": [{"index": index, "records": batch(0, [value])}]}]
        tree = {"transactional_id": None, "acks": -1, "timeout": 30_000, "topic_data": data}
        written = self.ask("produce", 9, tree).responses[0].partition_responses[0]
        assert written.error_code == 0, written
        partition = {
            "partition": index, "current_leader_epoch": -1, "fetch_offset": written.base_offset,
            "last_fetched_epoch": -1, "log_start_offset": -1, "partition_max_bytes": 1 << 20,
        }  # fmt: skip
        wanted = {
            "replica_id": -1, "max_wait": 10_000, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0,
            "session_id": 0, "session_epoch": -1, "topics": [{"topic": OWN_TOPIC, "partitions": [partition]}],
            "forgotten_topics_data": [], "rack_id": "",
        }  # fmt: skip
        read = self.ask("fetch", 11, wanted).responses[0].partitions[0]
        assert read.error_code == 0 and value in bytes(read.records), read

    def partitions(self) -> dict[str, int]:
        """The topics that are there, and how many partitions each has."""
        return {topic.name: len(topic.partitions) for topic in self.ask("metadata", 8, _metadata(None)).topics}

    def tidy(self) -> None:
        """Delete what strangers made: it is theirs to make, and would only grow."""
        names = self.partitions()
        strange = sorted(name for name in names if name not in ("t", "u", OWN_TOPIC) and not name.startswith("__"))
        if strange:
            self.ask("delete_topics", 5, {"topic_names": strange, "timeout": 60_000})
        self.topic("t", 2)
        self.topic("u", 2)
        groups = [group.group_id for group in self.ask("list_groups", 3, {}).groups]
        if groups:
            self.ask("delete_groups", 1, {"groups_names": groups})
        any_acl = {
            "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
            "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
        }  # fmt: skip
        self.ask("delete_acls", 2, {"filters": [any_acl]})
        self._remove_quotas()

    def _remove_quotas(self) -> None:
        found = self.ask("describe_client_quotas", 1, {"components": [], "strict": False}).entries or ()
        entries = [
            {
                "entity": [{"entity_type": one.entity_type, "entity_name": one.entity_name} for one in entry.entity],
                "ops": [{"key": value.key, "value": 0.0, "remove": True} for value in entry.values],
            }
            for entry in found
        ]
        if entries:
            self.ask("alter_client_quotas", 1, {"entries": entries, "validate_only": False})
