"""The dump tool over files: what it prints, what it refuses, and that it changes nothing (DUMP-1 to DUMP-14)."""

import io
import os
import struct
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import (
    CorruptRecord,
    FormatError,
    IllegalArgument,
    InvalidRecord,
    KafkalogError,
    StorageError,
    UnsupportedCompression,
)
from kafkalog.storage.producer_snapshot import ProducerEntry
from kafkalog.tools.dump import complaints as dump_complaints
from kafkalog.tools.dump.files import DumpOptions, dump_files, files_of
from kafkalog.tools.dump.record_readers import cluster_metadata_reader, decoder_reader
from kafkalog.util.fileio import OS, File, FileSystem
from tests import reference_text
from tests.builder import R, batch, frame, message_v1, varint
from tests.faults import FaultFS
from tests.storage.test_producer_snapshot import snapshot

DEEP = DumpOptions(deep_iteration=True, print_data_log=True)
ROWS = [R(b"one", b"k1", 1000, (("h", None),)), R(None, None, 1001), R(b"", b"", 1002)]


def run_dump(*paths: Path, options: DumpOptions | None = None, fs: FileSystem = OS) -> tuple[str, str]:
    """Text and complaints."""
    out, err = io.BytesIO(), io.BytesIO()
    dump_files(map(str, paths), out, options, err=err, fs=fs)
    return out.getvalue().decode(), err.getvalue().decode()


def dump_until_error(path: Path, kind: type[KafkalogError], options: DumpOptions = DEEP) -> tuple[str, KafkalogError]:
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
    assert run_dump(path) == (header(path, 40) + lines, "")
    text, complaints = run_dump(path, options=DEEP)
    deep = reference_text.deep_text(ROWS, first, 0) + reference_text.deep_text(ROWS, second, len(first))
    assert text == header(path, 40) + deep
    assert complaints == f"Non-consecutive offsets in {path}\n  -1 is followed by 40\n"


def test_the_options_of_record_lines(tmp_path: Path) -> None:
    made = batch(ROWS)
    path = log_file(tmp_path, [made])
    metadata = run_dump(path, options=DumpOptions(deep_iteration=True))[0]
    assert metadata == header(path) + reference_text.deep_text(ROWS, made, 0, data=False)
    assert run_dump(path, options=DumpOptions(print_data_log=True)) == run_dump(path, options=DEEP)
    bare = run_dump(path, options=DumpOptions(print_data_log=True, skip_record_metadata=True))[0]
    assert bare == header(path) + reference_text.batch_line(made, 0) + "| key: k1 payload: one\n\n| key:  payload: \n"
    assert run_dump(path, options=DumpOptions(skip_record_metadata=True)) == run_dump(path)


def test_several_files_and_their_complaints_after_all_text(tmp_path: Path) -> None:
    first = log_file(tmp_path, [batch(ROWS)])
    second = log_file(tmp_path, [batch(ROWS, base_offset=7)], 5)
    text, complaints = run_dump(first, second, options=DEEP)
    assert text.count("Dumping ") == 2
    assert complaints == f"Non-consecutive offsets in {second}\n  -1 is followed by 7\n"


