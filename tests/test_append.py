"""`Log.append`, `append_bytes`, `roll`, `truncate_to`, `delete_before`, `flush` and `sync`."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog._core.batch.encode import BatchBuilder, encode_batch
from kafkalog._core.batch.scan import scan
from kafkalog.errors import (
    CorruptRecord,
    IllegalArgument,
    InvalidRecord,
    InvalidTimestamp,
    OffsetOutOfRange,
    RecordBatchTooLarge,
    RecordTooLarge,
    StorageError,
)
from kafkalog.log.log import Log
from kafkalog.log.open_writable import open_for_append
from kafkalog.util.checkpoint import LOG_START_FILE
from tests.faults import FaultFS
from tests.gates import wait_until
from tests.open_logs import open_log

NOW = 1_700_000_000_000


def read_contents(path: str | Path) -> list[tuple[int, bytes | None, bytes | None]]:
    with kafkalog.open(path) as log:
        return [(record.offset, record.key, record.value) for record in log]


@pytest.fixture
def log(tmp_path: Path) -> Any:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        yield log


def make_batch(*values: bytes, base_offset: int = 0, timestamp: int = NOW, leader_epoch: int = -1) -> bytearray:
    return encode_batch(list(values), timestamp=timestamp, base_offset=base_offset, leader_epoch=leader_epoch)


# append


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (b"v", (None, b"v")),
        (bytearray(b"v"), (None, b"v")),
        (memoryview(b"v"), (None, b"v")),
        ((b"k", b"v"), (b"k", b"v")),
        ((None, b"v"), (None, b"v")),
        ((b"k", None), (b"k", None)),
        ((b"", b""), (b"", b"")),
        (kafkalog.Record(b"v", key=b"k"), (b"k", b"v")),
        ({"key": b"k", "value": b"v"}, (b"k", b"v")),
        ({"value": None}, (None, None)),
    ],
)
def test_append_takes_one_record_in_each_form(log: Any, given: Any, stored: Any) -> None:
    """REC-1: a null key or value stays null, an empty one empty."""
    info = log.append(given)
    assert (info.first_offset, info.last_offset) == (0, 0)
    assert (log[0].key, log[0].value) == stored


def test_append_keeps_time_and_headers(log: Any) -> None:
    """REC-2: headers keep order, count and null values."""
    headers = [("a", b"1"), ("a", None), ("", b"")]
    log.append((b"k", b"v", NOW, headers))
    log.append({"key": b"k", "value": b"v", "timestamp": NOW + 1, "headers": headers})
    log.append(kafkalog.Record(b"v", key=b"k", timestamp=NOW + 2, headers=headers))
    log.append((b"k", b"v", datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)))
    assert [record.timestamp for record in log] == [NOW, NOW + 1, NOW + 2, NOW]
    assert [tuple(record.headers) for record in log] == [tuple(headers)] * 3 + [()]


def test_a_list_makes_one_batch_with_one_clock_reading(log: Any) -> None:
    """LOG-2: consecutive offsets from the log end."""
    before = int(time.time() * 1000)
    info = log.append([b"a", (b"k", b"b"), {"value": b"c"}])
    assert (info.first_offset, info.last_offset, info.shallow_count) == (0, 2, 1)
    assert before <= info.max_timestamp <= int(time.time() * 1000)
    info = log.append(value for value in (b"d", b"e"))
    assert (info.first_offset, info.last_offset) == (3, 4)
    assert [one.header.count for one in log.batches()] == [3, 2]
    assert len({record.timestamp for record in log.records(0, 3)}) == 1
    assert [record.value for record in log] == [b"a", b"b", b"c", b"d", b"e"]


def test_an_empty_list_writes_nothing(log: Any) -> None:
    """LOG-5: nothing to append is no append; REC-28."""
    info = log.append([])
    assert info.first_offset == -1 and log.end_offset == 0
    assert log.append_bytes(b"").first_offset == -1
    assert log.append(b"x").first_offset == 0


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("text", "encode"),
        (["text"], "encode"),
        ((b"k", "text"), "encode"),
        (("key", b"v"), "encode"),
        (None, "cannot append NoneType"),
        (5, "cannot append int"),
        ([5], "give bytes"),
        ((b"only one",), "tuple"),
        ((b"1", b"2", 3, (), 5), "tuple"),
        ({"vaule": b"v"}, "vaule"),
        ((b"k", b"v", "yesterday"), "timestamp"),
        ((b"k", b"v", 1, [("h", "text")]), "encode"),
    ],
)
def test_append_refuses_what_is_no_record_and_says_the_fix(log: Any, given: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        log.append(given)
    assert log.end_offset == 0


def test_a_negative_timestamp_is_refused(log: Any) -> None:
    """REC-25: a timestamp below zero is invalid, except -1."""
    with pytest.raises(InvalidTimestamp, match="-2") as refused:
        log.append([(None, b"v", 5), (None, b"v", -2)])
    assert refused.value.record_errors[0][0] == 1
    assert log.end_offset == 0


def test_a_timestamp_outside_the_topics_bounds_is_refused(tmp_path: Path) -> None:
    """VAL-12: and nothing is written."""
    with kafkalog.open(tmp_path / "t-0", "a", message_timestamp_before_max_ms=1000) as log:
        with pytest.raises(InvalidTimestamp):
            log.append((None, b"v", 5))
        with pytest.raises(InvalidTimestamp):
            log.append((None, b"v", int(time.time() * 1000) + 7_200_000))
        assert log.end_offset == 0


def test_a_value_over_max_message_bytes_is_refused(tmp_path: Path) -> None:
    """LOG-7: the size is the batch's."""
    with kafkalog.open(tmp_path / "t-0", "a", max_message_bytes=200) as log:
        log.append(b"x" * 120)
        with pytest.raises(RecordTooLarge, match="200"):
            log.append(b"x" * 190)
        with pytest.raises(RecordTooLarge):
            log.append([b"x" * 50] * 4)
        with pytest.raises(RecordTooLarge):
            log.append_bytes(make_batch(b"x" * 190))
        assert log.end_offset == 1


