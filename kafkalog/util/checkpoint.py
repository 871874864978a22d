"""Crash-safe checkpoint files: a version line, a count line, one line per entry.

Format (format.md §8): `0\\n<count>\\n<entry>\\n...`, UTF-8, written to `<name>.tmp`, synced, renamed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, Generic, TypeVar

from kafkalog.errors import CorruptCheckpoint, IllegalArgument
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS, FileSystem, atomic_write
from kafkalog.util.os_errors import os_errors

_LOG: Final = logging.getLogger(__name__)
E = TypeVar("E")
CURRENT_VERSION: Final = 0
MAX_FILE_BYTES: Final = 1 << 28
_HINT: Final = (
    "move the file away to rebuild it from the logs, or run `kafkalog repair --checkpoints --apply`, which keeps the "
    "readable lines"
)


class CheckpointFile(Generic[E]):
    """A checkpoint file of entries, converted by `parse(fields) -> entry` and `format(entry) -> line`.

    `parse` raises ValueError for invalid fields. With `may_be_unsynced` a file of zeros only, as a power loss leaves an
    unsynced file, counts as empty. Threads: one at a time (the owner's lock).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        parse: Callable[[list[str]], E],
        format: Callable[[E], str],
        *,
        fs: FileSystem = OS,
        may_be_unsynced: bool = False,
        hint: str = _HINT,
    ) -> None:
        self.path = os.fspath(path)
        self._hint = hint
        self._may_be_unsynced = may_be_unsynced
        self._parse = parse
        self._format = format
        self._fs = fs

    def create_if_missing(self) -> None:
        """Create an empty file at its first use, as the reference does; keep an existing file."""
        with os_errors("create the checkpoint file", self.path):
            self._fs.open_file(self.path, "create").close()

    def read_or_create(self) -> list[E]:
        """Return the entries as `read` does; create a missing file, empty."""
        content = self.content()
        if content is None:
            self.create_if_missing()
        return self.parsed(content or b"")

    def create(self, entries: Iterable[E]) -> None:
        """Create the file, which must be new, without a sync. Raises StorageError, and may then leave a part of it."""
        with os_errors("create the checkpoint file", self.path):
            with self._fs.open_file(self.path, "exclusive") as file:
                file.pwrite(self._formatted(entries), 0)

    def write(self, entries: Iterable[E]) -> bytes:
        """Replace the content and return it; after a crash the file has either the old content or the new.

        Raises StorageError if the file system fails; the old content stays.
        """
        with os_errors("write the checkpoint file", self.path):
            content = self._formatted(entries)
            atomic_write(self._fs, self.path, content)
        return content

    def sync(self) -> None:
        """Sync the file to disk. Raises StorageError."""
        with os_errors("sync the checkpoint file", self.path), self._fs.open_file(self.path, "rw") as file:
            file.sync()

    def read(self) -> list[E]:
        """Return the entries in the file's order; none for a missing file, an empty one or a version line alone.

        Raises CorruptCheckpoint, which names the line: wrong version or count, an extra field, no number.
        """
        return self.parsed(self.content() or b"")

    def _formatted(self, entries: Iterable[E]) -> bytes:
        lines = [self._format(entry) for entry in entries]
        return "".join(f"{line}\n" for line in (str(CURRENT_VERSION), str(len(lines)), *lines)).encode()

    def content(self) -> bytes | None:
        """Return the file's bytes, None if it is missing. Raises StorageError."""
        with os_errors("read the checkpoint file", self.path), suppress(FileNotFoundError):
            return self._fs.read_file(self.path, MAX_FILE_BYTES)
        return None

    def parsed(self, content: bytes) -> list[E]:
        """Return the entries of a content of the file. Errors as `read`."""
        if not content:
            return []
        if self._may_be_unsynced and not content.strip(b"\0"):
            _LOG.warning("%s contains only zeros, as after a power loss: treating it as empty", self.path)
            return []
        try:
            lines = text_lines(content.decode())
        except UnicodeDecodeError as error:
            raise self._corrupt(content.count(b"\n", 0, error.start) + 1, "it is not UTF-8") from None
        if lines[-1] == "":
            lines.pop()
        return self._entries(lines)

    def _entries(self, lines: list[str]) -> list[E]:
        version = self._number(lines, 1, "version")
        if version != CURRENT_VERSION:
            raise self._corrupt(1, f"version {version} is unknown, {CURRENT_VERSION} is supported")
        if len(lines) == 1:
            return []
        count = self._number(lines, 2, "count")
        if count < 0:
            raise self._corrupt(2, f"the count {count} is negative")
        if len(lines) - 2 < count:
            raise self._corrupt(len(lines), f"the count is {count}, but {len(lines) - 2} entries follow")
        if len(lines) - 2 > count:
            raise self._corrupt(count + 3, f"the count is {count}, but more lines follow")
        entries = []
        for number, line in enumerate(lines[2:], 3):
            try:
                entries.append(self._parse(line.split()))
            except ValueError as error:
                raise self._corrupt(number, f"{ascii(line[:80])}: {error}") from None
        return entries

    def _number(self, lines: list[str], number: int, what: str) -> int:
        text = lines[number - 1]
        try:
            return whole_number(text.strip())
        except ValueError:
            raise self._corrupt(number, f"the {what} {ascii(text[:80])} is not a number") from None

    def _corrupt(self, line: int, reason: str) -> CorruptCheckpoint:
        return CorruptCheckpoint(f"malformed checkpoint, line {line}: {reason}", path=self.path, hint=self._hint)