def test_complaints_come_by_file_as_from_a_java_hash_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By bucket, of which there are more the more files there are; in one bucket the last name comes first."""
    monkeypatch.setattr(dump_complaints, "_absolute", lambda path: path)
    few = ["b", "a", "r", "Q", "\U0001f389"]  # Q and a share a bucket of 16, so do b and r
    many = [chr(code) for code in (97, 65, *range(110, 121))]
    twelve, thirteen = [*"abcdefghijkp"], [*"abcdefghijklp"]  # of 16 buckets p has the first, of 32 one behind them
    for names, expected in (
        (few, ["Q", "a", "r", "b", "\U0001f389"]), (many, [*"Aanopqrstuvwx"]), (twelve, [*"pabcdefghijk"]),
        (thirteen, thirteen),
    ):  # fmt: skip
        complaints, err = dump_complaints.Complaints(), io.BytesIO()
        for name in names:
            complaints.non_consecutive[name] = [(-1, 5)]
        complaints.write(err)
        printed = [line.split()[-1] for line in err.getvalue().decode().splitlines()[::2]]
        assert printed == expected


def test_offsets_that_go_back_are_told_by_rising_offset(tmp_path: Path) -> None:
    """DUMP-11; of several with the same first offset the last one counts."""
    path = log_file(tmp_path, [batch([R()], base_offset=offset) for offset in (9, 3, 9, 20, 4, 9, -5)])
    pairs = ((-1, 9), (3, 9), (4, 9), (9, -5), (20, 4))
    printed = "".join(f"  {one} is followed by {other}\n" for one, other in pairs)
    assert run_dump(path, options=DEEP)[1] == f"Non-consecutive offsets in {path}\n{printed}"


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
        assert run_dump(path)[0] == header(path) + reference_text.batch_line(made, 0) + end
        assert run_dump(path, options=DEEP)[0] == header(path) + reference_text.deep_text(ROWS, made, 0) + end
    path = log_file(tmp_path, [])
    assert run_dump(path) == (header(path), "")


def test_seventeen_bytes_are_never_a_batch(tmp_path: Path) -> None:
    """The reference looks at a size only where something follows the format byte."""
    made = batch(ROWS)
    bad = struct.pack(">qiib", 3, -5, 0, 2)
    path = log_file(tmp_path, [made, bad])
    end = f"Found 17 invalid bytes at the end of {path.name}\n"
    assert run_dump(path)[0] == header(path) + reference_text.batch_line(made, 0) + end
    assert "record size -5 " in str(dump_until_error(log_file(tmp_path, [made, bad, b"x"]), CorruptRecord)[1])


def test_max_bytes_ends_with_the_last_whole_batch_before_it(tmp_path: Path) -> None:
    """DUMP-9: no word about the bytes after it."""
    parts = [batch(ROWS, base_offset=3 * i) for i in range(4)]
    size = len(parts[0])
    path = log_file(tmp_path, parts)
    for limit, count in ((0, 0), (1, 0), (size, 1), (size * 3 - 1, 2), (size * 9, 4)):
        text = run_dump(path, options=DumpOptions(max_bytes=limit))[0]
        assert text == header(path) + "".join(reference_text.batch_line(parts[i], size * i) for i in range(count))
    text, error = dump_until_error(path, IllegalArgument, DumpOptions(max_bytes=-1))
    assert (text, "--max-bytes" in str(error)) == (header(path), True)


def test_batches_larger_than_a_chunk(tmp_path: Path) -> None:
    rows = [R(b"v" * 3_000_000, b"k"), R("é".encode() * 700_000, None)]
    made = batch([R()]) + batch_fast(rows, 1)
    path = log_file(tmp_path, [made])
    text = run_dump(path, options=DEEP)[0]
    assert text.endswith(" payload: " + "é" * 700_000 + "\n")
    assert len(text.encode()) > 4_400_000
    assert text.count(" isvalid: true\n") == 2


def batch_fast(rows: list[R], base: int) -> bytes:
    """A large batch: the plain checksum of the builder would take too long."""
    from kafkalog._core.bytes.crc import crc32c

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

    text, error = dump_until_error(log_file(tmp_path, [made, bytes(4096)]), CorruptRecord)
    assert (text, error.position) == (before, len(made))
    assert "record size 0 " in str(error) and "preallocated" in str(error)

    broken = frame(made[61:], count=9, last_delta=8, base_offset=3, base_timestamp=1000)
    text, error = dump_until_error(log_file(tmp_path, [made, broken]), InvalidRecord)
    assert text.startswith(before) and text.count("| offset: ") == 6
    assert (error.offset, error.position) == (3, len(made) + len(broken))
    assert "record 3 of the batch" in str(error)

    short = struct.pack(">qiib", 3, 14, 0, 2) + bytes(9)
    text, error = dump_until_error(log_file(tmp_path, [made, short, made]), CorruptRecord)
    assert text.startswith(before) and text.count(" isvalid: false\n") == 1
    assert (error.position, "batch of 26 bytes" in str(error)) == (len(made), True)
    for cut in (short, short + made[:34]):
        text, error = dump_until_error(log_file(tmp_path, [made, cut]), CorruptRecord)
        assert (text, error.position) == (before, len(made))


def test_unknown_codecs_and_formats_end_a_line_early(tmp_path: Path) -> None:
    """The reference dies after it has printed the first half of the batch line."""
    path = log_file(tmp_path, [frame(b"", count=0, last_delta=0, attributes=6)])
    text, error = dump_until_error(path, UnsupportedCompression)
    assert text.startswith(header(path)) and text.endswith(" deleteHorizonMs: OptionalLong.empty")
    assert "unknown compression id 6" in str(error)
    made = message_v1(7, b"v")
    path = log_file(tmp_path, [made[:17] + b"\5" + made[18:]])
    assert dump_until_error(path, UnsupportedCompression, DumpOptions())[0] == header(path) + "offset: 7"
    path = log_file(tmp_path, [made[:16] + b"\xff" + made[17:]])
    text, error = dump_until_error(path, CorruptRecord, DumpOptions())
    assert (text, "unknown batch format -1" in str(error)) == (header(path) + "offset: 7", True)


@pytest.mark.parametrize(
    ("made", "kind", "word"),
    [
        (frame(b"xx", count=1, last_delta=0, base_offset=5, attributes=2), InvalidRecord, "snappy"),
        (frame(b"xx", count=1, last_delta=0, base_offset=5, attributes=4), InvalidRecord, "zstd"),
    ],
)
def test_records_that_cannot_be_decompressed_are_refused_by_name(
    tmp_path: Path, made: bytes, kind: type[KafkalogError], word: str
) -> None:
    """Their batches are listed all the same."""
    path = log_file(tmp_path, [made])
    text, error = dump_until_error(path, kind)
    assert word in str(error)
    assert (error.offset, text) == (5, run_dump(path)[0])


def test_other_files(tmp_path: Path) -> None:
    """DUMP-13: a suffix that means nothing is a line on stderr."""
    for name in ("leader-epoch-checkpoint", "00000000000000000000.log.deleted", "x."):
        path = tmp_path / name
        assert run_dump(path) == (f"Dumping {path}\n", f"Ignoring unknown file {path}\n")


def test_transaction_indexes(tmp_path: Path) -> None:
    """DUMP-8."""
    path = tmp_path / f"{0:020d}.txnindex"
    path.write_bytes(struct.pack(">hqqqq", 0, 9, 2, 3, 4) + b"partial")
    line = "version: 0 producerId: 9 firstOffset: 2 lastOffset: 3 lastStableOffset: 4\n"
    assert run_dump(path) == (f"Dumping {path}\n{line}", "")
    path.write_bytes(struct.pack(">hqqqq", 0, 9, 2, 3, 4) + struct.pack(">hqqqq", 256, 9, 2, 3, 4))
    assert dump_until_error(path, FormatError)[0] == f"Dumping {path}\n"


LAST = 2147483647
# last sequence, offset delta, first sequence
SEQUENCES = [(2, 0, 2), (2, 5, LAST - 2), (0, 1, LAST), (-1, 0, LAST), (5, -3, 8), (LAST, -2, -LAST)]


def test_producer_snapshots(tmp_path: Path) -> None:
    """DUMP-8, A9: sequences wrap; a producer without batch data has fewer fields; damage is a line on stderr."""
    path = tmp_path / f"{6:020d}.snapshot"
    entries = [ProducerEntry(9, 1, last, 3, delta, 1002, -1, 2) for last, delta, _ in SEQUENCES]
    path.write_bytes(snapshot(*entries, entries[0]._replace(last_offset=-1, current_txn_first_offset=-1)))
    start = "producerId: 9 producerEpoch: 1 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong"
    lines = [
        f"{start}[2] lastTimestamp: 1002 firstSequence: {first} lastSequence: {last} lastOffset: 3 "
        f"offsetDelta: {delta} timestamp: 1002"
        for last, delta, first in SEQUENCES
    ]
    text, complaints = run_dump(path)
    assert text.splitlines() == [f"Dumping {path}", *lines, f"{start}.empty lastTimestamp: 1002"]
    assert complaints == ""
    path.write_bytes(snapshot(*entries)[:-1])
    assert run_dump(path) == (f"Dumping {path}\n", "Snapshot failed schema validation: null\n")


def test_control_records(tmp_path: Path) -> None:
    """A3: KRaft's records say what they hold; one that is malformed ends the dump behind its header keys."""
    footer = R(b"\0\0\0", struct.pack(">hh", 0, 4))
    path = log_file(tmp_path, [batch([footer], attributes=32)])
    for options in (DEEP, DumpOptions(reader=cluster_metadata_reader)):
        assert run_dump(path, options=options)[0].endswith(' headerKeys: [] SnapshotFooter {"version":0}\n')
    made = batch([R(b"v"), R(b"v")])
    path = log_file(tmp_path, [made, batch([footer._replace(value=b"\0")], attributes=32, base_offset=2)])
    text, error = dump_until_error(path, InvalidRecord)
    assert text.endswith("keySize: 4 valueSize: 1 sequence: -1 headerKeys: []")
    assert (error.offset, error.position) == (2, len(made) + 61)
    path = log_file(tmp_path, [made, batch([R(b"v", b"k")], attributes=32, base_offset=2)])
    error = dump_until_error(path, InvalidRecord)[1]
    assert (error.offset, error.position) == (2, len(made) + 61) and "too short" in str(error)


