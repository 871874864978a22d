"""`Log.cursor`: a reader's own position, at least once, kept whole, held by one."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.errors import CorruptRecord, CursorInUse, IllegalArgument, IllegalState, LogClosed, OffsetOutOfRange
from kafkalog.records.control import ControlType
from tests.gates import wait_until
from tests.storage.test_log_transactions import append_marker, build_batch


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Any]:
    with kafkalog.open(tmp_path / "data" / "t-0", "a", segment_bytes=1 << 20) as log:
        for number in range(10):
            log.append(b"%d" % number)
        yield log


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.fixture(autouse=True)
def _made_data(data: Path) -> None:
    """The data directory's parent is there."""


def offsets_of(records: Any) -> list[int]:
    return [record.offset for record in records]


def test_a_cursor_goes_on_where_it_was(log: Any, tmp_path: Path) -> None:
    with log.cursor("billing") as cursor:
        assert (cursor.position, cursor.committed, cursor.lag) == (0, 0, 10)
        assert offsets_of(cursor) == list(range(10))
        assert (cursor.position, cursor.lag) == (10, 0)
    log.append([b"more", b"again"])
    with log.cursor("billing") as cursor:
        assert cursor.position == 10 and offsets_of(cursor) == [10, 11]
    with kafkalog.open(log.path) as reader, reader.cursor("billing") as cursor:  # the same one for mode "r"
        assert cursor.position == 12 and cursor.poll() == []
    with log.cursor("other") as cursor:
        assert cursor.position == 0


def test_two_readers_of_one_log_are_each_at_their_own_offset(log: Any) -> None:
    """One has read up to 9, the other up to 11; neither moves the other, nor the log."""
    log.append([b"ten", b"eleven"])
    with log.cursor("a") as a, log.cursor("b") as b:
        for cursor, position in ((a, 9), (b, 11)):
            cursor.seek(position)
            cursor.commit()
        assert (a.position, b.position, log.end_offset) == (9, 11, 12)
        assert offsets_of(b) == [11]
        assert (a.position, a.lag) == (9, 3)
        assert offsets_of(a) == [9, 10, 11]


def test_nothing_is_written_into_the_data_directory(log: Any, data: Path) -> None:
    log.flush()
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    with kafkalog.open(log.path) as reader, reader.cursor("billing") as cursor:
        assert len(list(cursor)) == 10
        cursor.commit()
    assert {path: path.stat().st_mtime_ns for path in data.rglob("*")} == before


def test_a_record_counts_when_the_next_one_is_asked_for(log: Any) -> None:
    with pytest.raises(ZeroDivisionError), log.cursor("c") as cursor:
        for record in cursor:
            if record.offset == 4:
                raise ZeroDivisionError
    with log.cursor("c") as cursor:
        assert cursor.position == 4  # the one that failed comes again
        for record in cursor:
            if record.offset == 6:
                break  # ends the block well: it was processed
    with log.cursor("c") as cursor:
        assert cursor.position == 7


def test_poll_gives_lists(log: Any) -> None:
    with log.cursor("c") as cursor:
        assert offsets_of(cursor.poll(4)) == [0, 1, 2, 3]
        assert cursor.position == 4 and cursor.committed == 0
        assert offsets_of(cursor.poll(10**30)) == [4, 5, 6, 7, 8, 9]
        assert cursor.poll(1) == [] and cursor.poll(1, timeout=0.01) == []
        for bad in ({"max_records": 0}, {"timeout": -1}):
            with pytest.raises(IllegalArgument):
                cursor.poll(**bad)
    with pytest.raises(ZeroDivisionError), log.cursor("c", start=0) as cursor:
        cursor.seek(0)
        cursor.poll(3)
        cursor.poll(3)
        raise ZeroDivisionError
    with log.cursor("c") as cursor:
        assert cursor.position == 3


