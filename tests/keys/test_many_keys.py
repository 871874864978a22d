"""Arrays of keys, and what look-ups share with them: records of every kind, the order of memory, hashes, marks."""

import pickle
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog._core.batch.decode import decode
from kafkalog._core.batch.scan import scan
from kafkalog._core.keys.given_keys import GivenKeys, hash_keys
from kafkalog._core.keys.key_builder import KeyBuilder
from kafkalog._core.keys.key_index import KeyIndex
from kafkalog._core.keys.key_records import KeyRecords
from kafkalog._core.keys.key_walk import hash_key
from kafkalog.log.keyed import lookup_of
from tests.builder import R, batch, seal
from tests.keys.test_key_lookups import SECRET, built
from tests.keys.test_sections import same

SIZES = st.sampled_from([None, 0, 1, 90, 1000, 1023, 1024, 1025, 5000])
Rows = st.lists(st.tuples(st.integers(0, 25), SIZES, st.booleans()), min_size=1, max_size=30)


@given(batches=st.lists(Rows, min_size=1, max_size=4), stamped=st.booleans(), seed=st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_records_of_every_kind(
    new_path: Callable[[str], Path], batches: list[list[tuple[int, int | None, bool]]], stamped: bool, seed: int
) -> None:
    """Tombstones, empty, large, with headers, stamped on append; keys asked for twice, and keys that are nowhere."""
    rng = random.Random(seed)
    kind = "LogAppendTime" if stamped else "CreateTime"
    with kafkalog.open(new_path("many") / "t-0", "a", message_timestamp_type=kind) as log:
        for rows in batches:
            log.append([
                kafkalog.Record(None if size is None else rng.randbytes(size), b"k%d" % n, headers=[("h", b"x")] * more)
                for n, size, more in rows
            ])  # fmt: skip
            if rng.random() < 0.5:
                log.roll()
        log.build_key_index()
        last = {record.key: record for record in log}
        asked = [b"k%d" % rng.randrange(28) for _ in range(60)]
        for key, found in zip(asked, log.get_many(asked), strict=True):
            assert found is None if key not in last else same(found, last[key])
            assert log.get(key) == found


def test_copies_beyond_the_memory_for_them_become_records_at_once() -> None:
    keys = [b"key-%d" % n for n in range(500)]
    data = batch([R(b"v" * (n % 7 * 200), key) for n, key in enumerate(keys)], base_offset=100)
    records = list(decode(data, scan(data)))
    numbers = random.Random(3).sample(range(500), 500) + [7, 7]
    offsets = b"".join((100 + n).to_bytes(8, "little") for n in numbers)
    asked = [keys[n] for n in numbers]
    wrong = asked.index(keys[9])
    asked[wrong] = b"another"
    for most_bytes in (1, 1 << 30):
        picker = KeyRecords(GivenKeys(asked), offsets, 100, most_bytes)
        assert picker.take(data, scan(data), 0, 1)
        picker.finish()
        assert picker.missed == [wrong] and picker.absent == 0 and picker.offset == -1
        expected = [None if at == wrong else records[n] for at, n in enumerate(numbers)]
        assert picker.records == expected
        picker.finish()
        assert picker.records == expected


def test_a_record_before_the_wanted_one_has_the_offset_of_another() -> None:
    """Records are passed over by their lengths only while each has the offset that its place in the batch says."""
    damaged = bytearray(batch([R(b"v", b"k%d" % n) for n in range(9)]))
    at = 61 + 5 * 10 + 3  # the offset delta of the sixth record, of ten bytes each
    assert damaged[at] == 2 * 5
    damaged[at] = 2 * 4
    data = seal(bytes(damaged))
    picker = KeyRecords(GivenKeys([b"k5", b"k6", b"k4"]), b"".join(n.to_bytes(8, "little") for n in (5, 6, 4)), 0)
    assert picker.take(data, scan(data), 0, 1)
    picker.finish()
    assert picker.missed == [0]
    assert [record and record.key for record in picker.records] == [None, b"k6", b"k4"]


@given(st.lists(st.tuples(st.sampled_from([0, 1, 50, 51, 120, 9000]), st.integers(1, 90)), max_size=12), st.randoms())
@settings(deadline=None, max_examples=60)
def test_runs_of_records_of_one_length(runs: list[tuple[int, int]], rng: random.Random) -> None:
    """A record as long as the one before is passed over without a look at all of its length."""
    sizes = [size for size, count in runs for _ in range(count)] or [3]
    keys = [b"k%d" % n for n in range(len(sizes))]
    data = batch([R(b"v" * size, key) for size, key in zip(sizes, keys, strict=True)])
    numbers = [rng.randrange(len(sizes)) for _ in range(1 + len(sizes) // 7)]
    picker = KeyRecords(GivenKeys([keys[n] for n in numbers]), b"".join(n.to_bytes(8, "little") for n in numbers), 0)
    assert picker.take(data, scan(data), 0, 1)
    picker.finish()
    records = list(decode(data, scan(data)))
    assert picker.records == [records[n] for n in numbers]


def test_a_record_as_long_as_the_one_before_that_ends_behind_the_batch() -> None:
    whole = batch([R(b"v" * 50, b"k%d" % n) for n in range(9)])
    size = (len(whole) - 61) // 9
    for kept in range(8 * size - 1, 7 * size, -1):
        cut = bytearray(whole[: 61 + kept])
        cut[8:12] = (len(cut) - 12).to_bytes(4, "big")
        data = seal(bytes(cut))
        picker = KeyRecords(GivenKeys([b"k2", b"k8"]), b"".join(n.to_bytes(8, "little") for n in (2, 8)), 0)
        assert not picker.take(data, scan(data), 0, 1)
        assert (picker.error_record, picker.error_position) == (7, 61 + 7 * size)


def test_an_index_that_fills_a_large_page(tmp_path: Path) -> None:
    """Its address and content stay when its small pages become a large one, also while it is read again."""
    count = 300_000
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        for first in range(0, count, 5000):
            log.append([(b"%d" % n, None) for n in range(first, first + 5000)])
        log.roll()
        log.build_key_index()
        keys = random.Random(4).sample(range(count), count)
        index = lookup_of(log).parts.current()[0].index
        assert isinstance(index, KeyIndex)
        for _ in range(2):
            found = pyarrow.table(log.get_table([b"%d" % n for n in keys], ["offset"]))["offset"]
            assert found.to_pylist() == keys and found.num_chunks == 2
            assert index.held_bytes > 2 << 20
            assert [log[n] == log.get(b"%d" % n) for n in keys[:500]] == [True] * 500
            index.release()
            assert index.held_bytes == 0


@given(st.lists(st.integers(-5, 2**62), max_size=300), st.integers(0, 2**62))
def test_offsets_are_wanted_in_their_order(offsets: list[int], start: int) -> None:
    keys = [b"k"] * len(offsets)
    picker = KeyRecords(GivenKeys(keys), b"".join(one.to_bytes(8, "little", signed=True) for one in offsets), start)
    found = []
    while picker.offset >= 0:
        found.append(picker.offset)
        picker.take_one(None)
    assert found == sorted({one for one in offsets if one >= start})
    assert picker.missed == [at for at, one in enumerate(offsets) if one >= start]
    assert picker.absent == sum(one < start for one in offsets)


@given(st.lists(st.binary(max_size=80), max_size=80))
def test_hashes_of_many_keys_are_those_of_each(keys: list[bytes]) -> None:
    together = hash_keys(SECRET, keys)
    assert [together[8 * i : 8 * i + 8] for i in range(len(keys))] == [
        hash_key(SECRET, key).to_bytes(8, "little") for key in keys
    ]


@pytest.mark.parametrize("keys", [[b"k"] * 20_000, [b"a", b"b"] * 6000, [b"%d" % (n * n) for n in range(30_000)]])
def test_streams_of_any_length(keys: list[bytes | None]) -> None:
    """One key again and again fills one stream of the builder; many keys fill all."""
    index, _, model = built(keys)
    for key in dict.fromkeys(keys[:: len(keys) // 50]):
        assert key is not None and index.find_all(hash_key(SECRET, key), 0, 1 << 40) == model[key]
        assert index.find_last(hash_key(SECRET, key), 1 << 40) == model[key][-1]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 40)), min_size=1, max_size=120), st.randoms())
@settings(max_examples=60)
def test_the_batch_of_an_offset_is_found(batches: list[tuple[int, int]], rng: random.Random) -> None:
    """Batches of one record to nine, with gaps of any size between them."""
    data, spans, offset = b"", [], 50
    for count, gap in batches:
        if rng.random() < 0.05:
            offset += gap * 100_000
        offset += gap
        spans.append((offset, offset + count, len(data)))
        data += batch([R(b"v", b"k")] * count, base_offset=offset)
        offset += count
    builder, table = KeyBuilder(SECRET, 50, offset), scan(data)
    builder.mark(table, 0, len(batches))
    assert builder.take(data, table, 0, len(batches))
    block, entries, bits, marks = builder.finish()
    index = KeyIndex(
        lambda size, at: block[at : at + size], pages_at=0, pages_bytes=len(block), blocks=[(entries, bits, marks)],
        checksums=b"".join(_checksum(block[at : at + 16384]) for at in range(0, len(block), 16384)),
        base_offset=50, next_offset=offset, segment_bytes=len(data),
    )  # fmt: skip
    for first, stop, position in spans:
        for wanted in (first, stop - 1):
            begin, size = index.place(wanted)
            assert begin <= position < begin + size
            within = [place for *_, place in spans if begin <= place < begin + size]
            assert len(within) <= 4


def _checksum(page: bytes) -> bytes:
    from kafkalog._core.bytes.crc import crc32c

    return crc32c(page).to_bytes(4, "little")


def test_a_record_without_a_table_is_like_any_other(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([(b"k", b"v"), (b"n", None), (b"e", b"")])
        log.roll()
        log.build_key_index()
        for key, value in ((b"k", b"v"), (b"n", None), (b"e", b"")):
            for _ in range(2):
                found = log.get(key)
                assert found is not None and (found.key, found.value, found.headers) == (key, value, ())
                assert found.key_view == key and found.value_view == value and not found.is_control
                assert pickle.loads(pickle.dumps(found)) == found
                assert found.leader_epoch == log[found.offset].leader_epoch
        found.__init__(b"x")  # type: ignore[misc]
        assert found.leader_epoch == -1 and found.timestamp_type == 0
