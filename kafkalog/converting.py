"""`kafkalog.convert`: convert batches between record formats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Never

from kafkalog.keywords import unknown_keyword
from kafkalog.records import convert as converter

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["convert"]


def convert(
    batches: Buffer,
    magic: int,
    *,
    only_down: bool = False,
    start_offset: int | None = None,
    batch_bytes: int = converter.BATCH_BYTES,
    **unknown: Never,
) -> bytearray:
    """Convert the whole batches of a buffer, back to back, to format `magic` (0, 1 or 2); return a new buffer.

    Offsets, keys, values and codecs stay; timestamps do from v1 on, with their type. Batches of that format are copied,
    and with `only_down` those of a lower one too, as a broker did for an old consumer. Each v2 batch and each wrapper
    becomes one; adjacent uncompressed messages are joined into v2 batches of at most `batch_bytes`. Conversion to a
    lower format loses headers, producers, transactions, epochs and gaps around batches. It leaves out control batches,
    batches without records, and records of uncompressed batches below `start_offset`. An incomplete batch at the end is
    left out.

    Raises CorruptRecord for a wrong checksum, size or format, InvalidRecord for records that cannot be read,
    UnsupportedCompression for zstd in v0 or v1, RecordTooLarge above 2 GiB; each names the batch's offset and position.

    >>> from kafkalog import convert
    >>> convert(b"", 1)
    bytearray(b'')
    """
    if unknown:
        raise unknown_keyword("convert", unknown, ("batches", "magic", "only_down", "start_offset", "batch_bytes"))
    return converter.convert(
        batches, magic, only_down=only_down, start_offset=start_offset, batch_bytes=batch_bytes
    )
