"""The InvalidRecord that every codec raises; it names the codec and the byte."""

from __future__ import annotations

from typing import Final

from kafkalog._core.batch.unpack import TOO_LARGE, Unpacker
from kafkalog.errors import InvalidRecord
from kafkalog.records.format import CompressionType, codec_name

_DAMAGED_HINT: Final = "the bytes were damaged, or written wrong, before the batch's checksum was computed"
_TOO_LARGE_HINT: Final = "such a batch is a mistake or an attack; raise the limit if it is intended"


def unpack_error(unpacker: Unpacker, status: int) -> InvalidRecord:
    """Return the error for compressed bytes that `unpacker` rejected with `status`.

    The error's position counts from the first compressed byte. If the data would exceed the limit, no memory beyond the
    limit was allocated.
    """
    codec = codec_name(CompressionType(unpacker.codec))
    text = unpacker.text(status).removeprefix(f"{codec}: ")
    hint = _TOO_LARGE_HINT if status == TOO_LARGE else _DAMAGED_HINT
    return InvalidRecord(f"{codec}: {text}", position=unpacker.position, hint=hint)
