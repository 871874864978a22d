"""Names of the numbers in a batch header: codecs, timestamp types, formats (format.md section 1).

The values are embedded in files on disk: they never change.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

__all__ = [
    "BATCH_OVERHEAD_BYTES",
    "CODEC_MASK",
    "CONTROL_BIT",
    "DELETE_HORIZON_BIT",
    "LOG_OVERHEAD_BYTES",
    "MAGIC_V0",
    "MAGIC_V1",
    "MAGIC_V2",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "TIMESTAMP_TYPE_BIT",
    "TRANSACTIONAL_BIT",
    "CompressionType",
    "TimestampType",
    "codec_name",
]

MAGIC_V0: Final = 0
MAGIC_V1: Final = 1
MAGIC_V2: Final = 2
BATCH_OVERHEAD_BYTES: Final = 61
"""Header of a v2 batch, and so the size of one without records."""
LOG_OVERHEAD_BYTES: Final = 12
"""Offset and size field: what the size field itself does not count."""
CODEC_MASK: Final = 0x07
"""The bits of a batch's attributes that name its codec; those below have a meaning each."""
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1


class CompressionType(IntEnum):
    """Codec of a batch: bits 0 to 2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(IntEnum):
    """Who stamped the records: nobody (v0), the producer, or the log at append."""

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


def codec_name(codec: int) -> str:
    """The name of a codec id as the reference prints it; `unknown (5)` for an id that means nothing."""
    return CompressionType(codec).name.lower() if codec in CompressionType._value2member_map_ else f"unknown ({codec})"
