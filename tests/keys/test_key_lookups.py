"""Look-ups by key in logs with transactions, old formats, keys of one hash, large buckets and several blocks."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog._core.batch.decode import decode
from kafkalog._core.batch.scan import scan
from kafkalog._core.bytes.crc import crc32c
from kafkalog._core.keys.given_keys import hash_keys
from kafkalog._core.keys.key_builder import KeyBuilder
from kafkalog._core.keys.key_finder import KeyFinder
from kafkalog._core.keys.key_index import IS_DAMAGED, KeyIndex
from kafkalog._core.keys.key_map import KeyMap
from kafkalog._core.keys.key_reader import UNDECIDED, KeyReader, ReadPart
from kafkalog._core.keys.key_walk import hash_key
from kafkalog.errors import CorruptRecord
from kafkalog.keys import build, lookup, parts
from kafkalog.sidecars.identity import FileStamp
from tests import transactional
from tests.builder import R, batch
from tests.transactional import Log as TransactionalLog

SECRET = bytes(range(16))
KeyList = st.lists(st.one_of(st.none(), st.integers(0, 12).map(lambda n: b"key-%d" % n)), min_size=1, max_size=200)


def built(
    keys: list[bytes | None], reading: Callable[[], object] = lambda: None
) -> tuple[KeyIndex, KeyMap, dict[bytes, list[int]]]:
    """An index, a map and the offsets of one batch of records with these keys, base offset 100.

    `reading` is called before the index reads a page.
    """
    data = batch([R(b"v", key) for key in keys], base_offset=100)
    table = scan(data)
    end = 100 + len(keys)
    builder, found = KeyBuilder(SECRET, 100, end), KeyMap(SECRET, 100)
    builder.mark(table, 0, 1)
    assert builder.take(data, table, 0, 1) and found.take(data, table, 0, 1)
    block, entries, bits, marks = builder.finish()
    pages = [block[at : at + 16384] for at in range(0, len(block), 16384)]
    index = KeyIndex(
        lambda size, at: (reading(), block[at : at + size])[1],
        pages_at=0, pages_bytes=len(block), blocks=[(entries, bits, marks)],
        checksums=b"".join(crc32c(page).to_bytes(4, "little") for page in pages),
        base_offset=100, next_offset=end, segment_bytes=len(data),
    )  # fmt: skip
    model: dict[bytes, list[int]] = {}
    for offset, key in enumerate(keys, 100):
        if key is not None:
            model.setdefault(key, []).append(offset)
    return index, found, model


@given(keys=KeyList, repeats=st.integers(1, 40), below=st.integers(0, 10_000))
@settings(max_examples=60)
def test_an_index_and_a_map_find_what_was_put(keys: list[bytes | None], repeats: int, below: int) -> None:
    """Many records of one key make a bucket that is sorted; the answer is the same."""
    index, held, model = built(keys * repeats)
    for key in [*{key for key in keys if key is not None}, b"nobody"]:
        hashed, offsets = hash_key(SECRET, key), model.get(key, [])
        lower = [offset for offset in offsets if offset < below]
        for search in (index, held):
            assert search.find_all(hashed, 0, 2**40) == offsets
            assert search.find_all(hashed, 101, below) == [offset for offset in lower if offset >= 101]
            assert search.find_last(hashed, below) == (lower[-1] if lower else -1)
            out = bytearray(b"\xff" * 16)
            search.find_last_many(hash_keys(SECRET, [key, key]), 2**40, out)
            assert memoryview(out).cast("q").tolist() == [offsets[-1] if offsets else -1] * 2
    assert index.place(100) == (0, index.place(100)[1]) and index.place(99) == (-1, 0)


@pytest.mark.parametrize("count", [31, 32, 33, 100, 4095, 4096, 9000])
def test_many_hashes_are_looked_up_where_no_offset_is_found_yet(count: int) -> None:
    """Those of a later segment stay; few hashes are looked up as they come, many in order, in groups of 32."""
    keys = [b"key-%d" % (n % 700) for n in range(count)]
    index, _, model = built([b"key-%d" % n for n in range(650)] * 2)
    later = [n % 3 == 0 or n > count - 40 for n in range(count)]
    for known in (later, [False] * count, [True] * count):
        before = [10**6 + n if is_known else -1 for n, is_known in enumerate(known)]
        found = bytearray(b"".join(offset.to_bytes(8, "little", signed=True) for offset in before))
        assert index.find_last_many(hash_keys(SECRET, keys), 2**40, found)
        expected = [old if old >= 0 else model.get(key, [-1])[-1] for old, key in zip(before, keys, strict=True)]
        assert memoryview(found).cast("q").tolist() == expected


def test_a_page_that_cannot_be_read_is_told() -> None:
    index, _, _ = built([b"a", b"b"])
    assert index.is_sound()

    def fail(size: int, at: int) -> bytes:
        raise OSError("no")

    sizes = {"pages_at": 0, "pages_bytes": 8, "base_offset": 0, "next_offset": 5, "segment_bytes": 9}
    broken = KeyIndex(fail, checksums=b"\0" * 4, blocks=[(0, 0, 0)], **sizes)  # type: ignore[arg-type]
    assert broken.find_last(1, 5) == IS_DAMAGED and broken.find_all(1, 0, 5) is None
    assert not broken.find_last_many(b"\0" * 8, 5, bytearray(b"\xff" * 8)) and isinstance(broken.error, OSError)
    short = KeyIndex(lambda size, at: b"", checksums=b"\0" * 4, blocks=[(0, 0, 0)], **sizes)  # type: ignore[arg-type]
    assert short.find_last(1, 5) == IS_DAMAGED and not short.is_sound()
    with pytest.raises(ValueError, match="do not fit together"):
        KeyIndex(fail, checksums=b"\0" * 8, blocks=[(0, 0, 0)], **sizes)  # type: ignore[arg-type]


@pytest.mark.parametrize("every", [False, True])
def test_pages_stay_while_a_search_reads_another(every: bool) -> None:
    """Another thread, which limits the memory meanwhile, does not take those that the search has looked at."""
    indexes: list[KeyIndex] = []
    held: list[bool] = []

    def released() -> None:
        for index in indexes:
            before = index.held_bytes
            index.release()
            held.append(index.held_bytes == before)

    index, _, model = built([b"key-%d" % number for number in range(20_000)], released)
    indexes.append(index)
    for key, offsets in list(model.items())[::50]:
        hashed = hash_key(SECRET, key)
        found = index.find_all(hashed, 0, 1 << 40) if every else [index.find_last(hashed, 1 << 40)]
        assert found == offsets
    assert len(held) > 10 and all(held)
    index.release()
    assert index.held_bytes == 0


def test_a_map_that_another_thread_follows_is_not_searched() -> None:
    """The thread that puts keys into the map distrusts the reader first, and then gives up the GIL."""
    _, found, _ = built([b"a"])

    class Source:
        state = "as it was"

        @property
        def closed(self) -> bool:
            reader.state = None  # another thread runs while this one asks
            return False

    source = Source()
    reader = KeyReader(source, [ReadPart(SECRET, 100, found, lambda position, size: b"", None)], lambda at: None, list)
    reader.state, reader.start_offset = source.state, 100
    assert reader.get(b"nobody") is UNDECIDED


def test_indexes_are_counted_while_others_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of single keys goes through them without a lock, to limit their memory."""
    counts: list[Iterator[object]] = []
    stamp = parts.Parts._stamp

    def counting(self: parts.Parts, segment: Any) -> FileStamp:
        counts.append(iter(self._closed.values()))
        next(counts[-1], None)
        return stamp(self, segment)

    monkeypatch.setattr(parts.Parts, "_stamp", counting)
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        for number in range(6):
            log.append([(b"%d" % number, b"")])
            log.roll()
            if number > 2:
                assert log.get(b"0")
    assert sum(len([*one]) for one in counts) > 0  # RuntimeError if one was changed meanwhile


