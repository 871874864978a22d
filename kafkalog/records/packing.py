"""How batches that are built here get compressed: what a caller names, what the topic decides, and the work itself.

A topic whose `compression.type` is not `producer` decides: a broker would recompress what a client sent, here the batch
is made with the topic's codec and level at once.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from kafkalog._core.repack import Packer
from kafkalog.config import LogConfig
from kafkalog.errors import IllegalArgument, RecordTooLarge, UnsupportedCompression
from kafkalog.records.compression import check_level, compress_into
from kafkalog.records.format import BATCH_OVERHEAD_BYTES, CompressionType

if TYPE_CHECKING:
    from kafkalog._core.arrow_encoder import Parcel
    from kafkalog._core.store import Block

__all__ = ["PLAIN", "Compression", "choose", "most_plain_bytes", "pack", "parse_compression", "topic_compression"]

_Plain = TypeVar("_Plain", bytearray, "Parcel")
_AS_IT_COMES: Final = "producer"
_LEVEL_TEXT_MOST: Final = 12
# what a codec may add to data that it cannot shrink: a fixed part, and one byte for so many
_GROWTH: Final = {
    CompressionType.GZIP: (64, 2_000),
    CompressionType.SNAPPY: (64, 6),
    CompressionType.LZ4: (64, 16_000),
    CompressionType.ZSTD: (128, 256),
}


class Compression(NamedTuple):
    """A codec, its level (None is the codec's own default), and whether the topic insists on it."""

    codec: CompressionType
    level: int | None = None
    required: bool = False

    def __bool__(self) -> bool:
        return self.codec != CompressionType.NONE


PLAIN: Final = Compression(CompressionType.NONE)


def parse_compression(text: str) -> Compression:
    """The codec and level that a text such as `zstd` or `zstd:9` names; `none` and `uncompressed` are no codec.

    TypeError for what is no text, UnsupportedCompression for a name that no codec has, IllegalArgument for a level
    that is no number or that the codec does not have.
    """
    if not isinstance(text, str):
        raise TypeError(f"a codec is named by text such as 'zstd' or 'zstd:9', got {type(text).__name__}")
    return _parsed(text)


@functools.lru_cache(maxsize=64)
def _parsed(text: str) -> Compression:
    name, colon, given = text.partition(":")
    codec = _codec(name)
    if not colon:
        return Compression(codec)
    digits = given.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _LEVEL_TEXT_MOST):
        raise IllegalArgument(f"the level of {text!r} is no whole number", hint=f"a level follows the colon: {name}:3")
    level = int(given)
    check_level(codec, level)
    return Compression(codec, level)


def _codec(name: str) -> CompressionType:
    if name == "uncompressed":
        return CompressionType.NONE
    codec = CompressionType.__members__.get(name.upper())
    if codec is None:
        raise _unknown(name)
    return codec


def _unknown(name: str) -> UnsupportedCompression:
    from difflib import get_close_matches

    known = [one.name.lower() for one in CompressionType]
    nearest = get_close_matches(name.lower(), known, n=1)
    fix = f"did you mean {nearest[0]}? Known are" if nearest else "known are"
    return UnsupportedCompression(f"unknown codec {name!r}", hint=f"{fix} {', '.join(known)}")


def topic_compression(config: LogConfig) -> Compression | None:
    """The codec and level that a topic insists on (NONE is one too); None where it takes batches as they come."""
    if config.compression_type == _AS_IT_COMES:
        return None
    codec = _codec(config.compression_type)
    return Compression(codec, _topic_level(config, codec), True)


def choose(config: LogConfig, asked: Compression | None) -> Compression:
    """What a batch is compressed with on a topic: its own codec, else what the caller asked for, else nothing.

    The level that a caller gave holds where the codec is the same, as a broker leaves such a batch alone; else it is
    the topic's `compression.<codec>.level`.
    """
    own = topic_compression(config)
    if own is None:
        return asked or PLAIN
    if not own:
        return PLAIN
    if asked is not None and asked.codec == own.codec and asked.level is not None:
        return own._replace(level=asked.level)
    return own


def _topic_level(config: LogConfig, codec: CompressionType) -> int | None:
    """The level that a topic sets for a codec; None for a codec that has none."""
    if codec == CompressionType.GZIP:
        return config.compression_gzip_level
    if codec == CompressionType.LZ4:
        return config.compression_lz4_level
    if codec == CompressionType.ZSTD:
        return config.compression_zstd_level
    return None


def most_plain_bytes(compression: Compression, limit_bytes: int) -> int:
    """The largest uncompressed batch that surely has at most `limit_bytes` when it is compressed."""
    if not compression:
        return limit_bytes
    fixed, part = _GROWTH[compression.codec]
    records = max(limit_bytes - BATCH_OVERHEAD_BYTES - fixed, 0)
    return BATCH_OVERHEAD_BYTES + records * part // (part + 1)


def pack(batches: _Plain, compression: Compression, *, limit_bytes: int) -> _Plain | Block:
    """Uncompressed v2 batches, back to back, each compressed; a writable buffer. `batches` itself for no codec.

    Header fields stay but for size, codec and checksum. A batch that only compressing makes larger than `limit_bytes`
    (max.message.bytes) stays plain, unless the topic requires the codec. Threads: any, the work is done without GIL.
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
        raise RecordTooLarge(f"{len(batches)} bytes of batches pass 2 GiB when they are compressed") from None
    return packer.take()


def _room(codec: CompressionType, size: int) -> int:
    fixed, part = _GROWTH[codec]
    return fixed + size // part
