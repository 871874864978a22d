"""The reference's dump tool: the text of a partition's files, byte for byte (format.md 12 and 13, checklist DUMP).

Files are opened for reading only, read with pread a piece at a time, and never mapped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from errno import ENOENT
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from kafkalog.errors import CorruptSnapshot, IllegalArgument, StorageError
from kafkalog.storage import names
from kafkalog.storage.index.aborted_txns import read_aborted_txns
from kafkalog.storage.producer_snapshot import read_snapshot
from kafkalog.tools.dump.complaints import Complaints
from kafkalog.tools.dump.index import dump_index, dump_time_index
from kafkalog.tools.dump.log import base_offset_of, dump_log
from kafkalog.tools.dump.options import DumpOptions
from kafkalog.tools.dump.printer import TextPrinter
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.os_errors import list_names

if TYPE_CHECKING:
    from kafkalog.tools.dump.json_lines import Printer

__all__ = ["DumpOptions", "dump_files", "files_of"]

CHECKPOINT_SUFFIX: Final = ".checkpoint"


class _Run(NamedTuple):
    """One dump of any number of files: its options, its output, and the complaints that it collects."""

    printer: Printer
    options: DumpOptions
    complaints: Complaints
    err: BinaryIO
    fs: FileSystem


def dump_files(
    paths: Iterable[str],
    out: BinaryIO,
    options: DumpOptions | None = None,
    *,
    err: BinaryIO,
    as_json: bool = False,
    fs: FileSystem = OS,
) -> None:
    """Print each file to `out`, as the reference's text or as JSON lines; complaints follow the last file.

    Complaints go to `err`, in JSON to `out`. An unknown suffix and a damaged producer snapshot are lines on `err`
    (DUMP-13, DUMP-8). The first other file that cannot be read to its end raises: StorageError, CorruptRecord,
    InvalidRecord, CorruptIndex, FormatError, or IllegalArgument for a name or an option. Everything before the damage
    has been printed by then, and there are no complaints.
    """
    printer: Printer = TextPrinter(out, err)
    if as_json:
        from kafkalog.tools.dump.json_lines import JsonPrinter

        printer = JsonPrinter(out)
    run = _Run(printer, options or DumpOptions(), Complaints(), err, fs)
    for given in paths:
        path = normalize_path(given)
        name = os.path.basename(path)
        printer.begin(path)
        dump = _DUMPS.get(name[name.rfind(".") :] if "." in name else "")
        if dump is None:
            err.write(os.fsencode(f"Ignoring unknown file {path}\n"))
        else:
            _dump(dump, path, run)
    printer.complain(run.complaints)


def _dump(dump: Callable[[str, _Run], None], path: str, run: _Run) -> None:
    """Print a file; a missing file is reported as such, whatever its name is like."""
    try:
        dump(path, run)
    except IllegalArgument:
        if run.fs.exists(path):
            raise
        raise StorageError("there is no such file", errno=ENOENT, path=path, hint="check the path") from None


def _log(path: str, run: _Run) -> None:
    jumps = dump_log(path, run.printer, run.options, fs=run.fs)
    if jumps:
        run.complaints.non_consecutive[path] = jumps


def _index(path: str, run: _Run) -> None:
    dump_index(path, base_offset_of(path), run.printer, run.options, run.complaints, fs=run.fs)


def _time_index(path: str, run: _Run) -> None:
    dump_time_index(path, base_offset_of(path), run.printer, run.options, run.complaints, fs=run.fs)


def _snapshot(path: str, run: _Run) -> None:
    try:
        for producer in read_snapshot(path, fs=run.fs):
            run.printer.producer(path, producer)
    except CorruptSnapshot as error:
        run.err.write(os.fsencode(f"{error.message}\n"))


def _txn_index(path: str, run: _Run) -> None:
    base_offset_of(path)  # IllegalArgument for a name without one, as from the reference
    for entry in read_aborted_txns(path, fs=run.fs):
        run.printer.aborted(path, entry)


_DUMPS: Final[dict[str, Callable[[str, _Run], None]]] = {
    names.LOG_SUFFIX: _log,
    CHECKPOINT_SUFFIX: _log,
    names.INDEX_SUFFIX: _index,
    names.TIME_INDEX_SUFFIX: _time_index,
    names.SNAPSHOT_SUFFIX: _snapshot,
    names.TXN_INDEX_SUFFIX: _txn_index,
}
"""Print function by suffix of the file."""


def normalize_path(path: str) -> str:
    """Return the path with repeated slashes merged, and none at its end."""
    shorter = re.sub("/+", "/", path)
    return shorter.rstrip("/") or shorter


def files_of(directory: str, *, fs: FileSystem = OS) -> list[str]:
    """Return the files of a partition directory that can be dumped, by name."""
    found = list_names(directory, fs)
    return [os.path.join(directory, name) for name in found if name.endswith(tuple(_DUMPS))]
