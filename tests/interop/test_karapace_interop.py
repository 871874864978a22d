"""Karapace, a third-party schema registry, with its topic on kafkalog's server: both ways to its schemas.

KAFKALOG_KARAPACE is the command that starts it, `karapace` by default. Its settings are in a file, for versions up to
4, and in the environment, for later ones. Skipped without one.
"""

import json
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from kafkalog import values
from kafkalog.values.avro_default import long_bytes
from tests.ports import free_ports

pytest.importorskip("kio", reason="the extra `server` is not installed")
pa = pytest.importorskip("pyarrow", reason="the extra `arrow` is not installed")

from kafkalog.testing import KafkaServer, kafka_server  # noqa: E402

COMMAND = shlex.split(os.environ.get("KAFKALOG_KARAPACE", "karapace"))
START_S = 60
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(shutil.which(COMMAND[0]) is None, reason="there is no Karapace (KAFKALOG_KARAPACE)"),
]
ID = {"name": "id", "type": {"type": "fixed", "name": "Id", "size": 2}}
ORDER = {"type": "record", "name": "Order", "namespace": "shop", "fields": [ID]}
LATER = {**ORDER, "fields": [ID, {"name": "paid", "type": "boolean", "default": True}]}


class Karapace:
    """The process, and calls of its REST interface."""

    def __init__(self, server: KafkaServer, directory: Path) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        settings = {
            "bootstrap_uri": server.bootstrap, "host": "127.0.0.1", "port": port, "karapace_registry": True,
            "karapace_rest": False, "advertised_hostname": "127.0.0.1", "topic_name": "_schemas", "log_level": "INFO",
            "compatibility": "NONE", "replication_factor": 1, "session_timeout_ms": 10000,
            "waiting_time_before_acting_as_master_ms": 100,
        }  # fmt: skip
        config = directory / "karapace.json"
        config.write_text(json.dumps(settings))
        variables = {f"KARAPACE_{name.upper()}": str(value) for name, value in settings.items()}
        self.output = (directory / "karapace.log").open("wb")
        self.process = subprocess.Popen(
            [*COMMAND, str(config)], stdout=self.output, stderr=self.output, env=os.environ | variables
        )

    def call(self, path: str, content: Any = None) -> Any:
        data = None if content is None else json.dumps(content).encode()
        with urlopen(Request(self.url + path, data, {"Content-Type": "application/json"}), timeout=60) as answer:
            return json.loads(answer.read())

    def register(self, subject: str, schema: Any) -> int:
        """Store a schema; returns its id. The process may not be ready yet."""
        deadline = time.monotonic() + START_S
        while True:
            try:
                return int(self.call(f"/subjects/{subject}/versions", {"schema": json.dumps(schema)})["id"])
            except OSError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise
                time.sleep(0.2)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        self.output.close()


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[tuple[KafkaServer, Karapace]]:
    # its reader may look for a topic that does not exist yet, and then not again for a long time
    with kafka_server(topics="_schemas", directory=tmp_path / "data") as server:
        registry = Karapace(server, tmp_path)
        try:
            yield server, registry
        finally:
            registry.close()


def test_its_schemas_over_http_and_from_its_topic(parts: tuple[KafkaServer, Karapace]) -> None:
    server, registry = parts
    old = registry.register("orders-value", ORDER)
    new = registry.register("orders-value", LATER)
    assert len({old, new}) == 2

    def framed(number: int, data: bytes) -> bytes:
        return b"\0" + number.to_bytes(4, "big") + data

    column = pa.array([framed(old, b"ab"), framed(new, b"cd\0"), framed(9999, b"ef"), framed(new, long_bytes(1))])
    wanted = [{"id": b"ab", "paid": True}, {"id": b"cd", "paid": False}, None, None]
    for place in (registry.url, server.directory):
        found = values.decoder("avro", schemas=place, subject="orders-value").decode(column)
        assert found.values.to_pylist() == wanted
        assert found.errors is not None and "schema 9999 is missing" in found.errors[2].as_py()
    with pytest.raises(values.UnknownSchema):
        values.decoder("avro", registry=registry.url, subject="nothing")
    registry.close()
    kept = values.decoder("avro", schemas=server.directory, subject="orders-value").decode(column)
    assert kept.values.to_pylist() == wanted, "the topic is read without the registry"
