"""Typed errors for the place where a compiled renderer stopped."""

from __future__ import annotations

from typing import Final

from kafkalog._core.batch.decode import STATUS_TEXT
from kafkalog._core.batch.unpack import FIRST_FAULT
from kafkalog._core.text.render import BAD_CODEC, BAD_CONTROL, BAD_FORMAT, BAD_HEADER, BAD_SIZE, DumpText
from kafkalog._core.text.template import BAD_CRC, BAD_MAGIC, TemplateText
from kafkalog.errors import CorruptRecord, InvalidRecord, KafkalogError, UnsupportedCompression
from kafkalog.records.codec_errors import unpack_error
from kafkalog.records.format import BATCH_OVERHEAD_BYTES
from kafkalog.records.plain_runs import status_error

Renderer = DumpText | TemplateText

MIN_SIZE: Final = 14
"""Minimum value of a batch's size field: a v0 message without key and value."""
_HINT: Final = "everything before it was printed; a replica or a backup may have the rest"


def stop_error(status: int, at: Renderer, path: str, base_position: int) -> KafkalogError:
    """Return the error that stopped a renderer: damage, or a batch whose format or codec is unknown.

    base_position: the file position of the start of the buffer in the renderer's last call.
    """
    position = base_position + at.position
    if status == BAD_SIZE:
        zeros = "zeros up to the end: the file was preallocated, and no close cut them off"
        return size_error(at.stop_value, path, position, _HINT if at.stop_value else zeros)
    if status in (BAD_MAGIC, BAD_FORMAT):
        return CorruptRecord(f"unknown batch format {at.stop_value}", path=path, position=position, hint=_HINT)
    if status == BAD_HEADER:
        return short_batch(at.stop_value, path, position)
    return _batch_error(status, at, path, position) or _record_error(status, at, path, base_position)


def refused_error(status: int, at: DumpText, path: str, base_position: int) -> KafkalogError:
    """Return the error of the compressed batch at which a renderer stopped."""
    error: KafkalogError
    within = 0
    if status >= FIRST_FAULT:
        error = unpack_error(at.unpacker, status)
        within = at.unpacker.payload_position + at.unpacker.position
    else:
        error = status_error(status, STATUS_TEXT[status])
    error.path, error.offset, error.position = path, at.batch_offset, base_position + at.position + within
    return error


def size_error(field: int, path: str, position: int, hint: str | None = None) -> CorruptRecord:
    """Return the error for a size field below `MIN_SIZE`, with the reference's text."""
    text = f"Found record size {field} smaller than minimum record overhead ({MIN_SIZE})"
    return CorruptRecord(text, path=path, position=position, hint=hint)


def short_batch(size: int, path: str, position: int) -> CorruptRecord:
    """Return the error for a batch of `size` bytes, less than its header takes."""
    return CorruptRecord(
        f"the batch of {size} bytes is smaller than its header of {BATCH_OVERHEAD_BYTES}",
        path=path,
        position=position,
        hint=_HINT,
    )


def _batch_error(status: int, at: Renderer, path: str, position: int) -> KafkalogError | None:
    """Return the error of a batch as a whole; None for other errors."""
    if status == BAD_CRC:
        text = "the batch does not match its CRC"
        return CorruptRecord(text, path=path, offset=at.batch_offset, position=position, hint=_HINT)
    if status == BAD_CODEC:
        text = f"unknown compression id {at.stop_value}"
        return UnsupportedCompression(text, path=path, offset=at.batch_offset, position=position, hint=_HINT)
    return None


def _record_error(status: int, at: Renderer, path: str, base_position: int) -> KafkalogError:
    position = base_position + at.record_position
    what = "a control record's key or value is too short" if status == BAD_CONTROL else STATUS_TEXT[status]
    return InvalidRecord(
        f"record {at.record_number} of the batch: {what}",
        path=path,
        offset=at.batch_offset,
        position=position,
        hint=_HINT,
    )
