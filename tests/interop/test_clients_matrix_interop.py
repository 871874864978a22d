"""Real third-party clients against a kafkalog server: every operation that a client has.

docs/clients.md has the resulting table; a cell is green because its test here passes.
"""

import itertools
import os
import re
import shutil
from collections.abc import Iterator

import pytest

from kafkalog.testing import KafkaServer, kafka_server
from tests.interop.clients_java import VERSIONS, JavaClients
from tests.interop.matrix import CLIENTS, OPERATIONS, PYTHON_CLIENTS, SETTINGS, cells, table
from tests.trees import SOURCES

CELLS = [pytest.param(*cell, id="-".join(cell)) for cell in cells(PYTHON_CLIENTS)]
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[KafkaServer]:
    with kafka_server(settings=SETTINGS) as one:
        yield one


@pytest.fixture(scope="module")
def java(request: pytest.FixtureRequest) -> Iterator[JavaClients]:
    with JavaClients(request.param) as one:
        yield one


def topic_of(operation: str) -> str:
    return f"{operation.replace('_', '-')}-{next(_numbers)}"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the clients' own calls
@pytest.mark.parametrize(("client", "operation"), CELLS)
def test_a_client(server: KafkaServer, client: str, operation: str) -> None:
    if client == "kcat" and shutil.which("kcat") is None:
        if os.environ.get("KAFKALOG_NO_KCAT") == "1":
            pytest.skip("KAFKALOG_NO_KCAT=1")
        pytest.fail("no kcat: install the package kcat, or leave its tests out with KAFKALOG_NO_KCAT=1")
    PYTHON_CLIENTS[client](server.bootstrap, topic_of(operation), operation)


@pytest.mark.parametrize("java", VERSIONS, indirect=True)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_java_clients(server: KafkaServer, java: JavaClients, operation: str) -> None:
    java.operation(operation, server.bootstrap, topic_of(operation))


def test_the_table_of_the_document() -> None:
    print(table())
    assert table() in (SOURCES / "docs" / "clients.md").read_text(encoding="utf-8")


def test_every_client_of_the_table_is_tested() -> None:
    assert [*PYTHON_CLIENTS, *(f"Java {version}" for version in VERSIONS)] == list(CLIENTS)
    assert all(re.fullmatch(r"[a-z0-9_]+", one) for one in OPERATIONS)
