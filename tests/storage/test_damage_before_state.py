"""State derived from batches (producers, metadata, surveys) with damage between them: reported, never silent."""

import logging
from pathlib import Path

import pytest

from kafkalog.errors import CorruptRecord
from kafkalog.manager.cluster_metadata import METADATA_DIRECTORY, read_cluster_metadata
from kafkalog.storage.file_slice import FileSlice
from kafkalog.storage.readonly.view import LogView
from kafkalog.tools.handover.survey import survey
from kafkalog.tools.seen_producers import seen_producers
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS
from tests.builder import R, batch
from tests.manager.metadata_files import metadata_value
from tests.mock_time import MockClock
from tests.storage.damage_cases import DAMAGE, damage
from tests.storage.logs import NOW, log
from tests.transactional import made

SETTINGS = {"internal_segment_bytes": 700, "segment_index_bytes": 1 << 16}
BATCHES = 25


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log in which each batch has a producer of its own, without snapshots."""
    a_log = log(tmp_path, **SETTINGS)
    for number in range(BATCHES):
        rows = [R(b"v", b"k", timestamp=NOW)]
        a_log.append_as_leader(bytearray(batch(rows, producer_id=number, producer_epoch=0, base_sequence=0)))
    a_log.close()
    for path in (tmp_path / "topic-0").glob("*.snapshot"):
        path.unlink()
    return tmp_path / "topic-0"


def second_segment(directory: Path) -> tuple[Path, int]:
    """The second `.log` file, and its base offset."""
    path = sorted(directory.glob("*.log"))[1]
    return path, int(path.stem)


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("number", [0, 3])
def test_producers_behind_damage_are_known_and_the_damage_is_logged(
    tmp_path: Path, directory: Path, number: int, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    path, base = second_segment(directory)
    position = damage(path, number, kind)
    with caplog.at_level(logging.WARNING):
        a_log = log(tmp_path, **SETTINGS)
    assert {one.producer_id for one in a_log.producers} == {*range(BATCHES)} - {base + number}
    a_log.close()
    assert len(caplog.messages) == 1 and f"{path}, offset {base + number}, position {position}" in caplog.text


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_transaction_that_ends_behind_damage_is_over_and_the_damage_is_a_problem(tmp_path: Path, kind: str) -> None:
    transactions = made([("data", 5, 2), ("plain", 0, 1), ("abort", 5, 0), ("plain", 0, 1), ("data", 6, 1)])
    directory = tmp_path / "t-0"
    transactions.write(directory)
    for path in directory.glob("*.snapshot"):
        path.unlink()
    path = directory / f"{0:020d}.log"
    damage(path, 1, kind)
    with LogView(directory, clock=MockClock()) as view:
        assert (view.last_stable_offset, view.log_end_offset) == (5, 6)
        assert any(isinstance(problem, CorruptRecord) and problem.path == str(path) for problem in view.problems)


@pytest.mark.parametrize("kind", DAMAGE)
def test_who_only_looks_gets_the_damage_as_an_error(directory: Path, kind: str) -> None:
    with LogView(directory) as view:
        assert {one.producer_id for one in seen_producers(view, NOW, OS)} == {*range(BATCHES)}
    assert survey(TopicPartition("topic", 0), str(directory), OS).largest_producer_id == BATCHES - 1
    path, _ = second_segment(directory)
    position = damage(path, 3, kind)
    with LogView(directory) as view, pytest.raises(CorruptRecord) as caught:
        seen_producers(view, NOW, OS)
    assert (caught.value.path, caught.value.position) == (str(path), position)
    with pytest.raises(CorruptRecord) as caught:
        survey(TopicPartition("topic", 0), str(directory), OS)
    assert (caught.value.path, caught.value.position) == (str(path), position)


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("which", [0, -1])
def test_damaged_metadata_is_an_error(tmp_path: Path, which: int, kind: str) -> None:
    made = log(tmp_path, **SETTINGS)
    for _ in range(BATCHES):
        value = metadata_value("RemoveTopicRecord", topicId="Er3uhoIpQAyT3-6BGQRyUA")
        made.append_as_leader(bytearray(batch([R(value, timestamp=NOW)])))
    made.close()
    (tmp_path / "topic-0").rename(tmp_path / METADATA_DIRECTORY)
    assert read_cluster_metadata(tmp_path) is not None
    path = sorted((tmp_path / METADATA_DIRECTORY).glob("*.log"))[which]
    position = damage(path, 1, kind)
    with pytest.raises(CorruptRecord) as caught:
        read_cluster_metadata(tmp_path)
    assert (caught.value.path, caught.value.position) == (str(path), position)


@pytest.mark.parametrize("cut", [1, 30, 60])
def test_a_slice_that_is_whole_ends_with_a_batch(directory: Path, cut: int) -> None:
    path, _ = second_segment(directory)
    with OS.open_file(path, "r") as file:
        whole = FileSlice(file, 0, file.size())
        rows = [len(table) for table in whole.tables(whole=True)]
        torn = FileSlice(file, 0, file.size() - cut)
        assert sum(len(table) for table in torn.tables()) == sum(rows) - 1
        with pytest.raises(CorruptRecord, match="an incomplete batch") as caught:
            list(torn.tables(whole=True))
        last = list(whole.batches())[-1]
        assert (caught.value.path, caught.value.position) == (str(path), last.position)
