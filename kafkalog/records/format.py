"""Named constants of the batch header: codecs, timestamp types, formats (format.md section 1).

The values are stored in files on disk: they never change.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

MAGIC_V0: Final = 0
MAGIC_V1: Final = 1
MAGIC_V2: Final = 2
BATCH_OVERHEAD_BYTES: Final = 61
"""Size of a v2 batch header, and so of a batch without records."""
LOG_OVERHEAD_BYTES: Final = 12
"""Size of the offset and size fields, which the size field does not count."""
CODEC_MASK: Final = 0x07
"""Attribute bits that name the codec; the four bits below have one meaning each."""
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
MAX_SEQUENCE: Final = 2**31 - 1
"""Largest sequence number of a producer; 0 follows it."""
NO_TIMESTAMP: Final = -1


class CompressionType(IntEnum):
    """Codec of a batch: bits 0 to 2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(IntEnum):
    """Source of the records' timestamps: none (v0), the producer, or the log at append."""

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


def codec_name(codec: int) -> str:
    """Return the name of a codec id as the reference prints it; `unknown (5)` for an undefined id."""
    return CompressionType(codec).name.lower() if codec in CompressionType._value2member_map_ else f"unknown ({codec})"
