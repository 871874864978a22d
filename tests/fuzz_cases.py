"""Small batches of each format and codec, and the damage that tests do to them."""

import zlib
from collections.abc import Iterator

from kafkalog.errors import CorruptRecord, IllegalArgument, InvalidRecord, UnsupportedForFormat
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.format import CompressionType
from kafkalog.records.legacy import LegacyBuilder
from tests.builder import seal

T = 1_700_000_000_000
EXPECTED = (CorruptRecord, IllegalArgument, InvalidRecord, UnsupportedForFormat)
LIMIT_BYTES = 1 << 20
KINDS = [(magic, codec) for magic in (0, 1, 2) for codec in CompressionType if magic == 2 or codec != 4]
IDS = [f"v{magic}-{codec.name.lower()}" for magic, codec in KINDS]


def small(magic: int, codec: CompressionType) -> bytes:
    """A batch, or plain messages, with three records."""
    builder: RecordsBuilder | LegacyBuilder
    builder = RecordsBuilder(5, compression=codec) if magic == 2 else LegacyBuilder(5, magic=magic, compression=codec)
    headers = [("h", b"1"), ("", None)] if magic == 2 else []
    builder.append(T, None, b"first")
    builder.append(T + 3, b"key", b"second " * 6, headers)
    builder.append(T - 2, b"", None)
    return bytes(builder.build())


def sealed(data: bytes) -> bytes:
    """With every checksum made right again, so that the damage lies behind it."""
    out, at = bytearray(data), 0
    while len(out) - at >= 26:
        size = int.from_bytes(out[at + 8 : at + 12], "big", signed=True) + 12
        if size < 26 or at + size > len(out):
            break
        if out[at + 16] > 1 and size >= 61:
            out[at : at + size] = seal(bytes(out[at : at + size]))
        elif out[at + 16] <= 1:
            out[at + 12 : at + 16] = zlib.crc32(out[at + 16 : at + size]).to_bytes(4, "big")
        at += size
    return bytes(out)


def prefixes(whole: bytes) -> Iterator[bytes]:
    """Every prefix, as it is and as a batch of that size with a right checksum."""
    for size in range(len(whole)):
        yield whole[:size]
        if size >= 26:
            yield sealed(whole[:8] + (size - 12).to_bytes(4, "big") + whole[12:size])


def changed(whole: bytes, few: bool = False) -> Iterator[bytes]:
    """Every byte changed to several values (`few`: to two), with the checksum wrong and made right again."""
    for at in range(len(whole)):
        values = {0xFF, whole[at] ^ 1}
        if not few:
            values |= {0, 1, 0x7F, 0x80, whole[at] ^ 0x80, (whole[at] + 1) & 0xFF}
        for value in values:
            data = whole[:at] + bytes((value,)) + whole[at + 1 :]
            if not few or value == 0xFF:
                yield data
            yield sealed(data)
