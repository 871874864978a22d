"""Checksums of the files of an export: its manifest has them, and an import compares them."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kafkalog._core.bytes.crc import crc32c
from kafkalog.errors import FormatError
from kafkalog.exchange.manifest import exported_files, is_export, manifest_path
from kafkalog.util.os_errors import os_errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.exchange.manifest import ExportedFile

_CHUNK: Final = 1 << 20
_DEPTHS: Final = (2, 3)
"""Levels of an export's directory above a file: `topic=T/FILE`, and `topic=T/date=D/FILE`."""


def file_checksum(path: str) -> int:
    """Return the CRC-32C of a file; raise OSError."""
    found = 0
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(_CHUNK):
            found = crc32c(piece, found)
    return found


def check_exported(path: str) -> None:
    """Raise FormatError if a file of an export is not as it was written, or the export's manifest cannot be read.

    Files outside of exports, and those of exports without checksums, are not compared. Raises StorageError.
    """
    with os_errors("read the input", path):
        exported = _entry(path)
        if exported is None or exported.crc32c is None:
            return
        is_whole = os.path.getsize(path) == exported.bytes and file_checksum(path) == exported.crc32c
    if not is_whole:
        raise FormatError(
            "the file is not as the export wrote it: its size or checksum is another", path=path,
            hint="export again; import a file that was edited on purpose from a place outside of the export",
        )  # fmt: skip


def check_complete(path: str) -> None:
    """Raise FormatError if the directory `path` is an export, and files of its manifest are missing; StorageError."""
    with os_errors("read the export", path):
        exported = exported_files(path) if is_export(path) else {}
        missing = [place for place in exported if not os.path.exists(os.path.join(path, place))]
    if missing:
        others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise FormatError(
            f"the export has written {missing[0]}{others}, which is missing", path=path,
            hint="run an interrupted export again with --resume; to import what is left, name the directories in it",
        )  # fmt: skip


def _entry(path: str) -> ExportedFile | None:
    """Return what the manifest of an export has about a file."""
    parts = os.path.abspath(path).split(os.sep)
    for depth in _DEPTHS:
        root = os.sep.join(parts[:-depth]) or os.sep
        try:
            status = os.stat(manifest_path(root))
        except (FileNotFoundError, NotADirectoryError):
            continue
        found = _entries(root, status.st_size, status.st_mtime_ns).get("/".join(parts[-depth:]))
        if found is not None:
            return found
    return None


@lru_cache(maxsize=1)
def _entries(root: str, size: int, time_ns: int) -> Mapping[str, ExportedFile]:
    """Return the files of an export, whose manifest each of them would be looked up in; size and time are its own."""
    return exported_files(root)
