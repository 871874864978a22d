"""The cleaner's offset map: a dict with a hash in place of the key, and the reference's probing where that is asked."""

import hashlib
import math
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.clean.offset_map import BYTES_PER_SLOT, SkimpyOffsetMap

MASK = (1 << 64) - 1
KEY = bytes(range(16))
HASHES = ["siphash", "md5"]
SMALL_KEYS = st.binary(max_size=2)


def by_the_paper(key: bytes, data: bytes) -> bytes:
    """SipHash-2-4 with 128 bits of result, word by word."""
    words = [int.from_bytes(key[i : i + 8], "little") for i in (0, 8)] * 2
    constants = [0x736F6D6570736575, 0x646F72616E646F6D ^ 0xEE, 0x6C7967656E657261, 0x7465646279746573]
    v = [word ^ constant for word, constant in zip(words, constants, strict=True)]

    def turned(n: int, bits: int) -> int:
        return (n << bits | n >> (64 - bits)) & MASK

    def rounds(count: int) -> None:
        for _ in range(count):
            for a, b, bits, half in ((0, 1, 13, True), (2, 3, 16, False), (0, 3, 21, False), (2, 1, 17, True)):
                v[a] = (v[a] + v[b]) & MASK
                v[b] = turned(v[b], bits) ^ v[a]
                if half:
                    v[a] = turned(v[a], 32)

    def result() -> bytes:
        return (v[0] ^ v[1] ^ v[2] ^ v[3]).to_bytes(8, "little")

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xEE
    rounds(4)
    first = result()
    v[1] ^= 0xDD
    rounds(4)
    return first + result()


class ByTheRule:
    """The reference's map: probes by the bytes of the hash, then on from its last four; CLN-1, CLN-2."""

    def __init__(self, slots: int) -> None:
        self.table: list[tuple[bytes, int] | None] = [None] * slots
        self.size = self.lookups = self.probes = 0

    def place(self, digest: bytes, attempt: int) -> int:
        at = min(attempt, 12)
        number = int.from_bytes(digest[at : at + 4], "big", signed=True) + max(0, attempt - 12)
        number = (number + 2**31) % 2**32 - 2**31
        self.probes += 1
        return (0 if number == -(2**31) else abs(number)) % len(self.table)

    def put(self, key: bytes, offset: int) -> bool:
        if self.size == len(self.table):
            return False
        digest = hashlib.md5(key).digest()
        self.lookups += 1
        attempt = 0
        while (held := self.table[place := self.place(digest, attempt)]) is not None and held[0] != digest:
            attempt += 1
        self.size += held is None
        self.table[place] = digest, offset
        return True

    def get(self, key: bytes) -> int:
        digest = hashlib.md5(key).digest()
        self.lookups += 1
        for attempt in range(len(self.table) + 12):
            held = self.table[self.place(digest, attempt)]
            if held is None:
                break
            if held[0] == digest:
                return held[1]
        return -1


@pytest.mark.parametrize(
    ("size", "hexed"),
    [
        (0, "a3817f04ba25a8e66df67214c7550293"),
        (1, "da87c1d86b99af44347659119b22fc45"),
        (7, "a1f1ebbed8dbc153c0b84aa61ff08239"),
        (8, "3b62a9ba6258f5610f83e264f31497b4"),
        (15, "5493e99933b0a8117e08ec0f97cfc3d9"),
    ],
)
def test_the_published_values_of_siphash(size: int, hexed: str) -> None:
    assert by_the_paper(KEY, bytes(range(size))).hex() == hexed
    assert SkimpyOffsetMap(0, secret=KEY).digest(bytes(range(size))).hex() == hexed


@given(st.binary(max_size=300), st.binary(min_size=16, max_size=16), st.integers(0, 9))
def test_hashes_of_any_length_and_alignment(data: bytes, secret: bytes, skipped: int) -> None:
    view = memoryview(data)[skipped:]
    assert SkimpyOffsetMap(0, secret=secret).digest(view) == by_the_paper(secret, data[skipped:])
    assert SkimpyOffsetMap(0, "md5").digest(view) == hashlib.md5(view).digest()


def test_each_map_has_a_hash_of_its_own() -> None:
    assert SkimpyOffsetMap(24).digest(b"key") != SkimpyOffsetMap(24).digest(b"key")


@pytest.mark.parametrize("hash", HASHES)
@pytest.mark.parametrize(("memory", "slots"), [(0, 0), (23, 0), (24, 1), (47, 1), (48, 2), (24_000, 1000)])
def test_slots_of_a_memory(memory: int, slots: int, hash: str) -> None:
    """CLN-1"""
    made = SkimpyOffsetMap(memory, hash)  # type: ignore[arg-type]
    assert (made.slots, made.capacity, made.size, len(made), made.latest_offset) == (slots, slots, 0, 0, -1)
    assert made.get(b"key") == -1
    assert BYTES_PER_SLOT == 24


