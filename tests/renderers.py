"""The dump tool's renderer, made as the tool makes it, and rendering in steps."""

from typing import Any

from kafkalog._core.text.render import IS_FULL, NEEDS_BYTES, DumpText
from kafkalog._core.text.template import TemplateText
from kafkalog.records.compression import new_unpacker


def dump_text(**options: Any) -> DumpText:
    return DumpText(unpacker=new_unpacker(), **options)


def render_in_steps(text: DumpText | TemplateText, data: bytes, step: int, *more: int) -> bytes:
    """Return the text of `data`, of which each call sees `step` bytes more than the one before."""
    at, stop, parts = 0, 0, []
    while True:
        status = text.render(data, at, stop, *more)
        at = text.position
        parts.append(text.text.take())
        if status == NEEDS_BYTES:
            if stop == len(data):
                return b"".join(parts)
            stop = min(stop + step, len(data))
        else:
            assert status == IS_FULL
