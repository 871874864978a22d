"""What a codec raises: the same two errors for all of them, each naming the codec and the byte."""

from __future__ import annotations

from typing import Final

from kafkalog.errors import InvalidRecord

__all__ = ["damaged", "too_large"]

_DAMAGED_HINT: Final = "the bytes were damaged, or written wrong, before the batch got its checksum"


def damaged(codec: str, what: str, position: int) -> InvalidRecord:
    """The error for compressed bytes that cannot be decompressed; `position` counts from their first byte."""
    return InvalidRecord(f"{codec}: {what}", position=position, hint=_DAMAGED_HINT)


def too_large(codec: str, limit_bytes: int, position: int) -> InvalidRecord:
    """The error for compressed bytes that would grow past the limit; no memory was taken for what lies above it."""
    return InvalidRecord(
        f"{codec}: decompressed, the records are larger than the limit of {limit_bytes} bytes",
        position=position,
        hint="such a batch is a mistake or an attack; raise the limit if it is meant",
    )
