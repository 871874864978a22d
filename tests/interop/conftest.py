"""Every test here runs the real Kafka: without Java or Maven it fails, unless KAFKALOG_NO_INTEROP=1."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import toolchain
from tests.interop.reference import Reference

HERE = f"{Path(__file__).parent}{os.sep}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if str(item.path).startswith(HERE):
            item.add_marker(pytest.mark.interop)


@pytest.fixture(scope="session", autouse=True)
def kafka_tools() -> None:
    """Jars fetched and programs compiled, or one line that says what to install."""
    if os.environ.get(toolchain.SKIP_VARIABLE) == "1":
        pytest.skip(f"{toolchain.SKIP_VARIABLE}=1")
    missing = ""
    try:
        toolchain.java_command("")
    except toolchain.ToolMissing as problem:
        missing = str(problem)
    if missing:
        pytest.fail(missing, pytrace=False)


@pytest.fixture(scope="session")
def reference(kafka_tools: None) -> Iterator[Reference]:
    """One JVM for the session."""
    with Reference() as running:
        yield running