def test_a_reader_compares_the_key() -> None:
    """The index names a record, whose batch says of another key that it is there."""
    keys = [b"key-%d" % number for number in range(100)]
    index, _, _ = built([*keys])
    other = batch([R(b"v", b"KEY-%d" % number) for number in range(100)], base_offset=100)
    same = batch([R(b"v", key) for key in keys], base_offset=100)
    for data in (other, same):
        part = ReadPart(SECRET, 100, index, lambda position, size, data=data: data[position : position + size], None)
        source = SimpleNamespace(state="as it was", closed=False)
        reader = KeyReader(source, [part], lambda offset: None, lambda: None)
        assert reader.get(keys[3]) is UNDECIDED  # not yet trusted
        reader.state, reader.start_offset = source.state, 100
        for _ in range(3):
            found = [reader.get(key) for key in keys]
            assert found == ([UNDECIDED] * 100 if data is other else list(decode(data, scan(data))))
        assert reader.get(b"nobody") is None
        source.state = "changed"
        assert reader.get(keys[3]) is UNDECIDED


def test_get_answers_alike_however_it_is_called(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "a-0", "a") as log:
        log.append([(b"k", b"v")])
        log.roll()
        log.build_key_index()
        log.append([(b"end", b"w")])
        get: Any = kafkalog.Log.get
        for _ in range(2):  # the second time the compiled reader is there
            for key, value in ((b"k", b"v"), (b"end", b"w")):
                calls = [
                    log.get(key), log.get(*[key]), log.get(key=key), log.get(key, isolation="log_end"),
                    log.get(bytearray(key)), get(log, key), get(log, key=key), get.__call__(log, key),
                    get.__get__(log)(key), next(map(log.get, [key])),
                ]  # fmt: skip
                assert [record and record.value for record in calls] == [value] * len(calls)
            assert log.get(b"nobody") is None and log.get(key=b"nobody") is None
        for arguments, named in (((), {}), ((b"k", b"k"), {}), ((b"k",), {"isolaton": 1}), ((b"k",), {"key": b"k"})):
            with pytest.raises(TypeError, match="get"):
                get(log, *arguments, **named)
        with pytest.raises(TypeError, match="get"):
            get()
        with pytest.raises(TypeError, match="encode it first"):
            log.get("k")  # type: ignore[arg-type]
    with pytest.raises(kafkalog.LogClosed):
        log.get(b"k")


