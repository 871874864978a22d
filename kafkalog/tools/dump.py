"""The reference's dump tool: text of segment files, byte for byte (format.md sections 12 and 13, checklist DUMP).

Files are opened for reading only, read with pread a chunk at a time, and never mapped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import BinaryIO

from kafkalog._core.render import IS_FULL, NEEDS_BYTES, DumpText
from kafkalog.errors import IllegalArgument, StorageError, UnsupportedForFormat
from kafkalog.storage import names
from kafkalog.tools.dump_index import dump_index, dump_time_index
from kafkalog.tools.dump_options import DumpOptions
from kafkalog.tools.render_errors import stop_error
from kafkalog.tools.window import FileWindow
from kafkalog.util.fileio import OS, FileSystem

__all__ = ["DumpOptions", "dump_file", "dump_files", "dump_log", "files_of"]

CHECKPOINT_SUFFIX = ".checkpoint"
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
DUMPED = (names.LOG_SUFFIX, names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX)
NOT_YET = (names.SNAPSHOT_SUFFIX, names.TXN_INDEX_SUFFIX)
_SNAPSHOT_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_OFFSET = re.compile(r"[+-]?\d{1,20}")

Jumps = list[tuple[int, int]]


def dump_files(
    paths: Iterable[str], out: BinaryIO, options: DumpOptions | None = None, *, err: BinaryIO, fs: FileSystem = OS
) -> None:
    """Writes the text of each file to `out`; complaints about their content go to `err`, after the last file.

    The first file that cannot be read to its end raises: StorageError, CorruptRecord, InvalidRecord, CorruptIndex, or
    the refusal of what this version does not print (UnsupportedForFormat, UnsupportedCompression). What lies before
    the damage has been written by then.
    """
    options = options or DumpOptions()
    complaints: list[tuple[str, Jumps]] = []
    for path in paths:
        jumps = dump_file(path, out, options, err=err, fs=fs)
        if jumps:
            complaints.append((os.path.join(os.getcwd(), _as_java_prints(path)), jumps))
    for path, jumps in complaints:
        lines = "".join(f"  {before} is followed by {after}\n" for before, after in jumps)
        err.write(os.fsencode(f"Non-consecutive offsets in {path}\n{lines}"))


def dump_file(
    path: str, out: BinaryIO, options: DumpOptions | None = None, *, err: BinaryIO, fs: FileSystem = OS
) -> Jumps:
    """Writes the text of one file, by the suffix of its name; the offsets that do not follow one another (DUMP-11).

    A suffix that means nothing is a line on `err` (DUMP-13).
    """
    options = options or DumpOptions()
    path = _as_java_prints(path)
    suffix = os.path.splitext(path)[1]
    out.write(os.fsencode(f"Dumping {path}\n"))
    if suffix in (names.LOG_SUFFIX, CHECKPOINT_SUFFIX):
        return dump_log(path, out, options, fs=fs)
    if suffix in NOT_YET:
        raise UnsupportedForFormat(
            f"{suffix} files cannot be dumped yet", path=path, hint=f"dumped are {', '.join(DUMPED)}"
        )
    if suffix == names.INDEX_SUFFIX:
        dump_index(path, _base_offset(path), out, options, fs=fs)
    elif suffix == names.TIME_INDEX_SUFFIX:
        dump_time_index(path, _base_offset(path), out, options, fs=fs)
    else:
        err.write(os.fsencode(f"Ignoring unknown file {path}\n"))
    return []


def dump_log(path: str, out: BinaryIO, options: DumpOptions, *, fs: FileSystem = OS) -> Jumps:
    """Writes the batches of a `.log` (or `.checkpoint`) file, and its records if the options ask for them.

    The pairs (offset, offset after it) that are not consecutive, from -1 on; only records that were printed count.
    """
    out.write(_first_line(path).encode())
    max_bytes = options.max_bytes
    if max_bytes is not None and max_bytes < 0:
        raise IllegalArgument(f"--max-bytes is a number of bytes from 0 on, not {max_bytes}", path=path)
    text = DumpText(
        deep=options.deep_iteration or options.print_data_log,
        data=options.print_data_log,
        skip_metadata=options.skip_record_metadata,
    )
    try:
        file = fs.open_file(path, "r")
    except OSError as error:
        raise StorageError.from_os(error, "open", path=path) from error
    with file:
        size = file.size()
        window = FileWindow(file, size if max_bytes is None else min(size, max_bytes))
        _render(window, text, out, path)
    if window.left > 0 and max_bytes is None:
        name = os.path.basename(path)
        out.write(os.fsencode(f"Found {window.left} invalid bytes at the end of {name}\n"))
    return text.non_consecutive


def _render(window: FileWindow, text: DumpText, out: BinaryIO, path: str) -> None:
    """Writes the text of the window's file, and leaves the window where the last whole batch ends."""
    window.advance(0, 1)
    while True:
        status = text.render(window.buffer, window.start, window.stop, window.base_position)
        if status == IS_FULL:
            window.position += text.position - window.start
            window.start = text.position
            out.write(text.text)
            text.text.clear()
        elif status != NEEDS_BYTES:
            out.write(text.text)
            raise stop_error(status, text, path, window.base_position)
        elif not window.advance(text.position, text.needed):
            out.write(text.text)
            return


def _first_line(path: str) -> str:
    name = os.path.basename(path)
    if name.endswith(names.LOG_SUFFIX):
        return f"Log starting offset: {_base_offset(path)}\n"
    if name == BOOTSTRAP_CHECKPOINT:
        return "KRaft bootstrap snapshot\n"
    found = _SNAPSHOT_NAME.fullmatch(name)
    if found is None:
        raise IllegalArgument("the name of a snapshot is <offset, 20 digits>-<epoch, 10 digits>.checkpoint", path=path)
    return f"Snapshot end offset: {int(found[1])}, epoch: {int(found[2])}\n"


def _base_offset(path: str) -> int:
    """The digits before the first dot of the name."""
    digits = os.path.basename(path).split(".")[0]
    if not _OFFSET.fullmatch(digits) or not -(2**63) <= int(digits) < 2**63:
        raise IllegalArgument("the file's name does not begin with an offset", path=path)
    return int(digits)


def _as_java_prints(path: str) -> str:
    """The path with one slash where there are several, and none at its end."""
    shorter = re.sub("/+", "/", path)
    return shorter.rstrip("/") or shorter


def files_of(directory: str, *, fs: FileSystem = OS) -> tuple[list[str], list[str]]:
    """The files of a partition directory that can be dumped, by name, and those that cannot be yet."""
    try:
        found = sorted(fs.listdir(directory))
    except OSError as error:
        raise StorageError.from_os(error, "list", path=directory) from error
    paths = [os.path.join(directory, name) for name in found]
    dumped = [path for path in paths if path.endswith(DUMPED)]
    return dumped, [path for path in paths if path.endswith(NOT_YET)]
