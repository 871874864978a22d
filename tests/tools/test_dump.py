"""The dump tool over files: what it prints, what it refuses, and that it changes nothing (DUMP-1 to DUMP-14)."""

import io
import os
import struct
from collections.abc import Iterable
from pathlib import Path

import pytest

from kafkalog.errors import (
    CorruptIndex,
    CorruptRecord,
    IllegalArgument,
    InvalidRecord,
    KafkalogError,
    StorageError,
    UnsupportedCompression,
    UnsupportedForFormat,
)
from kafkalog.tools.dump import DumpOptions, dump_files, files_of
from kafkalog.util.fileio import OS, File, FileSystem
from tests import reference_text
from tests.builder import R, batch, frame, message_v1, varint

DEEP = DumpOptions(deep_iteration=True, print_data_log=True)
ROWS = [R(b"one", b"k1", 1000, (("h", None),)), R(None, None, 1001), R(b"", b"", 1002)]


def dumped(*paths: Path, options: DumpOptions | None = None, fs: FileSystem = OS) -> tuple[str, str]:
    """Text and complaints."""
    out, err = io.BytesIO(), io.BytesIO()
    dump_files(map(str, paths), out, options, err=err, fs=fs)
    return out.getvalue().decode(), err.getvalue().decode()


def stopped(path: Path, kind: type[KafkalogError], options: DumpOptions = DEEP) -> tuple[str, KafkalogError]:
    """The text before the error, and the error."""
    out = io.BytesIO()
    with pytest.raises(kind) as caught:
        dump_files([str(path)], out, options, err=io.BytesIO())
    assert caught.value.path == str(path)
    return out.getvalue().decode(), caught.value


def log_file(directory: Path, parts: Iterable[bytes], base: int = 0) -> Path:
    path = directory / f"{base:020d}.log"
    path.write_bytes(b"".join(parts))
    return path


def header(path: Path, base: int = 0) -> str:
    return f"Dumping {path}\nLog starting offset: {base}\n"


def test_a_log_shallow_and_deep(tmp_path: Path) -> None:
    first, second = batch(ROWS, base_offset=40), batch(ROWS, base_offset=43, leader_epoch=2)
    path = log_file(tmp_path, [first, second], 40)
    lines = reference_text.batch_line(first, 0) + reference_text.batch_line(second, len(first))
    assert dumped(path) == (header(path, 40) + lines, "")
    text, complaints = dumped(path, options=DEEP)
    deep = reference_text.deep_text(ROWS, first, 0) + reference_text.deep_text(ROWS, second, len(first))
    assert text == header(path, 40) + deep
    assert complaints == f"Non-consecutive offsets in {path}\n  -1 is followed by 40\n"


def test_the_options_of_record_lines(tmp_path: Path) -> None:
    made = batch(ROWS)
    path = log_file(tmp_path, [made])
    metadata = dumped(path, options=DumpOptions(deep_iteration=True))[0]
    assert metadata == header(path) + reference_text.deep_text(ROWS, made, 0, data=False)
    assert dumped(path, options=DumpOptions(print_data_log=True)) == dumped(path, options=DEEP)
    bare = dumped(path, options=DumpOptions(print_data_log=True, skip_record_metadata=True))[0]
    assert bare == header(path) + reference_text.batch_line(made, 0) + "| key: k1 payload: one\n\n| key:  payload: \n"
    assert dumped(path, options=DumpOptions(skip_record_metadata=True)) == dumped(path)


def test_several_files_and_their_complaints_after_all_text(tmp_path: Path) -> None:
    first = log_file(tmp_path, [batch(ROWS)])
    second = log_file(tmp_path, [batch(ROWS, base_offset=7)], 5)
    text, complaints = dumped(first, second, options=DEEP)
    assert text.count("Dumping ") == 2
    assert complaints == f"Non-consecutive offsets in {second}\n  -1 is followed by 7\n"


def test_paths_are_printed_as_given_and_complained_about_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = log_file(tmp_path, [batch(ROWS, base_offset=3)])
    monkeypatch.chdir(tmp_path.parent)
    relative = Path(tmp_path.name) / path.name
    out, err = io.BytesIO(), io.BytesIO()
    dump_files([f"{tmp_path.name}//{path.name}/"], out, DEEP, err=err)
    assert out.getvalue().decode().startswith(f"Dumping {relative}\n")
    assert err.getvalue().decode().startswith(f"Non-consecutive offsets in {path}\n")


def test_trailing_bytes_are_counted(tmp_path: Path) -> None:
    """DUMP-10."""
    made = batch(ROWS)
    for left in (1, 16, 17, 60, len(made) - 1):
        path = log_file(tmp_path, [made, made[:left]])
        end = f"Found {left} invalid bytes at the end of {path.name}\n"
        assert dumped(path)[0] == header(path) + reference_text.batch_line(made, 0) + end
        assert dumped(path, options=DEEP)[0] == header(path) + reference_text.deep_text(ROWS, made, 0) + end
    path = log_file(tmp_path, [])
    assert dumped(path) == (header(path), "")


