"""Short trials of a replica set; `make soak` runs them for hours (KAFKALOG_SOAK_S)."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("aiokafka")
from tests.server.replicated.checker import Fault
from tests.server.replicated.trial import SAFE, Trial, is_allowed

SECONDS = float(os.environ.get("KAFKALOG_TRIAL_S", "12"))


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """aiokafka logs each failure, of which there are many here."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize(("seed", "is_forced"), [(1, False), (2, False), (3, True)])
def test_no_finding(tmp_path: Path, seed: int, is_forced: bool) -> None:
    result = Trial(tmp_path, seed, is_forced=is_forced).run(SECONDS)
    assert not result.findings, f"{result}\nkept in {tmp_path}"
    assert result.counts["operations"] > 100


def test_what_a_promise_allows() -> None:
    """Only what one replica acknowledged may be lost, unless somebody was forced to lead."""
    key = (SAFE, 0)
    assert is_allowed(Fault("lost", key, 1, ""), is_forced=False)
    assert not is_allowed(Fault("lost", key, -1, ""), is_forced=False)
    assert not is_allowed(Fault("vanished", key, 0, ""), is_forced=False)
    assert is_allowed(Fault("lost", key, -1, ""), is_forced=True)
    assert not is_allowed(Fault("divergent", key, 0, ""), is_forced=True)
