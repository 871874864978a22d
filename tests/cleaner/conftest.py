"""Fixtures that the cleaner's tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cleaner.pools import Pool


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    """An empty pool; its logs are closed at the end."""
    made = Pool(tmp_path)
    yield made
    for log in made.current_logs.values():
        log.close()
