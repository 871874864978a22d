"""Checksums, numbers of variable length, and the hash that chooses a partition."""

from collections.abc import Iterator

from asv_benchmarks.hot_paths.path import Place, Work, hot_path
from kafkalog._core.bytes.crc import crc32c
from kafkalog._core.bytes.murmur import murmur2
from kafkalog._core.bytes.varint import decode_varlong, encode_varlong

NUMBERS = [0, 63, -64, 300, -8192, 1 << 20, -(1 << 31), 1 << 62]


@hot_path("checksums", "crc of 64 KiB", item="byte")
def crc(place: Place) -> Iterator[Work]:
    data = bytes(65536)

    def once() -> int:
        for _ in range(4):
            crc32c(data)
        return 4 * len(data)

    yield Work(once)


@hot_path("checksums", "crc of 100 bytes", item="byte")
def short_crc(place: Place) -> Iterator[Work]:
    data = bytes(100)

    def once() -> int:
        for _ in range(500):
            crc32c(data)
        return 500 * len(data)

    yield Work(once)


@hot_path("checksums", "varint, written", item="number")
def varint_written(place: Place) -> Iterator[Work]:
    def once() -> int:
        for _ in range(50):
            for number in NUMBERS:
                encode_varlong(number)
        return 50 * len(NUMBERS)

    yield Work(once)


@hot_path("checksums", "varint, read", item="number")
def varint_read(place: Place) -> Iterator[Work]:
    written = [encode_varlong(number) for number in NUMBERS]

    def once() -> int:
        for _ in range(50):
            for data in written:
                decode_varlong(data)
        return 50 * len(NUMBERS)

    yield Work(once)


@hot_path("checksums", "murmur2 of a key", item="key")
def murmur(place: Place) -> Iterator[Work]:
    keys = [b"key-%020d" % i for i in range(500)]

    def once() -> int:
        for key in keys:
            murmur2(key)
        return len(keys)

    yield Work(once)
