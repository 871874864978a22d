"""Kafka's own command line tools, of three versions, against a kafkalog server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog.testing import KafkaServer, kafka_server
from tests.interop.clients_java import VERSIONS, JavaClients
from tests.interop.matrix import SETTINGS
from tests.interop.tools import ROWS, Tools, table
from tests.trees import SOURCES


@pytest.fixture(scope="module")
def server() -> Iterator[KafkaServer]:
    with kafka_server(settings=SETTINGS) as one:
        yield one


@pytest.fixture(scope="module")
def java(request: pytest.FixtureRequest) -> Iterator[JavaClients]:
    with JavaClients(request.param) as one:
        yield one


@pytest.mark.parametrize("java", VERSIONS, indirect=True)
@pytest.mark.parametrize("name", ROWS)
def test_a_tool(server: KafkaServer, java: JavaClients, name: str, tmp_path: Path) -> None:
    topic = f"{name.replace('_', '-')}-{java.version.replace('.', '-')}"
    ROWS[name](Tools(java, server.bootstrap, topic, tmp_path))


def test_the_table_of_the_document() -> None:
    print(table())
    assert table() in (SOURCES / "docs" / "clients.md").read_text(encoding="utf-8")
