"""A batch that ends at offset 2^63-1 leaves no offset for the log end: typed errors wherever it comes from."""

from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.errors import CorruptRecord, KafkalogError, UnexpectedAppendOffset
from tests.raw_batches import batch
from tests.storage.logs import NOW

LARGEST = 2**63 - 1
FIRST = LARGEST - 9


def ending_at_the_largest(count: int) -> bytes:
    return batch(LARGEST - count + 1, [(NOW, b"k", b"v")] * count, epoch=0)


@pytest.fixture(params=[1, 2])
def directory(tmp_path: Path, request: Any) -> Path:
    """A log closed well, whose last segment ends with such a batch behind a sound one."""
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.truncate_fully_and_start_at(FIRST)
        log.append(b"sound")
    (path,) = (tmp_path / "t-0").glob("*.log")
    with path.open("ab") as file:
        file.write(ending_at_the_largest(request.param))
    return tmp_path / "t-0"


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix == ".log"}


def test_a_reader_ends_before_it_and_says_so(directory: Path) -> None:
    with kafkalog.open(directory) as log:
        assert (log.end_offset, log[FIRST].value) == (FIRST + 1, b"sound")
        for read in (lambda: list(log.records()), log.table, lambda: list(log.batches()), log.stats, log.verify):
            try:
                read()
            except KafkalogError as error:
                assert isinstance(error, CorruptRecord)
        assert any(str(LARGEST) in problem.message for problem in log.problems)


@pytest.mark.parametrize("is_closed_well", [True, False])
def test_a_writer_refuses_it_and_changes_no_data(directory: Path, is_closed_well: bool) -> None:
    if not is_closed_well:
        (directory.parent / ".kafka_cleanshutdown").unlink()
    before = files(directory)
    with pytest.raises(CorruptRecord) as caught:
        kafkalog.open(directory, "a")
    assert str(caught.value.path).endswith(".log")
    assert caught.value.position == len(batch(FIRST, [(NOW, None, b"sound")]))
    assert files(directory) == before


def test_a_store_takes_it_for_damage_of_that_partition(directory: Path) -> None:
    with kafkalog.open_dirs(directory.parent, "a") as dirs:
        ((key, error),) = dirs.problems.items()
        with pytest.raises(type(error)):
            dirs[key]
    assert isinstance(error, KafkalogError)
    assert kafkalog.verify(directory).problems


@pytest.mark.parametrize("count", [1, 2])
def test_it_is_not_replicated(tmp_path: Path, count: int) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.truncate_fully_and_start_at(FIRST)
        with pytest.raises(UnexpectedAppendOffset, match="leaves none for the log end"):
            log.replicate(ending_at_the_largest(count))
        assert log.append(b"x").first_offset == FIRST
        assert [record.offset for record in log.records()] == [FIRST]


def test_the_offset_before_it_is_the_last_that_fits(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.truncate_fully_and_start_at(LARGEST - 1)
        log.append(b"last")
        assert log.end_offset == LARGEST
        with pytest.raises(KafkalogError):
            log.append(b"one more")
        assert [record.offset for record in log.records()] == [LARGEST - 1]
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        assert [record.offset for record in log.records()] == [LARGEST - 1]
        with pytest.raises(KafkalogError):
            log.append(b"one more")