def test_an_append_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    """LOG-9: exactly equal fits."""
    size = len(make_batch(b"x" * 100))
    with kafkalog.open(tmp_path / "t-0", "a", internal_segment_bytes=size) as log:
        assert log.append_bytes(make_batch(b"x" * 100)).first_offset == 0
        with pytest.raises(RecordBatchTooLarge):
            log.append_bytes(make_batch(b"x" * 101))
        assert log.end_offset == 1


def test_a_compacted_topic_wants_keys(tmp_path: Path) -> None:
    """LOG-12, VAL-15: and nothing is written without."""
    with kafkalog.open(tmp_path / "t-0", "a", cleanup_policy="compact") as log:
        with pytest.raises(InvalidRecord, match="key"):
            log.append([(b"k", b"v"), b"v"])
        assert log.end_offset == 0
        assert log.append((b"k", b"v")).first_offset == 0


def test_log_append_time_stamps_every_record(tmp_path: Path) -> None:
    """LOG-77, VAL-11."""
    with kafkalog.open(tmp_path / "t-0", "a", message_timestamp_type="LogAppendTime") as log:
        info = log.append([(None, b"a", 5), (None, b"b", 6)])
        assert info.log_append_time > NOW
        assert {record.timestamp for record in log} == {info.log_append_time}


# append_bytes


def test_ready_batches_get_the_logs_own_offsets(log: Any) -> None:
    """LOG-2: whatever base offset the bytes carry."""
    log.append([b"0", b"1"])
    info = log.append_bytes(bytes(make_batch(b"2", b"3", base_offset=900)))
    assert (info.first_offset, info.last_offset) == (2, 3)
    assert read_contents(log.path)[2:] == [(2, None, b"2"), (3, None, b"3")]


