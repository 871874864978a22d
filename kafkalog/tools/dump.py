"""The reference's dump tool: text of segment files, byte for byte (format.md sections 12 and 13, checklist DUMP).

Files are opened for reading only, read with pread a piece at a time, and never mapped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import BinaryIO, Final

from kafkalog.errors import StorageError
from kafkalog.storage import names
from kafkalog.tools.dump_companions import dump_snapshot, dump_txn_index
from kafkalog.tools.dump_complaints import Complaints
from kafkalog.tools.dump_index import dump_index, dump_time_index
from kafkalog.tools.dump_log import base_offset_of, dump_log
from kafkalog.tools.dump_options import DumpOptions
from kafkalog.util.fileio import OS, FileSystem

__all__ = ["DumpOptions", "dump_file", "dump_files", "dump_log", "files_of"]

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
    paths: Iterable[str], out: BinaryIO, options: DumpOptions | None = None, *, err: BinaryIO, fs: FileSystem = OS
) -> None:
    """Writes the text of each file to `out`; complaints about their content go to `err`, after the last file.

    The first file that cannot be read to its end raises: StorageError, CorruptRecord, InvalidRecord, CorruptIndex,
    FormatError, or IllegalArgument for a name or an option. What lies before the damage has been written by then, and
    there are no complaints.
    """
    options = options or DumpOptions()
    complaints = Complaints()
    for path in paths:
        dump_file(path, out, options, complaints, err=err, fs=fs)
    complaints.write(err)


def dump_file(
    path: str, out: BinaryIO, options: DumpOptions, complaints: Complaints, *, err: BinaryIO, fs: FileSystem = OS
) -> None:
    """Writes the text of one file, by the suffix of its name, and notes what is wrong with it in `complaints`.

    A damaged producer snapshot and a suffix that means nothing are lines on `err` (DUMP-8, DUMP-13).
    """
    path = as_java_prints(path)
    name = os.path.basename(path)
    suffix = name[name.rfind(".") :] if "." in name else ""
    out.write(os.fsencode(f"Dumping {path}\n"))
    if suffix in (names.LOG_SUFFIX, CHECKPOINT_SUFFIX):
        jumps = dump_log(path, out, options, fs=fs)
        if jumps:
            complaints.non_consecutive[os.path.join(os.getcwd(), path)] = jumps
    elif suffix == names.INDEX_SUFFIX:
        dump_index(path, base_offset_of(path), out, options, complaints, fs=fs)
    elif suffix == names.TIME_INDEX_SUFFIX:
        dump_time_index(path, base_offset_of(path), out, options, complaints, fs=fs)
    elif suffix == names.SNAPSHOT_SUFFIX:
        dump_snapshot(path, out, err, fs=fs)
    elif suffix == names.TXN_INDEX_SUFFIX:
        base_offset_of(path)
        dump_txn_index(path, out, fs=fs)
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
