"""A leader whose coordinators cannot start, as with a disk that is full for a moment."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kafkalog.errors import StorageError
from kafkalog.server.node import leading
from kafkalog.server.txns.coordinator import TransactionCoordinator
from tests.server.looping import in_loop
from tests.server.quorum.sets import set_of, wait_until


@in_loop
async def test_coordinators_that_could_not_start_are_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In the same term: no other node may lead for long, and every call of a group would be refused until then."""
    starts: list[TransactionCoordinator] = []
    start = TransactionCoordinator.start

    async def fails_twice(coordinator: TransactionCoordinator) -> None:
        starts.append(coordinator)
        if len(starts) <= 2:
            raise StorageError("no space left", errno=errno.ENOSPC)
        await start(coordinator)

    async with set_of(tmp_path) as nodes:
        monkeypatch.setattr(TransactionCoordinator, "start", fails_twice)
        monkeypatch.setattr(leading, "RETRY_SECONDS", 0.01)
        await nodes.quorum(1).promote()
        term = nodes.quorum(1).state.term
        await wait_until(lambda: not nodes[1].leaders_calls)
        assert nodes.quorum(1).state.term == term
        assert nodes[1].transactions is nodes[1].parts["transactions"] is starts[2]
    assert "cannot start: again in 0.01 s" in caplog.text and "again in 0.02 s" in caplog.text


@in_loop
async def test_a_node_that_stops_meanwhile_starts_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[TransactionCoordinator] = []

    async def fails(coordinator: TransactionCoordinator) -> None:
        starts.append(coordinator)
        raise StorageError("no space left", errno=errno.ENOSPC)

    async with set_of(tmp_path) as nodes:
        monkeypatch.setattr(TransactionCoordinator, "start", fails)
        await nodes.quorum(1).promote()
        await wait_until(lambda: bool(starts))
        assert nodes[1].leaders_calls
    assert len(starts) == 1
