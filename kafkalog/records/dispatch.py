"""The one entry that says how a batch of a given format and codec is read, or refuses it by name.

Refusing changes nothing: the bytes stay where they are, and copying or serving them needs no decoding.
"""

from __future__ import annotations

import os

from kafkalog._core.scan import BatchHeader
from kafkalog.errors import IllegalArgument, UnsupportedCompression, UnsupportedForFormat
from kafkalog.records.format import MAGIC_V2, CompressionType, codec_name

__all__ = ["check_readable", "codec_of_name", "is_readable", "require_readable"]


def is_readable(magic: int, codec: int) -> bool:
    """True when the records of such a batch can be decoded."""
    return magic == MAGIC_V2 and codec == CompressionType.NONE


def check_readable(
    magic: int,
    codec: int,
    *,
    path: str | os.PathLike[str] | None = None,
    offset: int | None = None,
    position: int | None = None,
) -> None:
    """Raises the typed error that names what cannot be decoded; returns None for what can.

    Codec ids 5 to 7 mean nothing (IllegalArgument, REC-23); formats v0 and v1 are UnsupportedForFormat, known codecs
    UnsupportedCompression.
    """
    if codec not in CompressionType._value2member_map_:
        raise IllegalArgument(
            f"unknown compression id {codec}",
            path=path,
            offset=offset,
            position=position,
            hint="ids 0 to 4 are none, gzip, snappy, lz4 and zstd; the attributes of this batch are damaged or newer",
        )
    if magic != MAGIC_V2:
        raise UnsupportedForFormat(
            f"the batch has format v{magic}: its records cannot be read yet",
            path=path,
            offset=offset,
            position=position,
            hint="headers and offsets can be listed with `kafkalog dump` without --deep-iteration",
        )
    if codec != CompressionType.NONE:
        raise UnsupportedCompression(
            f"the batch is compressed with {codec_name(codec)}: its records cannot be read yet",
            path=path,
            offset=offset,
            position=position,
            hint="headers and offsets can be listed with `kafkalog dump` without --deep-iteration",
        )


def require_readable(header: BatchHeader, *, path: str | os.PathLike[str] | None = None) -> None:
    """`check_readable` for a batch header, naming its offset and position."""
    check_readable(header.magic, header.compression, path=path, offset=header.base_offset, position=header.position)


def codec_of_name(name: str | None) -> CompressionType:
    """The codec of a name as in `compression.type` (`none`, `uncompressed` and None are NONE)."""
    if name is None or name in ("none", "uncompressed", "producer"):
        return CompressionType.NONE
    if not isinstance(name, str):
        raise TypeError(f"a codec is named by text, got {type(name).__name__}")
    try:
        return CompressionType[name.upper()]
    except KeyError:
        known = ", ".join(c.name.lower() for c in CompressionType)
        raise UnsupportedCompression(f"unknown codec {name!r}", hint=f"known are {known}") from None
