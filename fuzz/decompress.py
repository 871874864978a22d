"""Input of the codecs: gzip members, xerial and raw snappy, lz4 and zstd frames, each reader on the same bytes."""

from kafkalog._core.bytes.store import Store
from kafkalog._core.bytes.xxhash import xxh32
from kafkalog.errors import InvalidRecord
from kafkalog.records.compression import decompress_into

SEALS = False
LIMIT_BYTES = 1 << 16
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4


def run(data: memoryview) -> None:
    """Each codec gives bytes within the limit or one typed error with a place in the data."""
    first = data[0] if len(data) else 0
    if first == 0x1F:
        expand(GZIP, data, 2)
    elif first == 0x04:
        expand(LZ4, data, 0)
        expand(LZ4, data, 2)
        expand(LZ4, resealed(data), 2)
    elif 0x50 <= first <= 0x5F or first == 0x28:
        expand(ZSTD, data, 2)
    else:
        expand(SNAPPY, data, 2)


def expand(codec: int, data: memoryview, magic: int) -> None:
    """Into a store that holds something already: the error says where, and what was there stays."""
    store = Store()
    store.append(b"before")
    try:
        decompress_into(store, codec, data, magic=magic, limit_bytes=LIMIT_BYTES)
        assert store.size <= LIMIT_BYTES + 6
    except InvalidRecord as error:
        assert error.position is not None and 0 <= error.position <= len(data)
    assert bytes(store.take())[:6] == b"before"


def resealed(data: memoryview) -> memoryview:
    """An lz4 frame with the checksum of its header made right."""
    out = bytearray(data)
    end = 14 if len(out) > 4 and out[4] & 8 else 6
    if len(out) > end:
        out[end] = (xxh32(memoryview(out)[4:end]) >> 8) & 0xFF
    return memoryview(out)
