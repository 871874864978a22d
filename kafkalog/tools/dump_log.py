"""The dump tool's text of `.log` files and metadata snapshots: batches, and records where they are asked for."""

from __future__ import annotations

import os
import re
from typing import BinaryIO, Final

from kafkalog._core.render import IS_FULL, NEEDS_BYTES, NEEDS_RECORDS, NEEDS_TEXT, DumpText
from kafkalog.errors import IllegalArgument, InvalidRecord, StorageError
from kafkalog.storage import names
from kafkalog.tools.batch_records import plain_batch
from kafkalog.tools.dump_options import DumpOptions
from kafkalog.tools.record_texts import RecordText, control_text
from kafkalog.tools.render_errors import stop_error
from kafkalog.tools.window import FileWindow
from kafkalog.util.fileio import FileSystem

BOOTSTRAP_CHECKPOINT: Final = "bootstrap.checkpoint"
FLUSH_BYTES: Final = 1 << 18
_SNAPSHOT_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_OFFSET: Final = re.compile(r"[+-]?\d{1,20}")


def dump_log(path: str, out: BinaryIO, options: DumpOptions, *, fs: FileSystem) -> list[tuple[int, int]]:
    """Writes the batches of a file, and its records if the options ask for them.

    The pairs (offset, offset after it) that are not consecutive, from -1 on; only records that were printed count.
    """
    texts = None if options.texts is None else options.texts()
    out.write(_first_line(path).encode())
    max_bytes = options.max_bytes
    if max_bytes is not None and max_bytes < 0:
        raise IllegalArgument(f"--max-bytes is a number of bytes from 0 on, not {max_bytes}", path=path)
    text = DumpText(
        deep=options.deep,
        data=options.data,
        skip_metadata=options.skip_record_metadata,
        ask=texts is not None,
    )
    try:
        file = fs.open_file(path, "r")
    except OSError as error:
        raise StorageError.from_os(error, "open", path=path) from error
    with file:
        size = file.size()
        window = FileWindow(file, size if max_bytes is None else min(size, max_bytes))
        _Rendering(window, text, out, path, texts, options.skip_record_metadata).run()
    if window.left > 0 and max_bytes is None:
        name = os.path.basename(path)
        out.write(os.fsencode(f"Found {window.left} invalid bytes at the end of {name}\n"))
    return text.non_consecutive


class _Rendering:
    """One file on its way through the renderer, and the answers to what that asks for."""

    def __init__(
        self,
        window: FileWindow,
        text: DumpText,
        out: BinaryIO,
        path: str,
        texts: RecordText | None,
        skip_metadata: bool,
    ) -> None:
        self.window = window
        self.text = text
        self.out = out
        self.path = path
        self.texts = texts
        self.skip_metadata = skip_metadata

    def run(self) -> None:
        """Writes the text of the window's file, and leaves the window where the last whole batch ends."""
        self.window.advance(0, 1)
        try:
            while self._step():
                pass
        finally:
            self._flush()

    def _step(self) -> bool:
        """Renders until something is asked for, and gives it; False at the end of the file."""
        window, text = self.window, self.text
        status = text.render(window.buffer, window.start, window.stop, window.base_position)
        if status == NEEDS_BYTES:
            self._flush()
            return window.advance(text.position, text.needed)
        window.position += text.position - window.start
        window.start = text.position
        if status == NEEDS_TEXT:
            self._give_text()
        elif status == NEEDS_RECORDS:
            position = window.position
            batch = bytes(memoryview(window.buffer)[window.start : window.start + text.batch_size])
            text.give_records(plain_batch(batch, path=self.path, offset=text.batch_offset, position=position))
        elif status != IS_FULL:
            raise stop_error(status, text, self.path, window.base_position)
        if len(text.text) >= FLUSH_BYTES:
            self._flush()
        return True

    def _give_text(self) -> None:
        text = self.text
        if text.is_control:
            try:
                words = " " + control_text(text.key, text.value)
            except InvalidRecord as error:
                raise self._located(error) from None
        else:
            assert self.texts is not None
            try:
                key, payload = self.texts(text.key, text.value, text.record_offset)
            except InvalidRecord as error:
                raise self._located(error) from None
            words = line_end(key, payload, "|" if self.skip_metadata else "")
        text.give(words.encode(errors="replace"))

    def _located(self, error: InvalidRecord) -> InvalidRecord:
        """The same error with the place of the record at hand."""
        at = self.text
        return InvalidRecord(
            error.message,
            path=self.path,
            offset=at.record_offset,
            position=self.window.base_position + at.record_position,
            hint=error.hint,
        )

    def _flush(self) -> None:
        if len(self.text.text):
            self.out.write(self.text.text)
            self.text.text.clear()


def line_end(key: str | None, payload: str | None, bar: str) -> str:
    """Key and payload as they end a record line; `bar` is what begins a line that holds nothing else."""
    words = ""
    for label, text in (("key", key), ("payload", payload)):
        if text is not None:
            words += f"{bar} {label}: {text}"
            bar = ""
    return words


def _first_line(path: str) -> str:
    name = os.path.basename(path)
    if name.endswith(names.LOG_SUFFIX):
        return f"Log starting offset: {base_offset_of(path)}\n"
    if name == BOOTSTRAP_CHECKPOINT:
        return "KRaft bootstrap snapshot\n"
    found = _SNAPSHOT_NAME.fullmatch(name)
    if found is None:
        raise IllegalArgument("the name of a snapshot is <offset, 20 digits>-<epoch, 10 digits>.checkpoint", path=path)
    return f"Snapshot end offset: {int(found[1])}, epoch: {int(found[2])}\n"


def base_offset_of(path: str) -> int:
    """The digits before the first dot of the name; IllegalArgument where there are none."""
    digits = os.path.basename(path).split(".")[0]
    if not _OFFSET.fullmatch(digits) or not -(2**63) <= int(digits) < 2**63:
        raise IllegalArgument("the file's name does not begin with an offset", path=path)
    return int(digits)