@given(st.integers(0, 2**32), st.integers(0, 60))
def test_pages_that_match_their_checksums_may_still_be_wrong(seed: int, size: int) -> None:
    """Numbers beyond their limits are noticed, whatever the checksum says."""
    pages = random.Random(seed).randbytes(8 + 16 * 8)
    if size % 2:
        pages = bytes(8) + pages[8:]
    index = KeyIndex(
        lambda count, at: pages[at : at + count], pages_at=0, pages_bytes=len(pages),
        checksums=crc32c(pages).to_bytes(4, "little"), blocks=[(8, 0, 8)], base_offset=10, next_offset=10 + size,
        segment_bytes=50,
    )  # fmt: skip
    assert index.find_last(seed, 100) in (IS_DAMAGED, -1) or 10 <= index.find_last(seed, 100) < 10 + size
    assert all(10 <= offset < 10 + size for offset in index.find_all(seed, 0, 2**40) or [])
    position, length = index.place(10)
    assert position == -1 or length > 0


def test_keys_of_one_hash_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of the record decides: here every key is looked up by the hash of one that is there."""
    monkeypatch.setattr(parts.Parts, "trust", lambda self, state: None)  # else a compiled call hashes
    path = tmp_path / "t-0"
    with kafkalog.open(path, "a") as log:
        log.append([(b"a", b"1"), (b"a", b"2"), (b"b", b"3")])
        log.roll()
        log.build_key_index()
        for _ in range(2):
            monkeypatch.setattr(lookup, "hash_key", lambda secret, key: hash_key(secret, b"a"))
            monkeypatch.setattr(lookup, "hash_keys", lambda secret, keys: hash_keys(secret, [b"a"] * len(keys)))
            assert log.get(b"b") is None and list(log.history(b"b")) == []
            assert log.get_many([b"a", b"b"]) == [log[1], None]
            monkeypatch.undo()
            log.drop_key_index()


def test_committed_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An aborted record is no answer for `read_committed`, nor one of an open transaction."""

    def keyed(value: bytes, key: bytes | None = None, **more: int) -> R:
        return R(value, key or b"key-%d" % (value[-1] % 3), **more)

    monkeypatch.setattr(transactional, "R", keyed)
    source = TransactionalLog()
    events = [("plain", 0, 2), ("data", 7, 3), ("data", 8, 2), ("abort", 7, 0), ("roll", 0, 0), ("data", 7, 2)]
    events += [("commit", 8, 0), ("plain", 0, 1), ("roll", 0, 0), ("commit", 7, 0), ("data", 9, 2), ("plain", 0, 1)]
    for event in events:
        source.add(event)
    source.write(tmp_path / "data" / "t-0")
    with kafkalog.open(tmp_path / "data" / "t-0") as log:
        for store in (None, tmp_path / "store"):
            if store is not None:
                log.build_key_index(store=store)
            for isolation in (None, "read_committed"):
                model: dict[bytes, list[kafkalog.Record]] = {}
                for record in log.records(isolation=isolation):
                    if record.key is not None:
                        model.setdefault(record.key, []).append(record)
                everything = {record.key for record in log if record.key is not None}
                assert len(everything) == 3
                for key in everything:
                    expected = model.get(key, [])
                    assert list(log.history(key, isolation=isolation)) == expected
                    assert log.get(key, isolation=isolation) == (expected[-1] if expected else None)
                    assert log.get_many([key], isolation=isolation) == [expected[-1] if expected else None]