class OffsetCheckpoint:
    """An offset for each partition of a data directory: recovery points, log starts, high watermarks.

    One line `<topic> <partition> <offset>` each. The names of the files are constants of this module.
    """

    def __init__(self, path: str | os.PathLike[str], *, fs: FileSystem = OS) -> None:
        self._file = CheckpointFile(path, parse_offset, _format_offset, fs=fs)
        self.path = self._file.path

    def create_if_missing(self) -> None:
        """Create an empty file at its first use."""
        self._file.create_if_missing()

    def write(self, offsets: Mapping[TopicPartition, int]) -> bytes:
        """Replace the content with `offsets`, sorted, and return it; raise IllegalArgument for a negative offset."""
        for partition, offset in offsets.items():
            if offset < 0:
                raise IllegalArgument(f"a checkpointed offset must not be negative: {partition}", offset=offset)
        return self._file.write(sorted(offsets.items()))

    def read(self) -> dict[TopicPartition, int]:
        """Return the offsets, the last one for a repeated partition. Errors as for CheckpointFile.read."""
        return self.parsed(self.content())

    def content(self) -> bytes:
        """Return the file's bytes, none if it is missing. Raises StorageError."""
        return self._file.content() or b""

    def parsed(self, content: bytes) -> dict[TopicPartition, int]:
        """Return the offsets of a content of the file. Errors as `read`."""
        return dict(self._file.parsed(content))


RECOVERY_POINT_FILE: Final = "recovery-point-offset-checkpoint"
LOG_START_FILE: Final = "log-start-offset-checkpoint"
CLEANER_OFFSET_FILE: Final = "cleaner-offset-checkpoint"
HIGH_WATERMARK_FILE: Final = "replication-offset-checkpoint"


def whole_number(text: str, limit: int = 2**63) -> int:
    """Return the number in ASCII digits with an optional sign; raise ValueError for other forms that int() accepts.

    Raise it also for a number below -`limit`, or at `limit` or above.
    """
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 40):
        raise ValueError(f"{ascii(text[:80])} is not a number")
    value = int(text)
    if not -limit <= value < limit:
        raise ValueError(f"{text} does not fit {limit.bit_length()} bits")
    return value


def text_lines(text: str) -> list[str]:
    """Return the lines of a text; each ends with LF, CR LF or CR, as the reference reads them."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def parse_offset(fields: list[str]) -> tuple[TopicPartition, int]:
    """Return the entry of a line of `<topic> <partition> <offset>`. ValueError."""
    if len(fields) != 3:
        raise ValueError(f"{len(fields)} fields instead of <topic> <partition> <offset>")
    topic, partition, offset = fields
    return TopicPartition(topic, whole_number(partition, 2**31)), whole_number(offset)


def _format_offset(entry: tuple[TopicPartition, int]) -> str:
    (topic, partition), offset = entry
    return f"{topic} {partition} {offset}"
