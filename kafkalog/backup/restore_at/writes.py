"""The ledger of commits (`landing`) as of a moment: writes after it are forgotten, so that they can be run again.

    {..., "marks": {"job-...": [batch, ms], ...}, "intent": {..., "files": [[name, ...], ...]} or null}
    crc32c of the line above, 8 hex digits
"""

from __future__ import annotations

import json
import os
from typing import Any, Final

from kafkalog._core.bytes.crc import crc32c
from kafkalog.backup.directory import LEDGER
from kafkalog.errors import StorageError
from kafkalog.util.fileio import FileSystem, atomic_write

_MAX_BYTES: Final = 64 << 20
_VERSION: Final = 1


def forget_writes(directory: str, at_ms: int, fs: FileSystem) -> str | None:
    """Remove the marks of writes that landed after the moment, and a write that was staged after it, from a ledger.

    Otherwise such a write, run again, would count as landed, though its records are cut off. Return a note; None if
    nothing changed. A ledger that cannot be read stays. StorageError.
    """
    path = os.path.join(directory, LEDGER)
    try:
        found = _parsed(fs.read_file(path, _MAX_BYTES))
        if found is None:
            return None
        marks = {job: mark for job, mark in found["marks"].items() if mark[1] <= at_ms}
        forgotten = sorted(found["marks"].keys() - marks.keys())
        intent = found["intent"]
        if intent is not None and _is_later(directory, intent, at_ms, fs):
            forgotten.append(intent["job"])
            intent = None
        if not forgotten:
            return None
        line = json.dumps({**found, "marks": marks, "intent": intent}, separators=(",", ":")).encode()
        atomic_write(fs, path, b"%b\n%08x\n" % (line, crc32c(line)))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError.from_os(error, "restore the ledger", path=path) from error
    more = f" and {len(forgotten) - 3} more" if len(forgotten) > 3 else ""
    return f"{LEDGER}: {', '.join(forgotten[:3])}{more} landed later: run again, they are written again"


def _parsed(content: bytes) -> Any:
    """Return the fields of a ledger; None for a damaged one, and for one of another version."""
    line, _, rest = content.partition(b"\n")
    if rest != b"%08x\n" % crc32c(line):
        return None
    found = json.loads(line)
    return found if found.get("version") == _VERSION else None


def _is_later(directory: str, intent: Any, at_ms: int, fs: FileSystem) -> bool:
    """Return True if one of the staged files of a write was made after the moment."""
    paths = [os.path.join(directory, one[0]) for one in intent["files"]]
    return any(fs.exists(path) and fs.stat(path).st_mtime_ns // 1_000_000 > at_ms for path in paths)