def test_commit_and_seek(log: Any) -> None:
    with log.cursor("c", auto_commit_ms=None) as cursor:
        records = iter(cursor)
        assert [next(records).offset for _ in range(5)] == [0, 1, 2, 3, 4]
        assert cursor.commit(3) == 3 and cursor.commit() == 5 == cursor.committed
        assert next(records).offset == 5
        assert cursor.seek(8) == 8 and next(records).offset == 8  # an iterator goes on at the new place
        assert (cursor.seek("earliest"), cursor.seek("latest"), cursor.seek(-2)) == (0, 10, 8)
        for wrong in (11, 10**12):
            with pytest.raises(OffsetOutOfRange, match="offsets from 0 to its end 10"):
                cursor.seek(wrong)
        with pytest.raises(IllegalArgument, match="did you mean 'latest'"):
            cursor.seek("latests")
        with pytest.raises(IllegalArgument, match="the cursor is at 8"):
            cursor.commit(9)
    with log.cursor("c") as cursor:
        assert cursor.position == 5  # None: only commit() keeps


def test_a_new_cursor_begins_where_it_is_told_and_is_there_at_once(log: Any) -> None:
    cursor = log.cursor("late", start="latest", auto_commit_ms=None)
    cursor.close()
    log.append(b"after")
    with log.cursor("late", start="earliest") as cursor:
        assert offsets_of(cursor) == [10]
    with log.cursor("middle", start=-3) as cursor:
        assert cursor.position == 8
    with pytest.raises(OffsetOutOfRange):
        log.cursor("wrong", start=99)
    assert [info.name for info in log.cursors()] == ["late", "middle"]


def test_tail_waits_for_new_records(log: Any) -> None:
    with log.cursor("c", start="latest") as cursor:
        assert offsets_of(cursor.tail(timeout=0)) == []
        tail = cursor.tail(timeout=30)
        log.append([b"x", b"y"])
        assert [next(tail).offset, next(tail).offset] == [10, 11]
        log.append(b"z")
        assert cursor.poll(timeout=30)[0].value == b"z"


def test_what_is_processed_is_kept_while_reading(log: Any) -> None:
    with log.cursor("c", auto_commit_ms=0) as cursor:
        stored = []
        for _ in cursor:
            stored.append(cursor.committed)
        assert stored == list(range(10)) and cursor.committed == 10


def test_one_reader_has_a_name(log: Any) -> None:
    cursor = log.cursor("c")
    with pytest.raises(CursorInUse, match="cursor c is in use") as caught:
        log.cursor("c")
    assert isinstance(caught.value, OSError) and "another name" in str(caught.value)
    script = "import kafkalog, sys; kafkalog.open(sys.argv[1]).cursor('c')"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script, log.path], capture_output=True, text=True)
    assert done.returncode == 1 and "CursorInUse" in done.stderr
    cursor.close()
    cursor.close()
    log.cursor("c").close()
    with pytest.raises(IllegalState, match="closed"):
        cursor.poll()


