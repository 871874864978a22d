"""The dump tool for `.log` files, and for metadata snapshots, which have the same format."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from kafkalog.errors import IllegalArgument
from kafkalog.storage import names
from kafkalog.tools.dump.complaints import Pair
from kafkalog.tools.dump.options import DumpOptions
from kafkalog.tools.dump.window import FileWindow
from kafkalog.util.fileio import FileSystem
from kafkalog.util.os_errors import os_errors

if TYPE_CHECKING:
    from kafkalog.tools.dump.json_lines import Printer

_SNAPSHOT_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_OFFSET: Final = re.compile(r"[+-]?\d{1,20}")


def dump_log(path: str, printer: Printer, options: DumpOptions, *, fs: FileSystem) -> list[Pair]:
    """Print the batches of a file, and its records if the options ask for them.

    Return the pairs (offset, next offset) that are not consecutive, starting from -1; only printed records count.
    """
    reader = None if options.reader is None else options.reader()
    printer.title(path, title_of(path))
    max_bytes = options.max_bytes
    if max_bytes is not None and max_bytes < 0:
        raise IllegalArgument(f"--max-bytes must be at least 0, not {max_bytes}", path=path)
    with os_errors("open", path):
        file = fs.open_file(path, "r")
    with file:
        size = file.size()
        window = FileWindow(file, size if max_bytes is None else min(size, max_bytes))
        jumps = printer.log(path, window, options, reader)
    if max_bytes is None and window.left > 0:
        printer.left_over(path, window.position, window.left)
    return jumps


def title_of(path: str) -> str:
    """Return the title for the name of a `.log` or `.checkpoint` file; IllegalArgument for an invalid name."""
    name = os.path.basename(path)
    if name.endswith(names.LOG_SUFFIX):
        return f"Log starting offset: {base_offset_of(path)}"
    if name == names.BOOTSTRAP_FILE:
        return "KRaft bootstrap snapshot"
    found = _SNAPSHOT_NAME.fullmatch(name)
    if found is None:
        raise IllegalArgument("a snapshot is named <offset, 20 digits>-<epoch, 10 digits>.checkpoint", path=path)
    return f"Snapshot end offset: {int(found[1])}, epoch: {int(found[2])}"


def base_offset_of(path: str) -> int:
    """Return the digits before the first dot of the name; IllegalArgument if there are none."""
    digits = os.path.basename(path).split(".")[0]
    if not _OFFSET.fullmatch(digits) or not -(2**63) <= int(digits) < 2**63:
        raise IllegalArgument("the file's name does not begin with an offset", path=path)
    return int(digits)