@pytest.mark.parametrize("by_log", [False, True], ids=["CreateTime", "LogAppendTime"])
def test_one_batch_is_left_alone_and_several_in_a_bytearray_are_edited(tmp_path: Path, by_log: bool) -> None:
    settings = {"message_timestamp_type": "LogAppendTime"} if by_log else {}
    log = kafkalog.open(tmp_path / "edited-0", "a", **settings)
    log.append([b"0", b"1"])
    one, two = bytes(make_batch(b"2", base_offset=77)), bytes(make_batch(b"3") + make_batch(b"4"))
    for before in (one, two):
        for given in (before, bytearray(before), memoryview(bytearray(before))):
            log.append_bytes(given)
            assert (given == before) is (before == one or type(given) is not bytearray)
    assert [record.value for record in log] == [b"0", b"1", *[b"2"] * 3, *[b"3", b"4"] * 3]
    log.close()


def test_several_batches_are_several_appends(log: Any) -> None:
    info = log.append_bytes(make_batch(b"a", b"b", base_offset=7) + make_batch(b"c", base_offset=3) + make_batch(b"d"))
    assert (info.first_offset, info.last_offset, info.shallow_count) == (0, 3, 3)
    assert info.max_timestamp == NOW
    assert [one.base_offset for one in log.batches()] == [0, 2, 3]
    assert [record.value for record in log] == [b"a", b"b", b"c", b"d"]


def test_a_torn_last_batch_is_left_out(log: Any) -> None:
    """LOG-6: valid_bytes says how much was taken."""
    whole = make_batch(b"a")
    info = log.append_bytes(bytes(whole + make_batch(b"b")[:-1]))
    assert info.valid_bytes == len(whole) and log.end_offset == 1
    info = log.append_bytes(whole + whole + whole[:30])
    assert (info.first_offset, info.last_offset, info.valid_bytes) == (1, 2, 2 * len(whole))
    assert log.append_bytes(whole[:40]).first_offset == -1
    assert log.end_offset == 3


def test_a_flipped_bit_is_refused_and_nothing_written(log: Any) -> None:
    """LOG-10: also in the last of several batches."""
    good = make_batch(b"a" * 50)
    bad = bytearray(good)
    bad[-3] ^= 1
    for given in (bad, good + bad, good + bad + good):
        with pytest.raises(CorruptRecord):
            log.append_bytes(bytes(given))
    assert log.end_offset == 0


def test_control_batches_are_refused(log: Any) -> None:
    """VAL-4: a client may not write them."""
    builder = BatchBuilder()
    builder.append(b"\x00\x00\x00\x00\x00\x00", b"\x00\x00\x00\x01", NOW)
    control = builder.build(control=True, transactional=True, producer_id=5, producer_epoch=0)
    for given in (bytes(control), bytes(make_batch(b"a") + control)):
        with pytest.raises(InvalidRecord, match="control"):
            log.append_bytes(given)
    assert log.end_offset == 0


@pytest.mark.parametrize("raw", [b"x" * 100, b"\x00" * 100, b"\xff" * 100])
def test_bytes_that_are_no_batch_are_refused(log: Any, raw: bytes) -> None:
    with pytest.raises(CorruptRecord):
        log.append_bytes(raw)
    assert log.end_offset == 0


# roll, truncate, delete


def test_roll_starts_a_segment_at_the_log_end(log: Any) -> None:
    """LOG-17: rolling an empty active segment makes no second one."""
    log.append([b"0", b"1"])
    assert log.roll() == 2
    assert log.roll() == 2
    log.append(b"2")
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    assert [record.value for record in log] == [b"0", b"1", b"2"]


def test_truncate_to_cuts_the_end(log: Any) -> None:
    """LOG-52 to LOG-54."""
    for number in range(10):
        log.append(b"%d" % number)
    log.roll()
    log.append(b"10")
    assert log.truncate_to(11) is False
    assert log.truncate_to(4) is True
    assert (log.end_offset, log.high_watermark, len(log.segments)) == (4, 4, 1)
    assert log.append(b"new").first_offset == 4
    assert [record.value for record in log] == [b"0", b"1", b"2", b"3", b"new"]
    with pytest.raises(IllegalArgument):
        log.truncate_to(-1)


