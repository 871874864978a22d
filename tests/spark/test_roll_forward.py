"""An intent that stayed open is rolled forward to the record, whatever became of the log meanwhile."""

from pathlib import Path

import pytest

import kafkalog
from kafkalog.cli.main import run
from kafkalog.errors import IllegalState, StorageError
from kafkalog.landing.commit import Committer, give_up
from kafkalog.landing.ledger import read_ledger, write_ledger
from kafkalog.util.clock import SYSTEM_CLOCK
from tests.faults import FaultFS
from tests.spark.sink_cases import NOW_MS, QUERY, flat, found, key, stage, staged_names, values

BATCHES = values("x", 9)
ALL = flat(BATCHES)


@pytest.fixture
def half_landed_data(tmp_path: Path) -> Path:
    """Return `half_landed` with very old records: a reopened log has forgotten who wrote them."""
    return half_landed(tmp_path / "data", NOW_MS)


def half_landed(directory: Path, timestamp_ms: int) -> Path:
    """A directory in which a commit found the disk full: five of nine batches landed."""
    directory.mkdir()
    with kafkalog.open(directory / "t-0", "a", internal_segment_bytes=300, segment_index_bytes=1024) as log:
        log.append(b"before")
    staged = stage(directory, QUERY, 4, [{key("t"): BATCHES}], timestamp_ms=timestamp_ms)
    fs = FaultFS()
    fs.fail("pwrite", path="00000000000000000016.log")
    with pytest.raises(StorageError, match=r"free space.*the batch is decided"):
        Committer(str(directory), fs=fs).commit(QUERY, 4, staged)
    assert found(directory, "t") == [b"before", *ALL[:15]]
    assert read_ledger(str(directory)).intent is not None
    return directory


def knows_producers(directory: Path) -> bool:
    with kafkalog.open(directory / "t-0", "a") as log:
        opened = log.opened_for_append()
        opened.log.expire_producers(2**62)
        return bool(opened.log.producers)


def test_after_more_than_a_day_the_log_has_forgotten_the_producer_and_it_is_exact(half_landed_data: Path) -> None:
    assert not knows_producers(half_landed_data)
    assert Committer(str(half_landed_data)).roll_forward()
    assert found(half_landed_data, "t") == [b"before", *ALL]
    assert Committer(str(half_landed_data)).roll_forward() is False


def test_others_may_write_and_the_beginning_may_be_deleted(half_landed_data: Path) -> None:
    with kafkalog.open(half_landed_data / "t-0", "a") as log:
        log.append([b"between 1", b"between 2"])
        log.delete_before(10)
    assert not knows_producers(half_landed_data)
    assert Committer(str(half_landed_data)).roll_forward()
    assert found(half_landed_data, "t") == [*ALL[9:15], b"between 1", b"between 2", *ALL[15:]]


def test_what_was_deleted_with_all_that_could_tell_is_an_error_until_it_is_given_up(half_landed_data: Path) -> None:
    with kafkalog.open(half_landed_data / "t-0", "a") as log:
        log.append(b"between")
        log.opened_for_append().log.expire_producers(2**62)
        log.roll()
        log.delete_before(log.end_offset)
    with pytest.raises(IllegalState, match=r"between 0 and 16 of 27 records landed in t-0 from offset 1 on.*give_up"):
        Committer(str(half_landed_data)).roll_forward()
    assert give_up(str(half_landed_data)) is not None
    assert Committer(str(half_landed_data)).roll_forward() is False


def test_a_producer_that_is_remembered_tells_it_when_all_was_deleted(tmp_path: Path) -> None:
    directory = half_landed(tmp_path / "data", SYSTEM_CLOCK.milliseconds())
    with kafkalog.open(directory / "t-0", "a") as log:
        log.delete_before(log.end_offset)
        log.append(b"between")
    staged = stage(directory, QUERY, 4, [{key("t"): BATCHES}])
    assert Committer(str(directory)).commit(QUERY, 4, staged).landed is False
    assert found(directory, "t") == [b"between", *ALL[15:]]


def test_an_intent_that_landed_whole_needs_its_files_no_more(half_landed_data: Path) -> None:
    ledger = read_ledger(str(half_landed_data))
    assert ledger.intent is not None
    assert Committer(str(half_landed_data)).roll_forward()
    marked = read_ledger(str(half_landed_data))
    write_ledger(str(half_landed_data), ledger)  # as if the process had died before it could mark it
    for name in staged_names(half_landed_data):
        (half_landed_data / name).unlink()
    assert Committer(str(half_landed_data)).roll_forward()
    assert read_ledger(str(half_landed_data)).marks.keys() == marked.marks.keys()
    assert found(half_landed_data, "t") == [b"before", *ALL]


@pytest.mark.parametrize("command", [["verify"], ["repair"], ["retain"], ["ls", "-d"], ["topics", "list", "-d"]])
def test_commands_pass_over_the_files_of_the_sink(
    half_landed_data: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert staged_names(half_landed_data)
    assert run([*command, str(half_landed_data)]) == 0
    said = capsys.readouterr()
    assert "kafkalog-stage" not in said.out + said.err
    assert "ledger" not in said.out + said.err