def test_decoders(tmp_path: Path) -> None:
    """DUMP-4: a decoder brings keys and values with it; what one does not understand ends the dump there."""
    path = log_file(tmp_path, [batch([R(b"\0" * 7 + b"\5", b"\0\0\0\7"), R(None, None)])])
    options = DumpOptions(reader=lambda: decoder_reader("integer", "long"))
    lines = run_dump(path, options=options)[0].splitlines()
    assert lines[3].endswith("headerKeys: [] key: 7 payload: 5") and lines[4].endswith("headerKeys: []")
    bare = DumpOptions(reader=options.reader, skip_record_metadata=True)
    assert run_dump(path, options=bare)[0].splitlines()[3:] == ["| key: 7 payload: 5", ""]
    as_text = DumpOptions(reader=lambda: decoder_reader(None, "string"))
    assert run_dump(path, options=as_text) == run_dump(path, options=DEEP)
    for key, value, ending in (("integer", None, "key: 7 payload: \0\0\0\0\0\0\0\5"), (None, "long", "\7 payload: 5")):
        one = DumpOptions(reader=partial(decoder_reader, key, value))
        assert run_dump(path, options=one)[0].splitlines()[3].endswith(ending)
    path = log_file(tmp_path, [batch([R(b"short", b"\0\0\0\7")])])
    text, error = dump_until_error(path, InvalidRecord, options)
    assert text.endswith("headerKeys: []") and error.offset == 0
    assert "the value cannot be decoded: a number takes 8 bytes, and there are 5" in str(error)


