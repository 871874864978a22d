"""The reference's dump tool: the text of a partition's files, byte for byte (format.md 12 and 13, checklist DUMP).

Files are opened for reading only, read with pread a piece at a time, and never mapped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import BinaryIO, Final

from kafkalog.errors import CorruptSnapshot, StorageError
from kafkalog.storage import names
from kafkalog.storage.aborted_txns import read_aborted_txns
from kafkalog.storage.producer_snapshot import read_snapshot
from kafkalog.tools.dump_complaints import Complaints
from kafkalog.tools.dump_index import dump_index, dump_time_index
from kafkalog.tools.dump_log import base_offset_of, dump_log
from kafkalog.tools.dump_options import DumpOptions
from kafkalog.tools.dump_printer import Printer, TextPrinter
from kafkalog.util.fileio import OS, FileSystem

__all__ = ["DumpOptions", "dump_file", "dump_files", "files_of"]

CHECKPOINT_SUFFIX: Final = ".checkpoint"
DUMPED: Final = (
    names.LOG_SUFFIX,
    names.INDEX_SUFFIX,
    names.TIME_INDEX_SUFFIX,
    names.TXN_INDEX_SUFFIX,
    names.SNAPSHOT_SUFFIX,
    CHECKPOINT_SUFFIX,
)


def dump_files(
    paths: Iterable[str],
    out: BinaryIO,
    options: DumpOptions | None = None,
    *,
    err: BinaryIO,
    as_json: bool = False,
    fs: FileSystem = OS,
) -> None:
    """Prints each file to `out`, as the reference's text or as JSON lines; complaints about them come after the last.

    Complaints go to `err`, in JSON to `out`. The first file that cannot be read to its end raises: StorageError,
    CorruptRecord, InvalidRecord, CorruptIndex, FormatError, or IllegalArgument for a name or an option. What lies
    before the damage has been printed by then, and there are no complaints.
    """
    printer: Printer = TextPrinter(out, err)
    if as_json:
        from kafkalog.tools.dump_json import JsonPrinter

        printer = JsonPrinter(out)
    complaints = Complaints()
    for path in paths:
        dump_file(as_java_prints(path), printer, options or DumpOptions(), complaints, err=err, fs=fs)
    printer.complain(complaints)


def dump_file(
    path: str, printer: Printer, options: DumpOptions, complaints: Complaints, *, err: BinaryIO, fs: FileSystem = OS
) -> None:
    """Prints one file, by the suffix of its name, and notes what is wrong with it in `complaints`.

    A damaged producer snapshot and a suffix that means nothing are lines on `err` (DUMP-8, DUMP-13).
    """
    name = os.path.basename(path)
    suffix = name[name.rfind(".") :] if "." in name else ""
    printer.begin(path)
    if suffix in (names.LOG_SUFFIX, CHECKPOINT_SUFFIX):
        jumps = dump_log(path, printer, options, fs=fs)
        if jumps:
            complaints.non_consecutive[path] = jumps
    elif suffix == names.INDEX_SUFFIX:
        dump_index(path, base_offset_of(path), printer, options, complaints, fs=fs)
    elif suffix == names.TIME_INDEX_SUFFIX:
        dump_time_index(path, base_offset_of(path), printer, options, complaints, fs=fs)
    elif suffix == names.SNAPSHOT_SUFFIX:
        try:
            for producer in read_snapshot(path, fs=fs):
                printer.producer(path, producer)
        except CorruptSnapshot as error:
            err.write(os.fsencode(f"{error.message}\n"))
    elif suffix == names.TXN_INDEX_SUFFIX:
        base_offset_of(path)
        for entry in read_aborted_txns(path, fs=fs):
            printer.aborted(path, entry)
    else:
        err.write(os.fsencode(f"Ignoring unknown file {path}\n"))


def as_java_prints(path: str) -> str:
    """The path with one slash where there are several, and none at its end."""
    shorter = re.sub("/+", "/", path)
    return shorter.rstrip("/") or shorter


def files_of(directory: str, *, fs: FileSystem = OS) -> list[str]:
    """The files of a partition directory that can be dumped, by name."""
    try:
        found = sorted(fs.listdir(directory))
    except OSError as error:
        raise StorageError.from_os(error, "list", path=directory) from error
    return [os.path.join(directory, name) for name in found if name.endswith(DUMPED)]