def test_max_bytes_ends_with_the_last_whole_batch_before_it(tmp_path: Path) -> None:
    """DUMP-9: no word about the bytes after it."""
    parts = [batch(ROWS, base_offset=3 * i) for i in range(4)]
    size = len(parts[0])
    path = log_file(tmp_path, parts)
    for limit, count in ((0, 0), (1, 0), (size, 1), (size * 3 - 1, 2), (size * 9, 4)):
        text = dumped(path, options=DumpOptions(max_bytes=limit))[0]
        assert text == header(path) + "".join(reference_text.batch_line(parts[i], size * i) for i in range(count))
    text, error = stopped(path, IllegalArgument, DumpOptions(max_bytes=-1))
    assert (text, "--max-bytes" in str(error)) == (header(path), True)


def test_batches_larger_than_a_chunk(tmp_path: Path) -> None:
    rows = [R(b"v" * 3_000_000, b"k"), R("é".encode() * 700_000, None)]
    made = batch([R()]) + batch_fast(rows, 1)
    path = log_file(tmp_path, [made])
    text = dumped(path, options=DEEP)[0]
    assert text.endswith(" payload: " + "é" * 700_000 + "\n")
    assert len(text.encode()) > 4_400_000
    assert text.count(" isvalid: true\n") == 2


def batch_fast(rows: list[R], base: int) -> bytes:
    """A large batch: the plain checksum of the builder would take too long."""
    from kafkalog._core.crc import crc32c

    records = b""
    for delta, r in enumerate(rows):
        key = varint(-1) if r.key is None else varint(len(r.key)) + r.key
        body = b"\0\0" + varint(delta) + key + varint(len(r.value or b"")) + (r.value or b"") + b"\0"
        records += varint(len(body)) + body
    checked = struct.pack(">hiqqqhii", 0, len(rows) - 1, 0, 0, -1, -1, -1, len(rows)) + records
    return struct.pack(">qiibI", base, len(checked) + 9, 0, 2, crc32c(checked)) + checked


def test_damage_is_told_after_what_lies_before_it(tmp_path: Path) -> None:
    made = batch(ROWS)
    before = header(tmp_path / f"{0:020d}.log") + reference_text.deep_text(ROWS, made, 0)

    text, error = stopped(log_file(tmp_path, [made, bytes(4096)]), CorruptRecord)
    assert (text, error.position) == (before, len(made))
    assert "record size 0 " in str(error) and "preallocated" in str(error)

    broken = frame(made[61:], count=9, last_delta=8, base_offset=3, base_timestamp=1000)
    text, error = stopped(log_file(tmp_path, [made, broken]), InvalidRecord)
    assert text.startswith(before) and text.count("| offset: ") == 6
    assert (error.offset, error.position) == (3, len(made) + len(broken))
    assert "record 3 of the batch" in str(error)

    short = struct.pack(">qiib", 3, 40, 0, 2) + bytes(100)
    text, error = stopped(log_file(tmp_path, [made, short]), CorruptRecord)
    assert (text, error.position) == (before, len(made))

    text, error = stopped(log_file(tmp_path, [frame(b"", count=0, last_delta=0, attributes=6)]), UnsupportedCompression)
    assert "unknown compression id 6" in str(error)


@pytest.mark.parametrize(
    ("made", "kind", "word"),
    [
        (frame(b"xx", count=1, last_delta=0, base_offset=5, attributes=2), UnsupportedCompression, "snappy"),
        (message_v1(5, b"v"), UnsupportedForFormat, "v1"),
        (batch([R(b"x" * 8, b"\0\0\0\x02")], base_offset=5, attributes=32), UnsupportedForFormat, "control records"),
    ],
)
def test_records_that_cannot_be_read_are_refused_by_name(
    tmp_path: Path, made: bytes, kind: type[KafkalogError], word: str
) -> None:
    """Their batches are listed all the same (DUMP-14)."""
    path = log_file(tmp_path, [made])
    text, error = stopped(path, kind)
    assert word in str(error)
    assert (error.offset, text) == (5, dumped(path)[0])


def test_indexes(tmp_path: Path) -> None:
    """DUMP-5: the listing ends where the unused tail begins; many entries take many chunks."""
    entries = 40_000
    path = tmp_path / f"{100:020d}.index"
    path.write_bytes(b"".join(struct.pack(">ii", i + 1, i * 9) for i in range(entries)) + bytes(800))
    expected = f"Dumping {path}\n" + "".join(f"offset: {101 + i} position: {i * 9}\n" for i in range(entries))
    assert dumped(path) == (expected, "")
    path = tmp_path / f"{100:020d}.timeindex"
    path.write_bytes(b"".join(struct.pack(">qi", 5000 + i, i + 1) for i in range(entries)) + bytes(1200))
    expected = f"Dumping {path}\n" + "".join(f"timestamp: {5000 + i} offset: {101 + i}\n" for i in range(entries))
    assert dumped(path) == (expected, "")


