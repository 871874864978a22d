"""The dump tool's text of one `.log` file: runs the compiled renderer and supplies the text that it requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Final

from kafkalog._core.text.render import IS_FULL, NEEDS_BYTES, NEEDS_TEXT, DumpText
from kafkalog.errors import InvalidRecord
from kafkalog.records.compression import DECODED_LIMIT_BYTES, new_unpacker
from kafkalog.records.format import BATCH_OVERHEAD_BYTES, LOG_OVERHEAD_BYTES, MAGIC_V2
from kafkalog.storage.file_slice import HEADER_BYTES
from kafkalog.tools.dump.complaints import Pair
from kafkalog.tools.dump.options import DumpOptions
from kafkalog.tools.dump.window import FileWindow
from kafkalog.tools.render_errors import refused_error, short_batch, stop_error

if TYPE_CHECKING:
    from kafkalog.tools.dump.record_readers import RecordReader

FLUSH_BYTES: Final = 1 << 18


class LogText:
    """Rendering of one file."""

    def __init__(
        self, path: str, window: FileWindow, out: BinaryIO, options: DumpOptions, reader: RecordReader | None
    ) -> None:
        self.path = path
        self.window = window
        self.out = out
        self.reader = reader
        self.bar = "|" if options.skip_record_metadata else ""
        self.text = DumpText(
            deep=options.deep,
            data=options.data,
            skip_metadata=options.skip_record_metadata,
            ask=reader is not None,
            unpacker=new_unpacker(),
            decoded_limit=DECODED_LIMIT_BYTES,
        )

    def write(self) -> list[Pair]:
        """Write the text of the window's file, and leave the window at the end of the last complete batch.

        Return the pairs (offset, next offset) that are not consecutive, starting from -1; only printed records count.
        """
        self.window.advance(0, 1)
        try:
            while self._step():
                pass
        finally:
            self._flush()
        return self.text.non_consecutive

    def _step(self) -> bool:
        """Render until the renderer requests something, and supply it; return False at the end of the file."""
        window, text = self.window, self.text
        status = text.render(window.buffer, window.start, window.stop, window.base_position)
        if status == NEEDS_BYTES:
            self._flush()
            if window.advance(text.position, text.needed):
                return True
            self._check_header()
            return False
        window.position += text.position - window.start
        window.start = text.position
        if status == NEEDS_TEXT:
            text.give(self._requested_text().encode(errors="replace"))
        elif text.is_refused:
            raise refused_error(status, text, self.path, window.base_position)
        elif status != IS_FULL:
            raise stop_error(status, text, self.path, window.base_position)
        if len(text.text) >= FLUSH_BYTES:
            self._flush()
        return True

    def _check_header(self) -> None:
        """Raise CorruptRecord if the file ends inside the header of a batch whose size field is too small."""
        window = self.window
        head = window.buffer[window.start : window.start + HEADER_BYTES]
        if len(head) < HEADER_BYTES or head[-1] < MAGIC_V2 or window.left >= BATCH_OVERHEAD_BYTES:
            return
        size = int.from_bytes(head[8:12], "big", signed=True) + LOG_OVERHEAD_BYTES
        if HEADER_BYTES < size <= window.left:
            raise short_batch(size, self.path, window.position)

    def _requested_text(self) -> str:
        """Return the end of the current line: the text of a KRaft control record, or of a decoded key and value."""
        text = self.text
        try:
            if text.is_control:
                from kafkalog.tools.dump.control_text import control_text

                return f" {control_text(text.key, text.value)}"
            assert self.reader is not None
            return line_end(*self.reader(text.key, text.value, text.record_offset), self.bar)
        except InvalidRecord as error:
            raise type(error)(
                error.message,
                path=self.path,
                offset=text.record_offset,
                position=self.window.base_position + text.record_position,
                hint=error.hint,
            ) from error

    def _flush(self) -> None:
        if len(self.text.text):
            self.out.write(self.text.text)
            self.text.text.clear()


def line_end(key: object, payload: object, bar: str) -> str:
    """Return key and payload as the end of a record line; `bar` begins a line that holds nothing else."""
    from kafkalog.tools.decoders.plain import as_text

    words = ""
    for label, value in (("key", key), ("payload", payload)):
        if value is not None:
            words += f"{bar} {label}: {as_text(value)}"
            bar = ""
    return words