def test_a_killed_reader_gives_its_name_back(log: Any) -> None:
    script = """
import kafkalog, sys
with kafkalog.open(sys.argv[1]) as log, log.cursor("c", auto_commit_ms=0) as cursor:
    for record in cursor:
        if record.offset == 6:
            print("there", flush=True)
            sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script, log.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as reader:
        assert reader.stdout is not None and reader.stdout.readline() == b"there\n"
        reader.kill()
        reader.wait()
    with log.cursor("c") as cursor:
        assert cursor.position == 6  # it was in hand: it comes again


def test_a_forked_child_cannot_commit_and_does_not_free_the_name(log: Any) -> None:
    with log.cursor("c") as cursor:
        child = os.fork()
        if child == 0:
            try:
                cursor.commit()
            except IllegalState:
                cursor._file.release()
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        with pytest.raises(CursorInUse):
            log.cursor("c")


def test_a_position_that_was_deleted(log: Any, caplog: pytest.LogCaptureFixture) -> None:
    with log.cursor("c") as cursor:
        cursor.poll(2)
    log.delete_before(5)
    with pytest.raises(OffsetOutOfRange, match=r"lost its position: the records from 2 on were deleted.* starts at 5"):
        log.cursor("c")
    with log.cursor("c", reset="latest", auto_commit_ms=None) as cursor:
        assert cursor.position == 10
    with log.cursor("c", reset="earliest") as cursor:
        assert cursor.lost and "deleted" in cursor.lost and offsets_of(cursor) == [5, 6, 7, 8, 9]
    assert "cursor c of t-0 was reset from 2 to 5 (earliest)" in caplog.text
    with log.cursor("c") as cursor:
        assert cursor.lost is None and cursor.position == 10


@pytest.mark.parametrize("reset", ["error", "earliest"])
def test_deleted_and_cut_while_it_reads(log: Any, reset: Any) -> None:
    with log.cursor("c", reset=reset) as cursor:
        cursor.poll(2)
        log.delete_before(6)
        if reset == "error":
            with pytest.raises(OffsetOutOfRange, match="lost its position"):
                cursor.poll()
            cursor.seek("earliest")
        assert offsets_of(cursor.poll(3)) == [6, 7, 8]
        log.truncate_to(8)
        if reset == "error":
            with pytest.raises(OffsetOutOfRange, match="the log was truncated, it ends at 8"):
                next(cursor.tail())
        else:
            assert offsets_of(cursor) == [6, 7]


def test_a_log_that_was_cut_and_grew_again_is_told(log: Any) -> None:
    with log.cursor("c") as cursor:
        cursor.poll(8)
    log.truncate_to(5)
    log.append([b"other"] * 20)
    with pytest.raises(OffsetOutOfRange, match="record 7 differs from the one that was read"):
        log.cursor("c")
    with log.cursor("c", reset="earliest") as cursor:
        assert cursor.position == 0


@pytest.mark.parametrize("mode", ["a", "r"])
def test_a_log_that_was_cut_and_grew_again_while_it_reads_is_told(log: Any, mode: str) -> None:
    reader = log if mode == "a" else kafkalog.open(log.path)
    with reader.cursor("c") as cursor, reader.cursor("resets", reset="earliest") as resets:
        assert offsets_of(cursor.poll(8)) == offsets_of(resets)[:8]
        log.truncate_to(5)
        log.append([b"other"] * 20)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRange, match="record 7 differs from the one that was read"):
                cursor.poll()
        assert cursor.position == 8
        assert cursor.seek(5) == 5 and offsets_of(cursor) == list(range(5, 25))
        assert offsets_of(resets.poll()) == list(range(25)) and "record 9 differs" in str(resets.lost)
        assert resets.poll() == []
    reader.close()


def test_a_commit_after_the_log_was_written_again_does_not_hide_that(log: Any) -> None:
    with log.cursor("c") as cursor:
        cursor.poll(8)
        log.truncate_to(5)
        log.append([b"other"] * 20)
        cursor.commit()
    with pytest.raises(OffsetOutOfRange, match="record 7 differs from the one that was read"):
        log.cursor("c")


def test_a_topic_that_was_made_again_while_it_reads_is_told(data: Path) -> None:
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs.create_topic("u")
        dirs["u", 0].append([b"first"] * 8)
        with kafkalog.open(data / "u-0") as reader, reader.cursor("c") as cursor:
            assert len(cursor.poll(3)) == 3
            cursor.seek(3)  # no record was read there
            dirs.delete_topic("u")
            dirs.create_topic("u")
            dirs["u", 0].append([b"second"] * 8)
            for _ in range(2):
                with pytest.raises(OffsetOutOfRange, match="the topic was deleted and created again"):
                    wait_until(lambda: cursor.poll(1)[0].value == b"second")
            cursor.seek("earliest")
            assert [record.value for record in cursor] == [b"second"] * 8


def test_a_position_that_lies_in_damage_is_not_reset(data: Path) -> None:
    path = data / "u-0"
    with kafkalog.open(path, "a") as log, log.cursor("c") as cursor:
        log.append(b"first")
        log.append(b"second")
        assert len(cursor.poll()) == 2
    file = path / "00000000000000000000.log"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with kafkalog.open(path) as log:
        with pytest.raises(CorruptRecord):
            log.cursor("c", reset="latest")
        assert log.cursors()[0].position == 2


def test_a_topic_that_was_made_again_is_told(log: Any) -> None:
    with log.cursor("c", start=4):
        pass
    path = Path(log.path) / "partition.metadata"
    path.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABQ")
    with pytest.raises(OffsetOutOfRange, match="the topic was deleted and created again"):
        log.cursor("c")


def test_a_topic_id_that_cannot_be_read_stops_no_reader(log: Any, caplog: pytest.LogCaptureFixture) -> None:
    with log.cursor("c") as cursor:
        cursor.poll(4)
    path = Path(log.path) / "partition.metadata"
    path.write_text("torn")
    with log.cursor("c") as cursor:
        assert offsets_of(cursor) == [4, 5, 6, 7, 8, 9]
    assert "the cursor continues without it" in caplog.text and path.read_text() == "torn"


def test_committed_reading_stops_at_open_transactions(data: Path) -> None:
    with kafkalog.open(data / "x-0", "a") as log:
        log.append(b"a")
        log.append_bytes(build_batch(7, 0, txn=True))
        with log.cursor("c", isolation="read_committed") as cursor:
            assert offsets_of(cursor) == [0] and (cursor.position, cursor.lag) == (1, 0)
            append_marker(log._source, ControlType.COMMIT, 7)
            assert offsets_of(cursor.tail(timeout=0)) == [1]
            assert cursor.position == 3  # behind the marker: nothing lies there


def test_an_aborted_tail_is_passed_over(data: Path) -> None:
    with kafkalog.open(data / "x-0", "a") as log:
        log.append_bytes(build_batch(7, 0, txn=True))
        append_marker(log._source, ControlType.ABORT, 7)
        with log.cursor("c", isolation="read_committed") as cursor:
            assert cursor.poll(10) == [] and (cursor.position, cursor.lag) == (2, 0)


def test_names_and_words_are_checked(log: Any, tmp_path: Path) -> None:
    for name in ("", ".", "..", "a/b", "a b", "a\0", "x" * 201, "../t", "a\n"):
        with pytest.raises(IllegalArgument, match="not a valid cursor name"):
            log.cursor(name)
    with pytest.raises(TypeError):
        log.cursor(7)
    with pytest.raises(IllegalArgument, match="did you mean 'latest'"):
        log.cursor("c", reset="lattest")
    with pytest.raises(IllegalArgument, match="milliseconds"):
        log.cursor("c", auto_commit_ms=-1)
    with pytest.raises(IllegalArgument, match="read_committed"):
        log.cursor("c", isolation="read_commited")
    with pytest.raises(TypeError, match="did you mean auto_commit_ms"):
        log.cursor("c", autocommit_ms=1)
    assert not (tmp_path / "state").exists()
    assert log.cursors() == ()


def test_listing_shows_lag(log: Any) -> None:
    before = time.time_ns() // 1_000_000
    with log.cursor("a") as cursor:
        cursor.poll(4)
        cursor.commit()
    log.cursor("b", start=1).close()
    log.delete_before(2)
    first, second = log.cursors()
    assert (first.name, first.position, first.lag) == ("a", 4, 6) and first.committed_ms >= before
    assert (second.name, second.position, second.lag) == ("b", 1, None)


def test_a_closed_log_ends_its_cursors(log: Any) -> None:
    cursor = log.cursor("c")
    cursor.poll(3)
    cursor.commit()
    log.close()
    with pytest.raises(LogClosed):
        cursor.poll()
    cursor.close()
    with kafkalog.open(log.path) as reader, reader.cursor("c") as cursor:
        assert cursor.position == 3


def test_one_that_is_dropped_says_so(log: Any) -> None:
    cursor = log.cursor("c")
    with pytest.warns(ResourceWarning, match="never closed"):
        del cursor
    log.cursor("c").close()


def test_reprs(log: Any) -> None:
    with log.cursor("c") as cursor:
        assert repr(cursor) == "<Cursor c of t-0 at 0 committed 0>"
    assert repr(cursor) == "<Cursor c of t-0 closed committed 0>"