def test_several_blocks_and_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "MOST_BLOCK_RECORDS", 3000)
    monkeypatch.setattr(parts, "PAGES_BYTES", 20_000)
    path = tmp_path / "t-0"
    rng = random.Random(5)
    with kafkalog.open(path, "a") as log:
        model: dict[bytes, int] = {}
        for _ in range(200):
            keys = [b"key-%d" % rng.randrange(5000) for _ in range(100)]
            info = log.append([(key, b"v" * 20) for key in keys])
            model |= {key: info.first_offset + i for i, key in enumerate(keys)}
        log.roll()
        assert log.build_key_index()[0].records == 20_000
        for key in rng.sample(sorted(model), 2000):
            found = log.get(key)
            assert found is not None and found.offset == model[key]
        assert [record and record.offset for record in log.get_many(list(model))] == list(model.values())
        key = max(model)
        assert [record.offset for record in log.history(key)] == [record.offset for record in log if record.key == key]


def test_arrow_keys(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([(b"a", b"1"), (b"b", b"2")])
        for array in (pyarrow.array(["b", "x"]), pyarrow.array([b"b", b"x"]), pyarrow.chunked_array([["b"], ["x"]])):
            assert log.get_many(array) == [log[1], None]
        assert log.get_many(key for key in (b"b", b"a")) == [log[1], log[0]]
        assert log.get_many([]) == []


def test_a_search_counts_no_hash_twice() -> None:
    data = batch([R(b"v", key) for key in (b"a", b"b", None, b"a")])
    finder = KeyFinder(SECRET, hash_keys(SECRET, [b"a", b"a", b"x"]), 0, 3, every=True)
    assert finder.take(data, scan(data), 0, 1)
    assert memoryview(finder.last_offsets).cast("q").tolist() == [0, 0, -1] and finder.take_found() == [0]


def test_what_lies_behind_the_memory_for_keys_is_searched(tmp_path: Path) -> None:
    keys = [b"k%d" % (n % 50) for n in range(400)]
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        for start in range(0, 400, 20):
            log.append([(key, b"%d" % n) for n, key in enumerate(keys[start : start + 20], start)])
        log.delete_before(10)
    limit = 28 * 128
    writer = kafkalog.open(tmp_path / "t-0", "a", key_memory_bytes=limit)
    reader = kafkalog.open(tmp_path / "t-0", key_memory_bytes=limit)
    with writer, reader:
        for log in (writer, reader, writer, reader):
            model: dict[bytes, list[int]] = {}
            for record in log:
                model.setdefault(record.key or b"", []).append(record.offset)
            assert log.get_many([*model, b"nobody"]) == [log[own[-1]] for own in model.values()] + [None]
            for key, own in model.items():
                assert log.get(key) == log[own[-1]] and [one.offset for one in log.history(key)] == own
            assert {key: one.offset for key, one in log.latest().items()} == {k: own[-1] for k, own in model.items()}
            assert log._keys is not None
            mapped, behind = log._keys.parts.current()
            assert isinstance(mapped.index, KeyMap) and mapped.index.memory_bytes <= limit
            assert mapped.bound == behind.base_offset == 120 and behind.index is None
            writer.append([(b"k7", b"again"), (b"another", b"-")])
        writer.truncate_to(100)
        for log in (writer, reader):
            last = [one for one in log if one.key == b"k7"][-1]
            assert log.get(b"k7") == last and len(log._keys.parts.current()) == 1


@pytest.mark.parametrize("in_memory", [False, True])
def test_the_mapping_of_latest_records_cannot_be_changed(tmp_path: Path, in_memory: bool) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([(b"k", b"v")])
        latest: Any = log.latest(in_memory=in_memory)
        with pytest.raises(TypeError, match="item assignment"):
            latest[b"k"] = log[0]
        with pytest.raises(TypeError, match="item deletion"):
            del latest[b"k"]
        assert not {"clear", "pop", "popitem", "setdefault", "update"} & set(dir(latest)) and len(latest) == 1


def test_a_wrong_memory_for_keys(tmp_path: Path) -> None:
    kafkalog.open(tmp_path / "t-0", "a").close()
    for wrong in (-1, "many", True, 1.5):
        with pytest.raises(kafkalog.errors.IllegalArgument, match="key_memory_bytes"):
            kafkalog.open(tmp_path / "t-0", key_memory_bytes=wrong)


def test_a_map_without_room_leaves_one_part_behind(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a", key_memory_bytes=0) as log:
        for _ in range(5):
            log.append([(b"a", b"1"), (b"b", b"2")])
            assert log.get(b"b") == log[1]
            log.truncate_to(0)
            assert log.get(b"b") is None
        assert len(log._keys.parts.current()) == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("codec", ["uncompressed", "zstd"])
def test_a_record_found_holds_only_its_own_bytes(tmp_path: Path, codec: str) -> None:
    """Also where the batch is compressed, or its transaction is looked at: many of them would fill the memory."""
    with kafkalog.open(tmp_path / "t-0", "a", compression_type=codec) as log:
        log.append([(b"k%d" % n, b"%d" % n * 300) for n in range(1000)])
        for record in (log.get(b"k7"), log.get(b"k7", isolation="read_committed"), log[7]):
            assert record is not None and record.value_view is not None
            assert record.value == b"7" * 300 and memoryview(record.value_view.obj).nbytes < 400


@pytest.mark.parametrize("call", ["find_last", "find_all", "find_last_many", "place"])
def test_ctrl_c_while_a_page_is_read_ends_the_search_and_is_no_damage(call: str) -> None:
    interrupts = [KeyboardInterrupt()]

    def read_once() -> None:
        if interrupts:
            raise interrupts.pop()

    index, _, model = built([b"key-%d" % n for n in range(50)], read_once)
    hashed, found = hash_key(SECRET, b"key-7"), bytearray(b"\xff" * 8)
    calls = {
        "find_last": lambda: index.find_last(hashed, 2**62),
        "find_all": lambda: index.find_all(hashed, 0, 2**62),
        "find_last_many": lambda: index.find_last_many(hashed.to_bytes(8, "little"), 2**62, found),
        "place": lambda: index.place(107),
    }
    with pytest.raises(KeyboardInterrupt):
        calls[call]()
    assert calls[call]() not in (IS_DAMAGED, None, False, (-1, 0)) and index.error is None
    assert index.find_all(hashed, 0, 2**62) == model[b"key-7"]


def test_a_mapping_of_a_log_whose_first_batch_is_damaged_raises(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([(b"k", b"v")])
    path = tmp_path / "t-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-1])
    with kafkalog.open(tmp_path / "t-0") as log:
        assert log.end_offset == 0
        for in_memory in (False, True):
            with pytest.raises(CorruptRecord):
                len(log.latest(in_memory=in_memory))
