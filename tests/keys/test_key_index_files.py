"""The file of a key index: damage, other segments, other places, failures and crashes while it is written."""

import errno
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import kafkalog
from kafkalog.errors import CorruptRecord, IllegalArgument, InvalidRecord, StorageError
from kafkalog.keys import background, manage
from kafkalog.log import keyed
from kafkalog.sidecars import background as sidecar_background
from kafkalog.storage.readonly.view import LogView
from tests.builder import seal
from tests.faults import FaultFS, each_failure
from tests.open_logs import open_log

KEYS = [b"key-%d" % i for i in range(5)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log of two closed segments, each with an index, and an active one."""
    path = tmp_path / "data" / "t-0"
    path.parent.mkdir()
    fill(path, b"first")
    return path


def fill(path: Path, word: bytes) -> None:
    with kafkalog.open(path, "a") as log:
        for part in range(3):
            log.append([(key, b"%s-%d" % (word, part)) for key in KEYS[part:]])
            if part < 2:
                log.roll()
        log.build_key_index()


def answers(path: Path) -> list[object]:
    with kafkalog.open(path) as log:
        found = [[record.offset for record in log.history(key)] for key in KEYS]
        return [found, log.get_many([*KEYS, b"nobody"]), [log.get(key) for key in KEYS]]


def states(path: Path) -> list[str]:
    with kafkalog.open(path) as log:
        return [info.state for info in log.key_index()]


def index_file(path: Path, base_offset: int = 0) -> Path:
    return path / f"{base_offset:020}.keyindex"


def test_each_flipped_byte_is_noticed(path: Path) -> None:
    """What a damaged index says is never used: the answers are those of a search."""
    expected, file = answers(path), index_file(path)
    sound = file.read_bytes()
    for at in range(len(sound)):
        file.write_bytes(sound[:at] + bytes([sound[at] ^ (1 << at % 8)]) + sound[at + 1 :])
        assert answers(path) == expected, at
        if at % 40 == 0:
            assert states(path) == ["damaged", "ok"], at
    file.write_bytes(sound)
    assert states(path) == ["ok", "ok"]


def test_each_cut_length_is_noticed(path: Path) -> None:
    expected, file = answers(path), index_file(path)
    sound = file.read_bytes()
    for size in range(len(sound)):
        file.write_bytes(sound[:size])
        assert answers(path) == expected, size
        if size % 50 == 0:
            assert states(path) == ["damaged", "ok"]
    file.write_bytes(sound + b"\0")
    assert answers(path) == expected and states(path) == ["damaged", "ok"]


def test_the_index_of_another_segment_is_noticed(path: Path, tmp_path: Path) -> None:
    """Not the one of another base offset, nor of a segment of the same size at the same offset in another log."""
    expected = answers(path)
    index = index_file(path).read_bytes()
    shutil.copy(index_file(path, 5), index_file(path))
    assert answers(path) == expected and states(path) == ["stale", "ok"]
    other = tmp_path / "other" / "t-0"
    other.parent.mkdir()
    fill(other, b"other")
    shutil.copy(index_file(other), index_file(path))
    assert (other / f"{0:020}.log").stat().st_size == (path / f"{0:020}.log").stat().st_size
    assert answers(path) == expected and states(path) == ["stale", "ok"]
    index_file(path).write_bytes(index)
    assert states(path) == ["ok", "ok"]


def test_the_index_of_a_segment_written_again_is_noticed(path: Path) -> None:
    """A truncation and as many records of the same sizes leave the base offset and the size as they were."""
    old = index_file(path).read_bytes()
    with kafkalog.open(path, "a") as log:
        log.truncate_to(0)
        log.append([(key[::-1], b"first-0") for key in KEYS])
        log.roll()
        log.append(b"end")
        assert index_file(path).read_bytes() == old
        assert [info.state for info in log.key_index()] == ["stale"]
        assert log.get(KEYS[0]) is None
        found = log.get(KEYS[0][::-1])
        assert found is not None and found.offset == 0
        assert [info.state for info in log.build_key_index()] == ["ok"]
        assert log.get(KEYS[0]) is None
        assert not index_file(path, 5).exists()


def test_a_copied_directory_keeps_its_indexes(path: Path, tmp_path: Path) -> None:
    shutil.copytree(path, tmp_path / "copy" / "t-0")
    assert states(tmp_path / "copy" / "t-0") == ["ok", "ok"]


def test_an_index_is_not_trusted_to_find_damaged_records(path: Path) -> None:
    """A record that the index names is read and checked like any other."""
    file = path / f"{5:020}.log"
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    with kafkalog.open(path) as log:
        assert log.get(KEYS[4]) is not None  # its last record lies behind the damage
        with pytest.raises(CorruptRecord):
            log.get(KEYS[1])
        with pytest.raises(CorruptRecord):
            log.get_many(KEYS)
        skipped: list[kafkalog.Skipped] = []
        found = log.get(KEYS[1], on_damage="skip", skipped=skipped)
        assert found is not None and found.offset == 1 and skipped
        with pytest.raises(CorruptRecord):
            list(log.history(KEYS[1]))


@pytest.mark.parametrize("has_right_checksum", [False, True])
def test_a_damaged_segment_gets_no_index(path: Path, has_right_checksum: bool) -> None:
    file = path / f"{0:020}.log"
    data = bytearray(file.read_bytes())
    data[-1 if has_right_checksum else -3] ^= 1  # the last byte is the number of headers
    file.write_bytes(seal(bytes(data)) if has_right_checksum else data)
    store = path.parent.parent / "store"
    with kafkalog.open(path) as log:
        with pytest.raises(InvalidRecord if has_right_checksum else CorruptRecord, match=r"0{20}\.log"):
            log.build_key_index(store=store)
        missing, built = log.key_index(store=store)
        assert (missing.state, missing.records, missing.size, built.state) == ("missing", 0, 0, "ok")


@pytest.mark.parametrize("rebuild", [False, True])
def test_indexes_that_fit_are_built_again_on_request(path: Path, rebuild: bool) -> None:
    os.utime(index_file(path), (0, 0))
    with kafkalog.open(path, "a") as log:
        assert [info.state for info in log.build_key_index(rebuild=rebuild)] == ["ok", "ok"]
    assert (index_file(path).stat().st_mtime > 0) == rebuild


def test_a_reader_needs_a_place_of_its_own(path: Path, tmp_path: Path) -> None:
    """Mode "r" writes nothing into a directory that may be a broker's."""
    before = sorted(os.listdir(path))
    with kafkalog.open(path) as log:
        with pytest.raises(IllegalArgument, match="never writes there"):
            log.build_key_index()
        with pytest.raises(IllegalArgument, match="never writes there"):
            log.drop_key_index()
        for store in (path.parent, path.parent / "indexes", path):
            with pytest.raises(IllegalArgument, match="data directory"):
                log.build_key_index(store=store)
        assert [info.state for info in log.build_key_index(store=tmp_path / "store")] == ["ok", "ok"]
    assert sorted(os.listdir(path)) == before
    with kafkalog.open(path, key_index=tmp_path / "store") as log:
        assert str(tmp_path / "store") in log.key_index()[0].path
        assert log.drop_key_index() == 2
        assert [info.state for info in log.key_index()] == ["missing", "missing"]
    with pytest.raises(IllegalArgument, match="mode \"r\""):
        kafkalog.open(path, key_index=True)


def test_indexes_are_dropped_while_another_call_moves_them(path: Path, tmp_path: Path) -> None:
    """Before each line of `drop_key_index` in turn, indexes in another place take the place of the log's."""
    lines = struck = 0

    def moved(frame: FrameType, event: str, arg: object) -> Callable[..., Any] | None:
        nonlocal lines
        if frame.f_code.co_filename != keyed.__file__:
            return None
        if event == "line":
            lines += 1
            if lines == struck:
                log.build_key_index(store=tmp_path / "store")
        return moved

    with kafkalog.open(path, "a") as log:
        while struck <= lines:
            lines, struck = 0, struck + 1
            assert log.get(KEYS[0]) is not None
            before = sys.gettrace()
            sys.settrace(moved)
            try:
                log.drop_key_index()
            finally:
                sys.settrace(before)
        assert struck > 5


@pytest.mark.parametrize("times", [1, 1 << 30])
def test_each_failure_of_a_write_leaves_the_answers(path: Path, times: int) -> None:
    """A failure at any call, or a crash there, leaves the old index, none, or a whole one."""
    expected = answers(path)
    for nth in each_failure():
        fs = FaultFS()
        log = open_log(path, fs=fs)
        rule = fs.fail(path=".keyindex", nth=nth, times=times, code=errno.EIO, partial=3)
        try:
            log.build_key_index(rebuild=True)
        except StorageError as error:
            assert error.errno == errno.EIO and error.path is not None
        fs.heal()
        log.close()
        assert answers(path) == expected and set(states(path)) <= {"ok", "missing"}
        if not rule.fired:
            break


def test_a_leftover_of_a_crash_is_replaced(path: Path) -> None:
    """One that is young may be another process's."""
    leftover = path / f"{0:020}.keyindex.1-2.tmp"
    index_file(path).unlink()
    leftover.write_bytes(b"half")
    for hours in (0, 2):
        os.utime(leftover, (time.time() - 3600 * hours,) * 2)
        with kafkalog.open(path, "a") as log:
            log.build_key_index()
        assert leftover.exists() == (hours == 0) and states(path) == ["ok", "ok"]


def test_a_reader_notices_what_another_process_builds(path: Path) -> None:
    with kafkalog.open(path, "a") as owner, kafkalog.open(path) as log:
        owner.drop_key_index()
        assert log.get(KEYS[0]) == log[0]
        owner.build_key_index()
        owner.roll()
        assert log.get(KEYS[0]) == log[0]
        assert log._keys is not None
        assert [part.index is not None for part in log._keys.parts.current()] == [True, True, False, True]


def test_a_log_behind_a_url_has_its_indexes_here(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    with kafkalog.open(f"file://{path}", key_index=tmp_path / "store") as log:
        assert [info.state for info in log.build_key_index()] == ["ok", "ok"]
        assert [log.get(key) for key in KEYS] == log.get_many(KEYS)
        assert [record.offset for record in log.history(KEYS[1])] == [1, 5]
        assert log._keys is not None
        assert all(part.index is not None for part in log._keys.parts.current())


def test_threads_build_together(path: Path) -> None:
    with kafkalog.open(path, "a") as log:
        with ThreadPoolExecutor(4) as pool:
            built = list(pool.map(lambda _: log.build_key_index(rebuild=True), range(12)))
        assert {tuple(info.state for info in infos) for infos in built} == {("ok", "ok")}
        assert [info.state for info in log.key_index()] == ["ok", "ok"]


def test_a_closed_log_holds_no_index_open(path: Path) -> None:
    log = kafkalog.open(path)
    assert log.get(KEYS[0]) == log[0]
    log.close()
    links = Path("/proc/self/fd")
    assert not [link for link in links.iterdir() if os.path.realpath(link).startswith(str(path))]


def test_space(tmp_path: Path) -> None:
    """At most 12 bytes a record besides the header, also where each batch has one record."""
    path = tmp_path / "t-0"
    with kafkalog.open(path, "a") as log:
        log.append([(b"key-%d" % i, b"v") for i in range(20_000)])
        log.roll()
        for i in range(4000):
            log.append((b"key-%d" % i, b"v"))
        log.roll()
        for info in log.build_key_index():
            assert info.size <= 12 * info.records


def test_closed_and_forked(path: Path) -> None:
    with kafkalog.open(path) as log:
        expected = [log.get(key) for key in KEYS]
        pid = os.fork()
        if pid == 0:
            os._exit(0 if [log.get(key) for key in KEYS] == expected else 1)
        assert os.waitpid(pid, 0)[1] == 0
    for call in (log.get, log.history, lambda key: log.get_many([key])):
        with pytest.raises(kafkalog.LogClosed):
            call(KEYS[0])
    assert isinstance(log._source, LogView)


def test_keys_that_are_none(path: Path) -> None:
    with kafkalog.open(path) as log:
        for key, message in (("text", "encode it first"), (None, "without a key"), (5, "is int")):
            with pytest.raises(TypeError, match=message):
                log.get(key)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match=message):
                log.history(key)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match=message):
                log.get_many([key])  # type: ignore[list-item]
        with pytest.raises(TypeError, match="give a list of keys"):
            log.get_many(b"key-1")  # type: ignore[arg-type]
        assert log.get(bytearray(KEYS[0])) == log.get(memoryview(KEYS[0])) == log[0]
        assert log[0] in log
        with pytest.raises(TypeError, match="did you mean isolation"):
            log.get(KEYS[0], isolaton="read_committed")  # type: ignore[call-arg]