class Pieces(io.BytesIO):
    """Output that remembers the pieces it is written in, and how often a file had been read before each."""

    def __init__(self, fs: FaultFS) -> None:
        super().__init__()
        self.fs = fs
        self.sizes: list[int] = []
        self.reads: list[int] = []

    def write(self, piece: Any) -> int:
        self.sizes.append(len(piece))
        self.reads.append(len(self.fs.named("pread", "preadv")))
        return super().write(piece)


@pytest.mark.parametrize("reader", [None, lambda: decoder_reader("string", "string")], ids=["text", "decoded"])
def test_the_text_of_large_batches_is_written_in_pieces(tmp_path: Path, reader: Callable[[], Any] | None) -> None:
    rows = [R(b"v" * 100, b"k", timestamp=0)] * 500
    parts = [batch_fast(rows, 500 * n) for n in range(20)]  # several fit into what is read at once
    path = log_file(tmp_path, parts)
    out = Pieces(FaultFS())
    options = DumpOptions(deep_iteration=True, print_data_log=True, reader=reader)
    dump_files([str(path)], out, options, err=io.BytesIO(), fs=out.fs)
    deep = "".join(reference_text.deep_text(rows, part, len(parts[0]) * n) for n, part in enumerate(parts))
    assert out.getvalue().decode() == header(path) + deep
    assert max(out.sizes) < 300_000