@pytest.mark.parametrize("check", [False, True])
def test_empty_indexes(tmp_path: Path, check: bool) -> None:
    """DUMP-7 and A5: an offset index without entries is called empty in every mode, a time index never is."""
    options = DumpOptions(index_sanity_check=check)
    index, times = tmp_path / f"{0:020d}.index", tmp_path / f"{0:020d}.timeindex"
    index.write_bytes(b"")
    times.write_bytes(b"")
    assert dumped(index, options=options)[0] == f"Dumping {index}\n{index} is empty.\n"
    passed = f"{times} passed sanity check.\n" if check else ""
    assert dumped(times, options=options)[0] == f"Dumping {times}\n{passed}"


def test_sanity_checks(tmp_path: Path) -> None:
    """A7."""
    check = DumpOptions(index_sanity_check=True)
    index, times = tmp_path / f"{9:020d}.index", tmp_path / f"{9:020d}.timeindex"
    for data in (struct.pack(">ii", 4, 7), bytes(80), struct.pack(">ii", 4, 7) + bytes(80)):
        index.write_bytes(data)
        assert dumped(index, options=check)[0] == f"Dumping {index}\n{index} passed sanity check.\n"
    for data in (struct.pack(">qi", 4, 7), bytes(120), struct.pack(">qiqi", 4, 7, 4, 9)):
        times.write_bytes(data)
        assert dumped(times, options=check)[0] == f"Dumping {times}\n{times} passed sanity check.\n"
    bad = [
        (index, struct.pack(">ii", -4, 7), "last offset is 5 which is less than the base offset 9"),
        (index, bytes(13), "found 13 bytes which is neither positive nor a multiple of 8"),
        (times, struct.pack(">qi", 4, 7) + bytes(12), "last timestamp is 0 which is less than the first timestamp 4"),
        (times, struct.pack(">qi", 4, -7), "last offset is 2 which is less than the first offset 9"),
        (times, bytes(11), "found 11 bytes which is neither positive nor a multiple of 12"),
    ]
    for path, data, words in bad:
        path.write_bytes(data)
        text, error = stopped(path, CorruptIndex, check)
        assert (text, words in str(error)) == (f"Dumping {path}\n", True)


def test_other_files(tmp_path: Path) -> None:
    """DUMP-13: a suffix that means nothing is a line on stderr; what is not printed yet is refused by name."""
    path = tmp_path / "leader-epoch-checkpoint"
    assert dumped(path) == (f"Dumping {path}\n", f"Ignoring unknown file {path}\n")
    for name in ("00000000000000000000.snapshot", "00000000000000000000.txnindex"):
        assert name[20:] in str(stopped(tmp_path / name, UnsupportedForFormat)[1])
    index = tmp_path / f"{0:020d}.index"
    index.write_bytes(bytes(8))
    assert "--verify-index-only" in str(stopped(index, UnsupportedForFormat, DumpOptions(verify_index_only=True))[1])


def test_snapshots_of_the_metadata_log_say_what_they_are(tmp_path: Path) -> None:
    made = batch(ROWS)
    for name, line in (
        ("bootstrap.checkpoint", "KRaft bootstrap snapshot"),
        ("00000000000000000423-0000000007.checkpoint", "Snapshot end offset: 423, epoch: 7"),
    ):
        path = tmp_path / name
        path.write_bytes(made)
        assert dumped(path)[0] == f"Dumping {path}\n{line}\n{reference_text.batch_line(made, 0)}"
    stopped(tmp_path / "x.checkpoint", IllegalArgument)


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    assert stopped(path, StorageError)[0] == header(path)
    path.mkdir()
    assert stopped(path, StorageError)[0] == header(path)
    stopped(tmp_path / "no-offset.log", IllegalArgument)
    assert stopped(tmp_path / f"{0:020d}.timeindex", StorageError)[0].startswith("Dumping ")


class ReadOnly(FileSystem):
    """Refuses to open a file for anything but reading."""

    def open_file(self, path: str | os.PathLike[str], mode: str) -> File:
        assert mode == "r"
        return super().open_file(path, mode)


def test_nothing_is_changed(tmp_path: Path) -> None:
    """DUMP-12."""
    log = log_file(tmp_path, [batch(ROWS), b"torn"])
    index, times = tmp_path / f"{0:020d}.index", tmp_path / f"{0:020d}.timeindex"
    index.write_bytes(bytes(80))
    times.write_bytes(bytes(120))
    before = [(path.stat().st_size, path.stat().st_mtime_ns) for path in (log, index, times)]
    dumped(log, index, times, options=DEEP, fs=ReadOnly())
    assert [(path.stat().st_size, path.stat().st_mtime_ns) for path in (log, index, times)] == before


def test_files_of_a_partition_directory(tmp_path: Path) -> None:
    for name in ("b.log", "a.log", "a.index", "a.timeindex", "a.snapshot", "a.txnindex", "a.log.deleted", "x"):
        (tmp_path / name).touch()
    dumped_names, left_out = files_of(str(tmp_path))
    assert [os.path.basename(p) for p in dumped_names] == ["a.index", "a.log", "a.timeindex", "b.log"]
    assert [os.path.basename(p) for p in left_out] == ["a.snapshot", "a.txnindex"]
    with pytest.raises(StorageError, match="cannot list"):
        files_of(str(tmp_path / "absent"))