def test_in_the_background(tmp_path: Path) -> None:
    """With `key_index=True` a roll builds the index of the segment that it closes."""
    path = tmp_path / "t-0"
    with kafkalog.open(path, "a", key_index=True) as log:
        log.append([(b"a", b"1")])
        log.roll()
        log.append([(b"a", b"2")])
        assert log.get(b"a") == log[1]
        wait_until(lambda: index_file(path).exists())
        assert log.key_index()[0].state == "ok" and list(log.history(b"a")) == list(log)


def test_a_failure_in_the_background_that_passes_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Here a file is where the store should be: no other roll is needed, and the failure is logged once."""
    tried: list[object] = []
    build = background.build_indexes
    monkeypatch.setattr(background, "build_indexes", lambda *given, **more: (tried.append(1), build(*given, **more)))
    monkeypatch.setattr(sidecar_background, "PERIOD_MS", 5)
    store = tmp_path / "indexes"
    store.write_bytes(b"")
    with kafkalog.open(tmp_path / "data" / "t-0", "a", key_index=store) as log:
        log.append([(b"a", b"1")])
        log.roll()
        wait_until(lambda: len(tried) >= 3)
        store.unlink()
        wait_until(lambda: [info.state for info in log.key_index()] == ["ok"])
    assert len([one for one in caplog.records if "cannot build the key indexes" in one.message]) == 1


def test_closing_does_not_wait_for_the_indexes_of_all_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index that is being built is finished, and no other is begun."""
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        for _ in range(3):
            log.append([(b"a", b"1")])
            log.roll()
    begun, may_go_on = threading.Event(), threading.Event()
    build = manage.build_segment

    def held(*given: Any) -> Any:
        begun.set()
        assert may_go_on.wait(60)
        return build(*given)

    monkeypatch.setattr(manage, "build_segment", held)
    log = kafkalog.open(tmp_path / "t-0", "a", key_index=True)
    assert begun.wait(60)
    [builder] = log._builders
    closing = threading.Thread(target=log.close)
    closing.start()
    wait_until(lambda: builder._is_stopping)
    may_go_on.set()
    closing.join()
    with kafkalog.open(tmp_path / "t-0") as view:
        assert [info.state for info in view.key_index()] == ["ok", "missing", "missing"]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_place_that_is_refused_leaves_no_open_log(path: Path) -> None:
    with pytest.raises(IllegalArgument, match="data directory"):
        kafkalog.open(path, "a", key_index=path.parent / "indexes")
    kafkalog.open(path, "a", key_index=path.parent.parent / "store").close()