@pytest.mark.parametrize("hash", HASHES)
def test_a_full_map_takes_nothing(hash: str) -> None:
    """CLN-1: not even a known key, whose offset could be replaced a moment before."""
    made = SkimpyOffsetMap(48, hash)  # type: ignore[arg-type]
    made.put(b"a", 1)
    made.put(b"a", 2)
    assert (made.size, made.get(b"a"), made.latest_offset, made.utilization) == (1, 2, 2, 0.5)
    made.put(b"b", 3)
    for key in (b"a", b"c"):
        with pytest.raises(ValueError, match="full offset map, entries: 2, slots: 2"):
            made.put(key, 9)
    assert (made.get(b"a"), made.get(b"b"), made.get(b"c"), made.latest_offset) == (2, 3, -1, 3)
    made.update_latest_offset(7)
    assert made.latest_offset == 7
    made.clear()
    assert (made.size, made.get(b"a"), made.latest_offset, made.utilization) == (0, -1, -1, 0)


@pytest.mark.parametrize("hash", HASHES)
@pytest.mark.parametrize("items", [10, 100, 1000, 5000])
def test_each_key_is_found_with_its_last_offset(items: int, hash: str) -> None:
    """CLN-2"""
    made = SkimpyOffsetMap(48 * items, hash)  # type: ignore[arg-type]
    for offset in range(2 * items):
        made.put(b"key %d" % (offset % items), offset)
    assert made.size == items
    assert [made.get(b"key %d" % i) for i in range(items)] == list(range(items, 2 * items))
    assert made.get(b"another") == -1


@pytest.mark.parametrize("hash", HASHES)
def test_a_key_that_is_not_in_a_full_map_is_looked_for_and_not_found(hash: str) -> None:
    """CLN-2"""
    made = SkimpyOffsetMap(24 * 50, hash)  # type: ignore[arg-type]
    for i in range(50):
        made.put(b"%d" % i, i)
    assert made.utilization == 1
    assert made.get(b"another") == -1


@given(st.lists(st.tuples(SMALL_KEYS, st.integers(-5, 2**62)), max_size=300), st.integers(0, 40), st.booleans())
def test_it_is_a_dict_that_fills(puts: list[tuple[bytes, int]], slots: int, cleared: bool) -> None:
    made = SkimpyOffsetMap(24 * slots + 23)
    if cleared:
        made.put(b"gone", 1) if slots else None
        made.clear()
    model: dict[bytes, int] = {}
    for key, offset in puts:
        if len(model) < slots:
            made.put(key, offset)
            model[key] = offset
            assert made.latest_offset == offset
        else:
            with pytest.raises(ValueError, match="full"):
                made.put(key, offset)
        assert made.size == len(model)
    assert all(made.get(key) == model.get(key, -1) for key, _ in puts)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.booleans(), SMALL_KEYS), max_size=300), st.integers(1, 40))
def test_md5_probes_as_the_reference_does(steps: list[tuple[bool, bytes]], slots: int) -> None:
    """CLN-1, CLN-2: the same answers and the same count of probes, to the last slot and beyond."""
    made, model = SkimpyOffsetMap(24 * slots, "md5"), ByTheRule(slots)
    for offset, (is_put, key) in enumerate(steps):
        if not is_put:
            assert made.get(key) == model.get(key)
        elif model.put(key, offset):
            made.put(key, offset)
        else:
            with pytest.raises(ValueError, match="full"):
                made.put(key, offset)
        if model.lookups:
            assert made.collision_rate == (model.probes - model.lookups) / model.lookups


def test_the_collisions_of_a_map_filled_to_its_last_slot() -> None:
    """CLN-1: with the reference's probing a map may lose a key only where that one loses it."""
    made, model = SkimpyOffsetMap(24_000, "md5"), ByTheRule(1000)
    for i in range(1000):
        made.put(b"%d" % i, i)
        model.put(b"%d" % i, i)
    assert made.collision_rate == (model.probes - model.lookups) / model.lookups > 1
    assert [made.get(b"%d" % i) for i in range(1100)] == [model.get(b"%d" % i) for i in range(1100)]


