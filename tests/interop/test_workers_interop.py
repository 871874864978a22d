"""Kafka's own command line tools against a server of two processes, which they see as two brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog.testing import KafkaServer, kafka_server
from tests.interop.clients_java import VERSIONS, JavaClients
from tests.interop.matrix import SETTINGS
from tests.interop.tools import ROWS, Tools


@pytest.fixture(scope="module")
def server() -> Iterator[KafkaServer]:
    with kafka_server(workers=2, settings=SETTINGS) as one:
        yield one


@pytest.fixture(scope="module")
def java() -> Iterator[JavaClients]:
    with JavaClients(VERSIONS[-1]) as one:
        yield one


@pytest.mark.parametrize("name", ROWS)
def test_a_tool(server: KafkaServer, java: JavaClients, name: str, tmp_path: Path) -> None:
    ROWS[name](Tools(java, server.bootstrap, name.replace("_", "-"), tmp_path))
