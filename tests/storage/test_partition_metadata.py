"""partition.metadata: the topic id of a partition directory."""

import errno
import os
from pathlib import Path

import pytest

from kafkalog.errors import CorruptCheckpoint, IllegalArgument, InconsistentTopicId, StorageError
from kafkalog.storage.partition_metadata import (
    check_topic_id,
    new_topic_id,
    read_partition_metadata,
    write_partition_metadata,
)
from kafkalog.util.fileio import OS
from tests.faults import FaultFS, each_failure

ID = "AAAAAAAAAAAAAAAAAAAACg"


def test_written_then_read(tmp_path: Path) -> None:
    """CKPT-8: two lines, the second without a newline."""
    assert read_partition_metadata(OS, tmp_path) is None
    write_partition_metadata(OS, tmp_path, ID)
    assert (tmp_path / "partition.metadata").read_bytes() == b"version: 0\ntopic_id: " + ID.encode()
    assert read_partition_metadata(OS, tmp_path) == ID
    assert os.listdir(tmp_path) == ["partition.metadata"]


def test_the_same_id_is_not_written_again(tmp_path: Path) -> None:
    write_partition_metadata(OS, tmp_path, ID)
    fs = FaultFS()
    write_partition_metadata(fs, tmp_path, ID)
    assert fs.named("pwrite", "rename") == []


def test_another_id_is_refused(tmp_path: Path) -> None:
    """CKPT-8."""
    write_partition_metadata(OS, tmp_path, ID)
    with pytest.raises(InconsistentTopicId) as caught:
        write_partition_metadata(OS, tmp_path, new_topic_id())
    assert caught.value.path == str(tmp_path / "partition.metadata")
    assert read_partition_metadata(OS, tmp_path) == ID


def test_bits_that_an_id_has_too_many_do_not_count(tmp_path: Path) -> None:
    """As in the reference: the last of 22 characters has two bits of the id."""
    (tmp_path / "partition.metadata").write_text(f"version: 0\ntopic_id: {ID[:-1]}h")
    assert read_partition_metadata(OS, tmp_path) == ID
    write_partition_metadata(OS, tmp_path, ID[:-1] + "h")


@pytest.mark.parametrize(
    "content",
    [f"version: 1\ntopic_id: {ID}", f"version: 0\ntopic_id: {ID}\n", f"version: 7\ntopic_id: {ID}\nmore: x\n"],
)
def test_accepted(tmp_path: Path, content: str) -> None:
    """CKPT-8: any version from 0 on; lines after the second are ignored."""
    (tmp_path / "partition.metadata").write_text(content)
    assert read_partition_metadata(OS, tmp_path) == ID


@pytest.mark.parametrize(
    "content",
    [
        "",
        "version: 0",
        f"topic_id: {ID}\nversion: 0",
        f"version: -1\ntopic_id: {ID}",
        f"version: x\ntopic_id: {ID}",
        f"version 0\ntopic_id: {ID}",
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        "version: 0\ntopic_id: short",
        "version: 0\ntopic_id: " + ID + "AA",
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAA+Cg",
        "version: 0\ntopic_id: ÄAAAAAAAAAAAAAAAAAAACg",
        "\0" * 50,
    ],
)
def test_malformed(tmp_path: Path, content: str) -> None:
    """CKPT-8: and it is not written over."""
    path = tmp_path / "partition.metadata"
    path.write_text(content, encoding="utf-8")
    for call in (
        lambda: read_partition_metadata(OS, tmp_path),
        lambda: write_partition_metadata(OS, tmp_path, ID),
    ):
        with pytest.raises(CorruptCheckpoint, match="malformed") as caught:
            call()
        assert caught.value.path == str(path)
        assert caught.value.hint
    assert path.read_text(encoding="utf-8") == content


def test_a_directory_that_is_gone_is_passed_over(tmp_path: Path) -> None:
    """CKPT-8: the topic was deleted meanwhile."""
    write_partition_metadata(OS, tmp_path / "gone", ID)
    assert os.listdir(tmp_path) == []


def test_a_full_disk_leaves_none_or_the_whole(tmp_path: Path) -> None:
    for nth in each_failure():
        (tmp_path / "partition.metadata").unlink(missing_ok=True)
        fs = FaultFS()
        rule = fs.fail(nth=nth, times=1, partial=3)
        try:
            write_partition_metadata(fs, tmp_path, ID)
        except StorageError as error:
            assert error.errno == errno.ENOSPC
            assert read_partition_metadata(OS, tmp_path) in (None, ID)
        if not rule.fired:
            break


def test_ids() -> None:
    made = {new_topic_id() for _ in range(500)}
    assert len(made) == 500
    assert all(check_topic_id(one) == one and not one.startswith("-") for one in made)
    for bad in ("", "A" * 22, "A" * 21 + "=", "A" * 23):
        with pytest.raises(IllegalArgument):
            check_topic_id(bad)
