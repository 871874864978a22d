"""One writing process for a data directory, ours or Java's: the lock is of the kind that both see."""

from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import DirectoryLocked
from tests.interop import ours
from tests.interop.reference import Reference


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with one partition, written and closed."""
    with kafkalog.open(ours.partition(tmp_path, "one-0"), "a") as log:
        log.append(b"first")
    return tmp_path / "data"


def assert_locked_for_us(data: Path) -> None:
    with pytest.raises(DirectoryLocked) as caught:
        kafkalog.open(data / "one-0", "a")
    assert ".lock" in str(caught.value)


def test_java_excludes_us(reference: Reference, data: Path) -> None:
    assert reference.take_lock(data / ".lock")
    try:
        assert_locked_for_us(data)
        assert_locked_for_us(data)  # the failed try has left nothing behind
        with kafkalog.open(data / "one-0") as log:  # reading takes no lock
            assert [record.value for record in log.records()] == [b"first"]
    finally:
        assert reference.drop_lock(data / ".lock")
    with kafkalog.open(data / "one-0", "a") as log:
        assert log.append(b"second").first_offset == 1


def test_we_exclude_java(reference: Reference, data: Path) -> None:
    with kafkalog.open(data / "one-0", "a") as log:
        assert not reference.take_lock(data / ".lock")
        log.append(b"second")
        assert not reference.take_lock(data / ".lock")
    assert reference.take_lock(data / ".lock")
    assert reference.drop_lock(data / ".lock")


def test_a_second_partition_opened_and_closed_does_not_lose_the_lock(reference: Reference, data: Path) -> None:
    """A POSIX record lock goes when any descriptor of the file closes: there must be one, counted."""
    with kafkalog.open(data / "one-0", "a") as log:
        with kafkalog.open(data / "two-0", "a") as other:
            other.append(b"x")
            assert not reference.take_lock(data / ".lock")
        assert not reference.take_lock(data / ".lock")
        with kafkalog.open(data / "two-0") as other:
            assert len(list(other.records())) == 1
        assert not reference.take_lock(data / ".lock")
        log.append(b"second")
    assert reference.take_lock(data / ".lock")
    assert reference.drop_lock(data / ".lock")


def test_a_refused_open_does_not_lose_the_lock(reference: Reference, data: Path) -> None:
    with kafkalog.open(data / "one-0", "a"):
        with pytest.raises(ValueError):
            kafkalog.open(data / "not a partition", "a")
        assert not reference.take_lock(data / ".lock")


def test_the_lock_of_a_dead_process_is_free(data: Path) -> None:
    dying = Reference()
    try:
        assert dying.take_lock(data / ".lock")
        assert_locked_for_us(data)
        dying.kill()
        with kafkalog.open(data / "one-0", "a") as log:
            log.append(b"second")
    finally:
        dying.close()
