"""Real third-party clients against a kafkalog server: every operation that a client has.

docs/clients.md has the resulting table; a cell is green because its test here passes.
"""

import contextlib
import functools
import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest

from kafkalog.testing import KafkaServer, kafka_server
from tests.interop import toolchain
from tests.interop.clients_java import VERSIONS, JavaClients
from tests.interop.matrix import CLIENTS, OPERATIONS, PYTHON_CLIENTS, SETTINGS, cells, has, table
from tests.trees import SOURCES

CELLS = [pytest.param(*cell, id="-".join(cell)) for cell in cells(PYTHON_CLIENTS)]
JAVA_CELLS = [
    (version, operation) for version in VERSIONS for operation in OPERATIONS if has(f"Java {version}", operation)
]
SHARED = ("first {", "again {3=job 3 x2, 4=job 4 x2}", "group Stable 1", "member [java-0]")
SHARES_CHANGED = ("listed [jobs Empty Share]", "altered {jobs={java-0=", "without offsets {jobs={}}", "deleted []")
"""How lines of java_44/Share.java begin, whose whole output test_share_interop.py compares with a broker's."""
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[KafkaServer]:
    with kafka_server(settings=SETTINGS) as one:
        yield one


@pytest.fixture(scope="module")
def java() -> Iterator[Callable[[str], JavaClients]]:
    """Return what gives the JVM of a version: pytest would end a fixture with a parameter after each set of them."""
    with contextlib.ExitStack() as stack:
        yield functools.cache(lambda version: stack.enter_context(JavaClients(version)))


def topic_of(operation: str) -> str:
    return f"{operation.replace('_', '-')}-{next(_numbers)}"


def run(server: KafkaServer, operation: str, do: Callable[[str, str], None]) -> None:
    """Do an operation; with transactions of version 2, check that no call announces partitions."""
    if operation != "transactions_2":
        do(operation, topic_of(operation))
        return
    with server.record() as seen:
        for one in ("transactions", "transactional_offsets"):
            do(one, topic_of(one))
    versions = {name: {one.version for one in seen.of(name)} for name in ("EndTxn", "TxnOffsetCommit")}
    assert versions["EndTxn"] == {5} and min(versions["TxnOffsetCommit"]) >= 5
    assert min(one.version for one in seen.of("Produce") if one.transactional_ids) >= 12
    assert seen.count("AddPartitionsToTxn") == seen.count("AddOffsetsToTxn") == 0


@functools.cache
def java_shares(version: str) -> list[str]:
    """The output of Java's share consumer and its administrator."""
    with kafka_server(settings=SETTINGS) as server:
        command = toolchain.java_44_command("Share", server.bootstrap, version=version)
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the clients' own calls
@pytest.mark.parametrize(("client", "operation"), CELLS)
def test_a_client(server: KafkaServer, client: str, operation: str) -> None:
    if client == "kcat" and shutil.which("kcat") is None:
        if os.environ.get("KAFKALOG_NO_KCAT") == "1":
            pytest.skip("KAFKALOG_NO_KCAT=1")
        pytest.fail("no kcat: install the package kcat, or leave its tests out with KAFKALOG_NO_KCAT=1")
    run(server, operation, lambda one, topic: PYTHON_CLIENTS[client](server.bootstrap, topic, one))


@pytest.mark.parametrize(("version", "operation"), JAVA_CELLS)
def test_the_java_clients(
    server: KafkaServer, java: Callable[[str], JavaClients], version: str, operation: str
) -> None:
    if operation in ("share_group", "admin_share_group"):
        lines = java_shares(version)
        for begin in SHARED if operation == "share_group" else SHARES_CHANGED:
            assert any(line.startswith(begin) for line in lines), lines
        return
    run(server, operation, lambda one, topic: java(version).operation(one, server.bootstrap, topic))


def test_the_table_of_the_document() -> None:
    print(table())
    assert table() in (SOURCES / "docs" / "clients.md").read_text(encoding="utf-8")


def test_every_client_of_the_table_is_tested() -> None:
    assert [*PYTHON_CLIENTS, *(f"Java {version}" for version in VERSIONS)] == list(CLIENTS)
    assert all(re.fullmatch(r"[a-z0-9_]+", one) for one in OPERATIONS)
