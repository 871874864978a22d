"""Compression of batches that are built here: what the caller names, what the topic requires, and the packing.

A topic whose `compression.type` is not `producer` decides the codec. A broker would recompress the client's batch; here
the batch is compressed with the topic's codec and level from the start.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from kafkalog._core.batch.repack import Packer
from kafkalog.config.topic import LogConfig
from kafkalog.errors import IllegalArgument, RecordTooLarge, UnsupportedCompression
from kafkalog.records.compression import check_level, compress_into
from kafkalog.records.format import BATCH_OVERHEAD_BYTES, CompressionType

if TYPE_CHECKING:
    from kafkalog._core.arrow.encoder import Parcel
    from kafkalog._core.bytes.store import Block

_Plain = TypeVar("_Plain", bytearray, "Parcel")
_KEEP_PRODUCER_CODEC: Final = "producer"
_LEVEL_TEXT_MOST: Final = 12
# what a codec may add to incompressible data: a fixed part, and one byte per this many bytes
_GROWTH: Final = {
    CompressionType.GZIP: (64, 2_000),
    CompressionType.SNAPPY: (64, 6),
    CompressionType.LZ4: (64, 16_000),
    CompressionType.ZSTD: (128, 256),
}


class Compression(NamedTuple):
    """A codec, its level (None for the codec's default), and whether the topic requires it."""

    codec: CompressionType
    level: int | None = None
    required: bool = False

    def __bool__(self) -> bool:
        return self.codec != CompressionType.NONE


PLAIN: Final = Compression(CompressionType.NONE)


def parse_compression(text: str) -> Compression:
    """Parse a codec with an optional level, such as `zstd` or `zstd:9`; `none` and `uncompressed` mean no codec.

    Raises TypeError if `text` is not a str, UnsupportedCompression for an unknown codec, IllegalArgument for a level
    that is not a number or that the codec does not have.
    """
    if not isinstance(text, str):
        raise TypeError(f"a codec is a str such as 'zstd' or 'zstd:9', got {type(text).__name__}")
    return _parsed(text)


@functools.lru_cache(maxsize=64)
def _parsed(text: str) -> Compression:
    name, colon, given = text.partition(":")
    codec = _codec(name)
    if not colon:
        return Compression(codec)
    digits = given.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _LEVEL_TEXT_MOST):
        raise IllegalArgument(
            f"the level of {text!r} is not a whole number", hint=f"a level follows the colon: {name}:3"
        )
    level = int(given)
    check_level(codec, level)
    return Compression(codec, level)


def _codec(name: str) -> CompressionType:
    if name == "uncompressed":
        return CompressionType.NONE
    codec = CompressionType.__members__.get(name.upper())
    if codec is not None:
        return codec
    from difflib import get_close_matches

    known = [one.name.lower() for one in CompressionType]
    nearest = get_close_matches(name.lower(), known, n=1)
    fix = f"did you mean {nearest[0]}? The codecs are" if nearest else "the codecs are"
    raise UnsupportedCompression(f"unknown codec {name!r}", hint=f"{fix} {', '.join(known)}")


def topic_compression(config: LogConfig) -> Compression | None:
    """Return the codec (it may be NONE) and level that a topic requires; None if it keeps the producer's."""
    if config.compression_type == _KEEP_PRODUCER_CODEC:
        return None
    codec = _codec(config.compression_type)
    return Compression(codec, _topic_level(config, codec), True)


def choose(config: LogConfig, requested: Compression | None) -> Compression:
    """Return the compression of a batch for a topic: the topic's codec, else the one asked for, else none.

    A level that the caller gave applies if the codec is the same, since a broker leaves such a batch unchanged.
    Otherwise the topic's `compression.<codec>.level` applies.
    """
    required_codec = topic_compression(config)
    if required_codec is None:
        return requested or PLAIN
    if not required_codec:
        return PLAIN
    if requested is not None and requested.codec == required_codec.codec and requested.level is not None:
        return required_codec._replace(level=requested.level)
    return required_codec


def _topic_level(config: LogConfig, codec: CompressionType) -> int | None:
    """Return the level that a topic sets for a codec; None for a codec without levels."""
    if codec == CompressionType.GZIP:
        return config.compression_gzip_level
    if codec == CompressionType.LZ4:
        return config.compression_lz4_level
    if codec == CompressionType.ZSTD:
        return config.compression_zstd_level
    return None


def most_plain_bytes(compression: Compression, limit_bytes: int) -> int:
    """Return the largest uncompressed size that is certain to compress to at most `limit_bytes`."""
    if not compression:
        return limit_bytes
    fixed, part = _GROWTH[compression.codec]
    records = max(limit_bytes - BATCH_OVERHEAD_BYTES - fixed, 0)
    return BATCH_OVERHEAD_BYTES + records * part // (part + 1)


def pack(batches: _Plain, compression: Compression, *, limit_bytes: int) -> _Plain | Block:
    """Compress uncompressed v2 batches, each by itself, into a writable buffer; without a codec return `batches`.

    All header fields stay except size, codec and checksum. A batch that exceeds `limit_bytes` (max.message.bytes) only
    when compressed stays uncompressed, unless the topic requires the codec. Any thread may call it; the work runs
    without the GIL.
    """
    codec, level, required = compression
    if not codec or not batches:
        return batches
    packer = Packer(batches, len(batches) + _room(codec, len(batches)))
    store = packer.store
    try:
        while (records := packer.next()) is not None:
            compress_into(store, codec, records, level=level)
            if packer.seal(codec) > limit_bytes >= len(records) + BATCH_OVERHEAD_BYTES and not required:
                packer.keep()
    except OverflowError:
        raise RecordTooLarge(f"{len(batches)} bytes of batches exceed 2 GiB when compressed") from None
    return packer.take()


def _room(codec: CompressionType, size: int) -> int:
    fixed, part = _GROWTH[codec]
    return fixed + size // part
