"""The file that says which producer ids were given."""

from pathlib import Path

import pytest

from kafkalog.errors import CorruptCheckpoint, StorageError
from kafkalog.manager.producer_ids import PRODUCER_IDS_FILE, read_next_producer_id, write_next_producer_id
from tests.faults import FaultFS


def test_what_was_written_is_read(tmp_path: Path) -> None:
    assert read_next_producer_id(tmp_path) == 0
    write_next_producer_id(tmp_path, 5000)
    write_next_producer_id(tmp_path, 6000)
    assert read_next_producer_id(tmp_path) == 6000


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"version": 1}', '{"version": 2, "next_producer_id": 5}', '{"version": 1, "next_producer_id": -1}',
     '{"version": true, "next_producer_id": 1}', '{"version": 1, "next_producer_id": 1.5}', "[" * 4000,
     '{"version": 1, "next_producer_id": 9223372036854775808}'],
)  # fmt: skip
def test_damage_is_never_taken_for_a_number(tmp_path: Path, content: str) -> None:
    (tmp_path / PRODUCER_IDS_FILE).write_text(content)
    with pytest.raises(CorruptCheckpoint) as caught:
        read_next_producer_id(tmp_path)
    assert caught.value.path == str(tmp_path / PRODUCER_IDS_FILE)


def test_a_failing_disk_leaves_the_number_before(tmp_path: Path) -> None:
    write_next_producer_id(tmp_path, 5000)
    fs = FaultFS()
    fs.fail("rename", times=1)
    with pytest.raises(StorageError):
        write_next_producer_id(tmp_path, 6000, fs=fs)
    assert read_next_producer_id(tmp_path) == 5000
