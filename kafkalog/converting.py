"""`kafkalog.convert`: batches of one record format made into batches of another."""

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
    """The batches of a buffer, whole and back to back, all in format `magic` (0, 1 or 2); a new buffer.

    Offsets, keys, values and codecs stay; timestamps do from v1 on, with their type. Those that have the format
    already are copied, and with `only_down` those of a lower one too, as a broker did for an old consumer. Each v2
    batch and each wrapper becomes one; plain messages that follow each other are joined into v2 batches of at most
    `batch_bytes`. Downwards headers, producers, transactions, epochs and gaps around batches are lost, control
    batches and batches without records are left out, and records of uncompressed batches below `start_offset` too.
    A batch that is cut off at the end is left out.

    CorruptRecord for a wrong checksum, size or format, InvalidRecord for records that cannot be read,
    UnsupportedCompression for zstd in v0 or v1, RecordTooLarge past 2 GiB; each names the batch's offset and position.

    >>> from kafkalog import convert
    >>> convert(b"", 1)
    bytearray(b'')
    """
    if unknown:
        raise unknown_keyword("convert", unknown, ("batches", "magic", "only_down", "start_offset", "batch_bytes"))
    return converter.convert(
        batches, magic, only_down=only_down, start_offset=start_offset, batch_bytes=batch_bytes
    )
