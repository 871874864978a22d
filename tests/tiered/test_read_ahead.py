"""Chunks of a segment that is read in order: few requests, the next ones on their way, damage where it is read."""

import threading
from hashlib import sha256
from pathlib import Path

import pytest

from kafkalog.errors import StorageError
from kafkalog.tiered import read_ahead
from kafkalog.tiered.description import read_description
from kafkalog.tiered.manifest import Chunk, ChunkIndex
from kafkalog.tiered.read_ahead import ReadAhead, RunReader, run_of
from kafkalog.tiered.segment_bytes import ObjectStore
from tests.tiered.test_damaged_stores import KEYS, make_place
from tests.tiered_store import values_of

pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'kafkalog[fs]'")


def test_runs_follow_the_chunks_and_their_limits() -> None:
    index = ChunkIndex(100, 950, [10, 20, 30, 40, 50, 60, 70, 80, 90, 5], 0)
    assert run_of(index, 0, 1).chunks == (Chunk(0, 100, 0, 10),)
    run = run_of(index, 200, 3)
    assert (run.start, run.size, run.end, len(run.chunks)) == (30, 120, 500, 3)
    assert run.split(bytes(30) + b"1" * 40 + b"2" * 50) == [bytes(30), b"1" * 40, b"2" * 50]
    assert [len(run_of(index, 200, 9, run_bytes=most).chunks) for most in (299, 300)] == [2, 3]
    assert len(run_of(index, 200, 9, run_bytes=10).chunks) == 1
    assert run_of(index, 800, 9).end == 950


def test_requests_grow_and_are_ahead_of_the_reader() -> None:
    """Chunks of one byte, in order: each is returned once, and most runs were begun before they were asked for."""
    index, asked = ChunkIndex(1, 200, 1, 1), list[tuple[int, int]]()
    content = bytes(range(200))

    def fetch(start: int, size: int) -> bytes:
        asked.append((start, size))
        return content[start : start + size]

    reader, position, found = RunReader("log", index, fetch, ReadAhead()), 0, b""
    while position < 200:
        parts = reader.read(position)
        assert parts[0][0].position == position
        found += b"".join(data for _, data in parts)
        position += len(parts)
    assert found == content and len(asked) < 12
    asked.sort()
    assert [start + size for start, size in asked] == [*(start for start, _ in asked[1:]), 200]  # nothing twice
    assert [len(reader.read(at)) for at in (50, 7, 120)] == [1, 1, 1]  # not in order


def test_a_run_on_its_way_is_waited_for() -> None:
    run, ahead, is_asked = run_of(ChunkIndex(1, 100, 1, 1), 0, 4), ReadAhead(), threading.Event()

    def fetch(start: int, size: int) -> bytes:
        is_asked.wait()
        return sha256(bytes(8 << 20)).digest()[:size]  # takes a while

    ahead.start("log", run, fetch)
    threads = [one for one in threading.enumerate() if one.name == "kafkalog-tiered-read-ahead"]
    assert threads and all(one.daemon for one in threads), "the end of a program does not wait for a store"
    is_asked.set()
    assert ahead.take("log", run) == sha256(bytes(8 << 20)).digest()[:4]


def test_what_nobody_asks_for_is_forgotten() -> None:
    index, ahead = ChunkIndex(1, 100, 1, 1), ReadAhead(most=2)
    runs = [run_of(index, at, 4) for at in (0, 10, 20)]
    for run in runs:
        ahead.start("log", run, lambda start, size: bytes(size))
    assert [ahead.take("log", run) for run in runs] == [None, bytes(4), bytes(4)]
    assert ahead.take("log", runs[1]) is None

    def broken(start: int, size: int) -> bytes:
        raise OSError("the store is away")

    ahead.start("log", runs[0], broken)
    assert ahead.take("log", runs[0]) is None


@pytest.mark.parametrize("how", [{"compressed": True}, {"keys": KEYS}, {"compressed": True, "keys": KEYS}])
def test_a_segment_takes_few_requests(tmp_path: Path, how: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    from kafkalog.util.remote_files import RemoteFileSystem

    place, asked = make_place(tmp_path, **how), list[str]()
    whole = RemoteFileSystem.read_range

    def counted(fs: RemoteFileSystem, path: str, start: int, stop: int) -> bytes:
        if path.endswith(".log"):
            asked.append(path)
        return whole(fs, path, start, stop)

    monkeypatch.setattr(RemoteFileSystem, "read_range", counted)
    chunks = -(-len(place.copies[1].data) // 300)
    with place.open() as log:
        assert [(one.offset, one.value) for one in log.records()] == values_of(place.batches)
    assert chunks >= 6 and asked.count(str(place.object(".log"))) <= chunks // 2 + 1


@pytest.mark.parametrize("run_bytes", [1 << 20, 700])
def test_damage_in_a_chunk_of_a_run_is_an_error_where_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_bytes: int
) -> None:
    monkeypatch.setattr(read_ahead, "RUN_BYTES", run_bytes)
    place = make_place(tmp_path, keys=KEYS)
    content = bytearray(place.object(".log").read_bytes())
    content[-5] ^= 0xFF
    place.object(".log").write_bytes(content)
    segment = ObjectStore(read_description(place.description)).plugin_segment(
        str(place.object(".log")).removesuffix(".log"), 18, None
    )
    whole, found = place.copies[1].data, b""
    with pytest.raises(StorageError, match="the chunk in bytes"):
        while True:
            found += segment.read_log(len(found), min(300, len(whole) - len(found)))
    assert found == whole[: (len(whole) - 1) // 300 * 300]
    with place.open() as log, pytest.raises(StorageError, match="the chunk in bytes"):
        list(log.records())
