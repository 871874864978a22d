"""Crash tests run in memory where that can be: they are about order and loss, and sync by the thousand."""

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.memory import memory

HERE = f"{Path(__file__).parent}{os.sep}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if str(item.path).startswith(HERE):
            item.add_marker(pytest.mark.crash)
            item.add_marker(pytest.mark.filterwarnings("ignore::kafkalog.errors.UnsafeFileSystem"))


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory to work in, in memory where there is a file system for that."""
    made = tempfile.mkdtemp(prefix="kafkalog-crash-", dir=memory())
    yield Path(made)
    shutil.rmtree(made)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """A recovery says what it does; a thousand of them say it too often."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)