def test_the_text_of_what_was_read_is_written_before_more_is_read(tmp_path: Path) -> None:
    parts = [batch_fast([R(b"v" * 100_000)], n) for n in range(30)]
    path = log_file(tmp_path, parts)
    out = Pieces(FaultFS())
    dump_files([str(path)], out, err=io.BytesIO(), fs=out.fs)
    size = len(parts[0])
    assert out.getvalue().decode().splitlines()[2:] == [
        reference_text.batch_line(part, n * size).rstrip() for n, part in enumerate(parts)
    ]
    assert len(set(out.reads)) > 5


def test_decoders_are_made_when_a_log_is_dumped(tmp_path: Path) -> None:
    """An invalid name is reported after the line that names the file, as in the reference."""
    path = log_file(tmp_path, [])
    wrong = DumpOptions(reader=lambda: decoder_reader("no.such.Class", None))
    out = io.BytesIO()
    with pytest.raises(IllegalArgument, match=r"unknown decoder 'no\.such\.Class'"):
        dump_files([str(path)], out, wrong, err=io.BytesIO())
    assert out.getvalue().decode() == f"Dumping {path}\n"
    other = tmp_path / "meta.properties"
    assert run_dump(other, options=wrong)[0] == f"Dumping {other}\n"


def test_snapshots_of_the_metadata_log_say_what_they_are(tmp_path: Path) -> None:
    made = batch(ROWS)
    for name, line in (
        ("bootstrap.checkpoint", "KRaft bootstrap snapshot"),
        ("00000000000000000423-0000000007.checkpoint", "Snapshot end offset: 423, epoch: 7"),
    ):
        path = tmp_path / name
        path.write_bytes(made)
        assert run_dump(path)[0] == f"Dumping {path}\n{line}\n{reference_text.batch_line(made, 0)}"
    (tmp_path / "x.checkpoint").touch()
    dump_until_error(tmp_path / "x.checkpoint", IllegalArgument)


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    assert dump_until_error(path, StorageError)[0] == header(path)
    path.mkdir()
    assert dump_until_error(path, StorageError)[0] == header(path)
    for name in ("no-offset.log", "no-offset.index", "no-offset.checkpoint"):
        missing = dump_until_error(tmp_path / name, StorageError)[1]
        assert str(missing).startswith("there is no such file")
        (tmp_path / name).touch()
        dump_until_error(tmp_path / name, IllegalArgument)
    for suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
        with pytest.raises(StorageError):
            run_dump(tmp_path / f"{7:020d}{suffix}")


class ReadOnly(FileSystem):
    """Refuses to open a file for anything but reading."""

    def open_file(self, path: str | os.PathLike[str], mode: str) -> File:
        assert mode == "r"
        return super().open_file(path, mode)


def test_nothing_is_changed(tmp_path: Path) -> None:
    """DUMP-12."""
    log = log_file(tmp_path, [batch(ROWS), b"torn"])
    others = [tmp_path / f"{0:020d}{suffix}" for suffix in (".index", ".timeindex", ".txnindex", ".snapshot")]
    for path, size in zip(others, (80, 120, 68, 10), strict=True):
        path.write_bytes(bytes(size))
    files = [log, *others]
    before = [(path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    run_dump(*files, options=DEEP, fs=ReadOnly())
    run_dump(*files, options=DumpOptions(index_sanity_check=True), fs=ReadOnly())
    assert [(path.stat().st_size, path.stat().st_mtime_ns) for path in files] == before


def test_files_of_a_partition_directory(tmp_path: Path) -> None:
    for name in ("b.log", "a.log", "a.index", "a.timeindex", "a.snapshot", "a.txnindex", "a.log.deleted", "x"):
        (tmp_path / name).touch()
    names = [os.path.basename(p) for p in files_of(str(tmp_path))]
    assert names == ["a.index", "a.log", "a.snapshot", "a.timeindex", "a.txnindex", "b.log"]
    with pytest.raises(StorageError, match="cannot list"):
        files_of(str(tmp_path / "absent"))