@pytest.mark.parametrize("hash", HASHES)
@given(st.lists(st.binary(min_size=3, max_size=3), max_size=200), st.integers(0, 90), st.integers(0, 99))
def test_a_run_of_keys_is_so_many_puts(hash: str, keys: list[bytes], slots: int, first_offset: int) -> None:
    made = SkimpyOffsetMap(24 * slots, hash)  # type: ignore[arg-type]
    model: dict[bytes, int] = {}
    put = 0
    for offset, key in enumerate(keys, first_offset):
        if len(model) == slots:
            break
        model[key] = offset
        put += 1
    assert made.put_run(b"".join(keys), 3, first_offset) == put
    assert [made.get(key) for key in keys] == [model.get(key, -1) for key in keys]
    assert (made.size, made.latest_offset) == (len(model), first_offset + put - 1 if put else -1)


@pytest.mark.parametrize("key_bytes", [*range(1, 34), 55, 56, 63, 64, 65, 200])
def test_keys_hashed_together_have_the_hash_that_each_has_by_itself(key_bytes: int) -> None:
    made = SkimpyOffsetMap(2400)
    keys = [bytes([i]) + bytes(range(i, i + key_bytes - 1)) if key_bytes < 150 else bytes([i]) * 200 for i in range(39)]
    assert made.put_run(b"".join(keys), key_bytes, 0) == 39
    assert [made.get(key) for key in keys] == list(range(39))


@pytest.mark.parametrize("expected", [0, 5, 1000, 10**9])
def test_a_map_that_knows_how_many_keys_will_come_takes_that_many(expected: int) -> None:
    slots = 50_000
    made = SkimpyOffsetMap(24 * slots)
    for _ in range(2):
        made.clear(expected=expected)
        count = min(expected, slots)
        assert made.capacity >= count
        for i in range(count):
            made.put(b"%d" % i, i)
        assert [made.get(b"%d" % i) for i in range(count)] == list(range(count))
        assert (made.slots, made.utilization) == (slots, count / slots)
    made.clear()
    assert (made.capacity, made.get(b"1")) == (slots, -1)


def test_a_large_map_is_empty_after_it_was_cleared() -> None:
    made = SkimpyOffsetMap(5 << 20)
    for i in range(100_000):
        made.put(b"%d" % i, i)
    assert made.get(b"99999") == 99999
    made.clear()
    assert all(made.get(b"%d" % i) == -1 for i in range(100_000))


@pytest.mark.parametrize("hash", HASHES)
def test_threads_that_share_a_map_against_the_rule_break_no_memory(hash: str) -> None:
    made = SkimpyOffsetMap(24 * 3000, hash)  # type: ignore[arg-type]
    keys = b"".join(b"%05d" % i for i in range(4000))

    def use(turn: int) -> None:
        for i in range(30):
            made.put_run(keys, 5, 0)
            if turn == 0:
                made.clear(expected=(None, 0, 2000)[i % 3])

    threads = [threading.Thread(target=use, args=(turn,)) for turn in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made.clear()
    assert made.put_run(keys, 5, 0) == 3000


def test_memory_is_given_back() -> None:
    """The memory that a map used for many keys is not kept for the next, smaller log."""

    def held_bytes() -> int:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE")

    keys = b"".join(b"%08d" % i for i in range(300_000))
    made = SkimpyOffsetMap(96 << 20)
    before = held_bytes()
    made.put_run(keys, 8, 0)
    full = held_bytes()
    made.clear(expected=1000)
    made.put_run(keys[:8000], 8, 0)
    assert full - before > 60 << 20
    assert held_bytes() - before < 30 << 20


def test_what_can_never_be_right() -> None:
    with pytest.raises(ValueError, match="from 0 on"):
        SkimpyOffsetMap(-1)
    with pytest.raises(ValueError, match="up to 2147483647"):
        SkimpyOffsetMap(1 << 31, "md5")
    with pytest.raises(ValueError, match="'siphash' or 'md5'"):
        SkimpyOffsetMap(24, "sha1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="16 bytes, not 3"):
        SkimpyOffsetMap(24, secret=b"abc")
    for key_bytes in (0, -1, 4):
        with pytest.raises(ValueError, match="no keys of"):
            SkimpyOffsetMap(24).put_run(b"abc", key_bytes, 0)
    with pytest.raises(TypeError):
        SkimpyOffsetMap(24).put("text", 1)  # type: ignore[arg-type]
    assert math.isnan(SkimpyOffsetMap(0).utilization)
    assert math.isnan(SkimpyOffsetMap(24).collision_rate)


@pytest.mark.parametrize("memory", [1 << 50, 1 << 62, 1 << 80])
def test_no_memory_is_a_memory_error(memory: int) -> None:
    with pytest.raises(MemoryError):
        SkimpyOffsetMap(memory)
