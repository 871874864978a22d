"""Tests of an application with an embedded log: a new directory for each test, no server, no waiting.

    python -m pytest examples/embedded_app
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ledger import Ledger, NotEnough

import kafkalog


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return the directory of this test's ledger; opening creates it."""
    return tmp_path / "data"


@pytest.fixture
def ledger(directory: Path) -> Iterator[Ledger]:
    """A ledger in which alice has 100."""
    with Ledger(directory) as opened:
        opened.deposit("alice", 100)
        yield opened


def last_segment(directory: Path) -> Path:
    return max((directory / "bookings-0").glob("*.log"))


def test_a_transfer_moves_money(ledger: Ledger) -> None:
    assert ledger.transfer("alice", "bob", 30) == 1
    assert (ledger.balance("alice"), ledger.balance("bob")) == (70, 30)


def test_a_transfer_that_is_refused_leaves_no_trace(ledger: Ledger, directory: Path) -> None:
    with pytest.raises(NotEnough, match="alice has 100, not 101"):
        ledger.transfer("alice", "bob", 101)
    with kafkalog.open(directory / "bookings-0") as log:  # reading needs no lock: look at what the application wrote
        assert [record.key for record in log] == [b"alice"]


def test_balances_outlive_a_restart(ledger: Ledger, directory: Path) -> None:
    ledger.transfer("alice", "bob", 30)
    ledger.close()
    with Ledger(directory) as again:
        assert (again.balance("alice"), again.balance("bob")) == (70, 30)


def test_only_one_process_has_it_open(ledger: Ledger, directory: Path) -> None:
    with pytest.raises(kafkalog.DirectoryLocked):
        Ledger(directory)


def test_a_killed_process_loses_nothing_that_was_booked(directory: Path) -> None:
    program = f"import ledger, os; one = ledger.Ledger({str(directory)!r}); one.deposit('alice', 5); os._exit(9)"
    assert subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parent).returncode == 9
    with Ledger(directory) as again:
        assert again.balance("alice") == 5


def test_half_a_transfer_is_none(ledger: Ledger, directory: Path) -> None:
    """The machine stopped while the last batch was being written: the end of its file is missing."""
    ledger.transfer("alice", "bob", 30)
    ledger.close()
    (directory / ".kafka_cleanshutdown").unlink()
    data = last_segment(directory).read_bytes()
    last_segment(directory).write_bytes(data[:-20])
    with Ledger(directory) as again:
        assert (again.balance("alice"), again.balance("bob")) == (100, 0)
        again.transfer("alice", "bob", 1)
    assert kafkalog.verify(directory).ok