def test_a_log_is_emptied_and_starts_at_another_offset(tmp_path: Path) -> None:
    """LOG-55: also after a reopen, clean or not; what a copy of a log does whose first records are gone."""
    path = tmp_path / "t-0"
    with kafkalog.open(path, "a") as log:
        for number in range(6):
            log.append(b"%d" % number)
        log.flush()
        for offset in (100, 3, 5_000_000_000):
            log.truncate_fully_and_start_at(offset)
            assert (log.start_offset, log.high_watermark, log.end_offset) == (offset, offset, offset)
            assert [segment.base_offset for segment in log.segments] == [offset]
        with pytest.raises(IllegalArgument, match="cannot start at -1"):
            log.truncate_fully_and_start_at(-1)
        assert log.append(b"kept").first_offset == 5_000_000_000
        with pytest.raises(IllegalArgument, match="cannot start at 9223372036854775808"):
            log.truncate_fully_and_start_at(2**63)
        with pytest.raises(TypeError):
            log.truncate_fully_and_start_at(1.5)  # type: ignore[arg-type]
        assert [record.value for record in log] == [b"kept"]
        log.truncate_fully_and_start_at(5_000_000_000)
    with kafkalog.open(path, "a") as log:
        assert (log.start_offset, log.end_offset) == (5_000_000_000, 5_000_000_000)
        log.truncate_fully_and_start_at(7)
        assert log.append(b"new").first_offset == 7
    (tmp_path / ".kafka_cleanshutdown").unlink()
    with kafkalog.open(path, "a") as log:
        assert [(record.offset, record.value) for record in log] == [(7, b"new")]


def test_delete_before_moves_the_start(log: Any) -> None:
    """LOG-36, LOG-37: reads below it are out of range."""
    for number in range(6):
        log.append(b"%d" % number)
        if number % 2:
            log.roll()
    assert log.delete_before(3) == 3
    assert log.start_offset == 3 and log.end_offset == 6
    with pytest.raises(OffsetOutOfRange):
        log[2]
    assert [record.offset for record in log] == [3, 4, 5]
    with pytest.raises(OffsetOutOfRange):
        log.delete_before(7)


def test_the_log_start_is_on_disk(tmp_path: Path) -> None:
    """A deleted record does not come back with the next open, in no mode; the file is the reference's."""
    path, file = tmp_path / "t-0", tmp_path / "log-start-offset-checkpoint"
    with kafkalog.open(path, "a") as log:
        for number in range(6):
            log.append(b"%d" % number)
        log.delete_before(2)
        assert file.read_text() == "0\n1\nt 0 2\n"
        assert [offset for offset, _, _ in read_contents(path)] == [2, 3, 4, 5]
    assert [offset for offset, _, _ in read_contents(path)] == [2, 3, 4, 5]
    with kafkalog.open(path, "a") as log:
        assert (log.start_offset, log.end_offset) == (2, 6)
        log.roll()
        assert log.delete_before(-1) == 6
        assert file.read_text() == "0\n0\n", "the segment's name says it now"
    with kafkalog.open(path, "a") as log:
        assert (log.start_offset, log.end_offset) == (6, 6)
        log.append(b"6")
    assert read_contents(path) == [(6, None, b"6")]


@pytest.mark.parametrize("compression_type", ["producer", "lz4"])
@pytest.mark.parametrize("base_offset", [-(2**63), -1, 2**63 - 2, 2**63 - 1])
def test_ready_batches_may_carry_offsets_that_no_record_can_have(
    tmp_path: Path, base_offset: int, compression_type: str
) -> None:
    """LOG-2: the log gives its own. Also with a torn batch behind, or another batch."""
    ready = encode_batch([b"a", b"b"], timestamp=1_700_000_000_000)
    ready[:8] = base_offset.to_bytes(8, "big", signed=True)
    with kafkalog.open(tmp_path / "t-0", "a", compression_type=compression_type) as log:
        for data in (ready, ready + ready[:-1], ready + ready):
            log.append_bytes(bytes(data))
        assert [record.offset for record in log] == list(range(8))


# durability


def count_syncs(fs: FaultFS, suffix: str) -> int:
    return sum(1 for call in fs.named("fsync", "fdatasync") if call.path.endswith(suffix))


