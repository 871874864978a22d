"""Checkpoint files (format.md §8): what is written, what is tolerated, what is malformed."""

import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.errors import CorruptCheckpoint, IllegalArgument, StorageError
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import OffsetCheckpoint, whole_number
from tests.faults import FaultFS, each_failure

A, B = TopicPartition("a.b-c", 0), TopicPartition("b", 12)


def make_checkpoint(tmp_path: Path, content: bytes | None = None) -> OffsetCheckpoint:
    path = tmp_path / "recovery-point-offset-checkpoint"
    if content is not None:
        path.write_bytes(content)
    return OffsetCheckpoint(path)


def test_write_then_read_gives_the_same_and_replaces_all(tmp_path: Path) -> None:
    """CKPT-1."""
    checkpoint = make_checkpoint(tmp_path)
    checkpoint.write({B: 7, A: 2**63 - 1})
    assert Path(checkpoint.path).read_bytes() == b"0\n2\na.b-c 0 9223372036854775807\nb 12 7\n"
    assert OffsetCheckpoint(checkpoint.path).read() == {A: 2**63 - 1, B: 7}
    checkpoint.write({A: 0})
    assert checkpoint.read() == {A: 0}


def test_an_empty_list(tmp_path: Path) -> None:
    """CKPT-1: two zero lines."""
    checkpoint = make_checkpoint(tmp_path)
    checkpoint.write({})
    assert Path(checkpoint.path).read_bytes() == b"0\n0\n"
    assert checkpoint.read() == {}


def test_missing_and_empty_files_read_as_nothing(tmp_path: Path) -> None:
    """CKPT-2."""
    checkpoint = make_checkpoint(tmp_path)
    assert checkpoint.read() == {}
    assert not Path(checkpoint.path).exists()
    checkpoint.create_if_missing()
    assert Path(checkpoint.path).read_bytes() == b""
    assert checkpoint.read() == {}
    checkpoint.write({A: 1})
    checkpoint.create_if_missing()
    assert checkpoint.read() == {A: 1}


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"1\n0\n", 1),
        (b"x\n0\n", 1),
        (b"\n", 1),
        (b"0\nx\n", 2),
        (b"0\n1.5\n", 2),
        (b"0\n-1\n", 2),
        (b"0\n2\na 0 1\n", 3),
        (b"0\n1\na 0 1\nb 0 1\n", 4),
        (b"0\n1\na 0 1\n\n", 4),
        (b"0\n0\n\n", 3),
        (b"0\n1\na 0\n", 3),
        (b"0\n1\na 0 1 2\n", 3),
        (b"0\n2\na 0 1\n\n", 4),
        (b"0\n1\na zero 1\n", 3),
        (b"0\n1\na 0 ten\n", 3),
        (b"0\n1\na 0 9223372036854775808\n", 3),
        ("0\n1\na 0 ٣\n".encode(), 3),
        (b"0\n1\na 0 1_0\n", 3),
        (b"0\n1\na\xff 0 1\n", 3),
        (b"\0" * 64, 1),
        (b"0\n1\na 2147483648 1\n", 3),
    ],
)
def test_malformed_files_name_file_and_line(tmp_path: Path, content: bytes, line: int) -> None:
    """CKPT-3."""
    checkpoint = make_checkpoint(tmp_path, content)
    with pytest.raises(CorruptCheckpoint, match=f"line {line}") as caught:
        checkpoint.read()
    assert caught.value.path == checkpoint.path
    assert caught.value.hint


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"0\n", {}),
        (b"0", {}),
        (b"0\n1\na 0 1", {TopicPartition("a", 0): 1}),
        (b"0\r\n1\r\na 0 1\r\n", {TopicPartition("a", 0): 1}),
        (b"0\r1\ra 0 1\r", {TopicPartition("a", 0): 1}),
        (b"0\n1\na  0   1\n", {TopicPartition("a", 0): 1}),
        (b"0\n2\na 0 1\na 0 2\n", {TopicPartition("a", 0): 2}),
    ],
)
def test_tolerated(tmp_path: Path, content: bytes, expected: dict[TopicPartition, int]) -> None:
    """CKPT-3: version line alone, no final newline, CRLF, CR alone, double spaces, a repeated key (last wins)."""
    assert make_checkpoint(tmp_path, content).read() == expected


def test_a_failing_write_keeps_the_old_content(tmp_path: Path) -> None:
    """CKPT-4, with a full disk at each call in turn."""
    for nth in each_failure():
        fs = FaultFS()
        OffsetCheckpoint(tmp_path / "c").write({A: 1})
        checkpoint = OffsetCheckpoint(tmp_path / "c", fs=fs)
        rule = fs.fail(nth=nth, times=1)
        try:
            checkpoint.write({A: 2})
        except StorageError as error:
            assert (error.errno, error.path) == (errno.ENOSPC, checkpoint.path)
            assert checkpoint.read() in ({A: 1}, {A: 2})
        if not rule.fired:
            assert checkpoint.read() == {A: 2}
            break


def test_read_failures_are_storage_errors(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    with pytest.raises(StorageError) as caught:
        OffsetCheckpoint(tmp_path / "c").read()
    assert caught.value.errno == errno.EISDIR


def test_negative_offsets_are_not_written(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path, b"0\n1\na 0 1\n")
    with pytest.raises(IllegalArgument):
        checkpoint.write({A: -1})
    assert checkpoint.read() == {TopicPartition("a", 0): 1}


@given(st.binary(max_size=60))
def test_any_bytes_give_offsets_or_a_typed_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    checkpoint = make_checkpoint(tmp_path_factory.mktemp("c"), content)
    try:
        read = checkpoint.read()
    except CorruptCheckpoint as error:
        assert "line" in str(error)
    else:
        assert all(isinstance(key, TopicPartition) for key in read)


@pytest.mark.parametrize("text", ["", "+", "-", "1.0", " 1", "1 ", "0x1", "1_0", "٣", "9" * 41, "-9223372036854775809"])
def test_whole_number_refuses(text: str) -> None:
    with pytest.raises(ValueError):
        whole_number(text)


def test_whole_number_takes() -> None:
    assert [whole_number(text) for text in ("0", "+5", "-3", "007")] == [0, 5, -3, 7]
