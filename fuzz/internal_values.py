"""Records of Kafka's own topics as columns: keys and values of coordinators, and the values of metadata."""

from __future__ import annotations

import struct
import zlib

import pyarrow as pa

from kafkalog.records.message import MessageError
from kafkalog.values.internal import COORDINATORS, METADATA, InternalDecoder

SEALS = False
SLOW = 64
"""One input in so many is decoded between others, and eight times as many alone if sound: columns take milliseconds."""
NAMES = (*COORDINATORS, *METADATA)
"""The first byte of an input is the number of a decoder, modulo their count; the second the size of its key."""


def text(value: bytes) -> bytes:
    """A string with its length."""
    return struct.pack(">h", len(value)) + value


OFFSET = b"\0\1" + text(b"g") + text(b"orders") + struct.pack(">i", 2)
GROUP = b"\0\2" + text(b"g")
STATE = text(b"app") + bytes(16) + struct.pack(">i", 2)
FIXED = struct.pack(">qhib", 7, 3, 60_000, 1)
TIMES = struct.pack(">qq", 1_700_000_000_000, -1)
BATCHES = bytes([3]) + struct.pack(">qqbhb", 0, 9, 2, 1, 0) + struct.pack(">qqbhb", 10, 11, 0, 0, 0)
PARTITION = b"\2t" + bytes(16) + struct.pack(">i", 0) + b"\0"
SEGMENT_ID = PARTITION + bytes(range(16)) + b"\0"
SAMPLES: dict[str, list[tuple[bytes, bytes]]] = {
    "group": [
        (OFFSET, struct.pack(">hqi", 3, 5, -1) + text(b"m") + bytes(8)),
        (OFFSET, struct.pack(">hq", 1, 5) + text(b"m") + bytes(16)),
        (GROUP, struct.pack(">h", 3) + text(b"consumer") + struct.pack(">i", 1) + text(b"range") + text(b"leader")
         + struct.pack(">qi", 9, 1) + text(b"member") + struct.pack(">h", -1) + text(b"client") + text(b"/host")
         + struct.pack(">iii", 1, 2, 3) + b"abc" + struct.pack(">i", 0)),
    ],
    "transaction": [
        (b"\0\0" + text(b"app"), b"\0\0" + FIXED + struct.pack(">i", 1) + text(b"a") + struct.pack(">iii", 2, 0, 5)
         + TIMES),
        (b"\0\0" + text(b"app"), b"\0\1" + FIXED + b"\2\2a\3" + struct.pack(">ii", 0, 5) + b"\0" + TIMES + b"\2\0\x08"
         + struct.pack(">q", 6) + b"\2\2" + struct.pack(">h", 2)),
    ],
    "share-state": [
        (b"\0\0" + STATE, b"\0\0" + struct.pack(">iiiqqq", 1, 2, 3, 10, 1000, 2000) + BATCHES + b"\1\0\4"
         + struct.pack(">i", 8)),
        (b"\0\1" + STATE, b"\0\0" + struct.pack(">iiq", 1, 3, 12) + b"\1\0"),
    ],
    "cluster": [(b"", bytes([1, 2, 0, 7]) + b"orders" + bytes(17)), (b"", bytes([1, 12, 0, 2]) + b"x" + bytes(3))],
    "remote-log": [
        (b"", b"\1\0\0" + SEGMENT_ID + struct.pack(">qqiqq", 0, 9, 1, 1000, 2000) + b"\2" + struct.pack(">iq", 3, 0)
         + b"\0" + struct.pack(">i", 500) + b"\3ab\1\1\0\1\1"),
        (b"", b"\1\1\0" + SEGMENT_ID + struct.pack(">iq", 1, 2000) + b"\0\2\0"),
        (b"", b"\1\2\0" + PARTITION + struct.pack(">iqb", 1, 2000, 0) + b"\0"),
    ],
}  # fmt: skip
DECODERS = {name: InternalDecoder(name) for name in NAMES}
KEYS = {name: InternalDecoder(name, part="key") for name in COORDINATORS}


def run(data: memoryview) -> None:
    """A record decodes or fails alone, first as later, and its columns are sound."""
    if len(data) < 2:
        return
    name, size = NAMES[data[0] % len(NAMES)], data[1]
    key, value = bytes(data[2 : 2 + size]), bytes(data[2 + size :])
    is_sound = parses(DECODERS[name], key, value)
    turn = zlib.crc32(data) % SLOW  # of all bytes: a small change of an input in a slow turn is not in one again
    if turn == 0:
        check_between_others(name, key, value)
    elif is_sound and turn % 8 == 0:
        found = DECODERS[name].decode(pa.array([value], pa.binary()), *keys_of(name, [key]))
        check(found, set())


def parses(decoder: InternalDecoder, key: bytes, value: bytes) -> bool:
    """Return False for a record that fails, without columns; the decoders of keys get these as values."""
    try:
        decoder._read(key, value)
    except MessageError:
        return False
    return True


def keys_of(name: str, keys: list[bytes | None]) -> tuple[pa.Array, ...]:
    """Return the second argument of a decoder of values."""
    return (pa.array(keys, pa.binary()),) if DECODERS[name].needs_keys else ()


def check_between_others(name: str, key: bytes, value: bytes) -> None:
    """Decode a record between sound, null and cut ones, and its key."""
    good_key, good = SAMPLES[name][0]
    keys = [key, good_key, key, None, good_key, key, good_key]
    values = [value, good, value, value, None, value[: len(value) // 2], good]
    found = DECODERS[name].decode(pa.array(values, pa.binary()), *keys_of(name, keys))
    check(found, {0, 2, 3, 5})
    assert parses(DECODERS[name], key, value) == found.values[0].is_valid
    rows = found.values.to_pylist()
    assert repr(rows[0]) == repr(rows[2]) and rows[1] == rows[6] and rows[4] is None  # a NaN equals none
    if name in KEYS:
        check(KEYS[name].decode(pa.array(keys, pa.binary())), {0, 2, 5})


def check(found: object, may_fail: set[int]) -> None:
    """The columns are sound, and only these rows may have failed."""
    values, errors, count = found  # type: ignore[misc]
    values.validate(full=True)
    failed = set() if errors is None else {at for at, one in enumerate(errors.is_valid()) if one.as_py()}
    assert len(failed) == count and failed <= may_fail and all(not values[at].is_valid for at in failed)


def seeds() -> list[bytes]:
    """Sound records of each decoder, with cut keys and values, and other versions."""
    made = []
    for number, name in enumerate(NAMES):
        for key, value in SAMPLES[name]:
            pairs = [(key, value), (key[:-1], value), (key, value + b"\0"), (key, b"\0\x09" + value[2:])]
            pairs += [(key, value[:at]) for at in range(2, len(value), max(2, len(value) // 5))]
            made += [bytes([number, len(one)]) + one + other for one, other in pairs]
    return made