def test_by_default_an_append_syncs_nothing_and_flush_does(tmp_path: Path) -> None:
    """LOG-49: flush returns when data and directory entries are on disk."""
    fs = FaultFS()
    with open_log(tmp_path / "t-0", fs=fs) as log:
        log.append(b"the first of a leader epoch, which is noted")
        fs.calls.clear()
        log.append(b"x")
        assert fs.named("fsync", "fdatasync") == []
        log.flush()
        assert count_syncs(fs, ".log") >= 1
        assert any(call.path == log.path for call in fs.named("fsync"))


def test_sync_true_syncs_every_append(tmp_path: Path) -> None:
    fs = FaultFS()
    with open_log(tmp_path / "t-0", fs=fs, sync=True) as log:
        for count, call in enumerate((lambda: log.append(b"x"), lambda: log.append_bytes(make_batch(b"y"))), 1):
            fs.calls.clear()
            call()
            assert count_syncs(fs, ".log") == 1, count


def test_sync_in_milliseconds_syncs_soon_after(tmp_path: Path) -> None:
    fs = FaultFS()
    with open_log(tmp_path / "t-0", fs=fs, sync=1) as log:
        fs.calls.clear()
        log.append(b"x")
        wait_until(lambda: count_syncs(fs, ".log") >= 1)


def test_a_failed_background_sync_fails_the_next_append(tmp_path: Path) -> None:
    fs = FaultFS()
    opened = open_for_append(tmp_path / "t-0", fs=fs, sync=1)
    log = kafkalog.Log(opened.log, opened)
    fs.fail("fsync", "fdatasync", path=".log")
    with pytest.raises(StorageError):
        for _ in range(2000):
            log.append(b"x")
            time.sleep(0.005)
    fs.heal()
    try:
        log.close()
    except OSError:
        pass
    assert not (tmp_path / ".kafka_cleanshutdown").exists() or read_contents(log.path)


def test_what_is_appended_survives_reopening_and_goes_on(tmp_path: Path) -> None:
    for turn in range(5):
        with kafkalog.open(tmp_path / "t-0", "a") as log:
            assert log.end_offset == turn * 3
            log.append([b"%d" % turn] * 3)
    assert [offset for offset, _, _ in read_contents(tmp_path / "t-0")] == list(range(15))


def test_the_files_hold_whole_valid_batches_only(log: Any) -> None:
    for size in (1, 10, 100):
        log.append([b"v" * size] * size)
    log.flush()
    raw = Path(log.segments[0].path).read_bytes()
    table = scan(raw)
    assert table.count == 3 and table.valid_bytes == len(raw) and table.first_invalid == -1
    assert os.path.getsize(log.segments[0].path) == len(raw)


def test_the_log_start_is_on_disk_before_a_file_goes(tmp_path: Path) -> None:
    """LOG-46: a crash during a delete must not restore part of the files' content, nor the names later."""
    fs = FaultFS()
    opened = open_for_append(tmp_path / "t-0", {"internal.segment.bytes": 200}, fs=fs)
    with Log(opened.log, opened) as log:
        for _ in range(6):
            log.append([b"x" * 100])
        fs.calls.clear()
        assert log.delete_before(3) == 3
        names = [
            os.path.basename(call.path) for call in fs.named("rename", "fsync")
            if call.op == "rename" or call.path == str(tmp_path / "t-0")
        ]  # fmt: skip
    starts = [at for at, name in enumerate(names) if name.startswith(LOG_START_FILE)]
    gone = [at for at, name in enumerate(names) if name.endswith((".log", ".index", ".timeindex"))]
    assert len(starts) >= 2 and starts[0] < gone[0], names  # first that it starts there
    assert "t-0" in names[gone[-1] : starts[1]], names  # its first segment may say so once the names are synced


@pytest.mark.parametrize("offset", [1.5, float("nan"), float("inf"), "1", None, b"1"])
def test_an_offset_that_is_no_whole_number_harms_nothing(log: Any, offset: Any) -> None:
    log.append([b"a", b"b"])
    for call in (log.truncate_to, log.delete_before):
        with pytest.raises(TypeError):
            call(offset)
    assert log.append(b"c").first_offset == 2
    assert [record.value for record in log] == [b"a", b"b", b"c"]
