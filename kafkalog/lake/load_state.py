"""State of the load of a table into a topic: a file in the data directory, replaced whole before and after each batch.

    {"version": 1, "load": "0d...", "batch": 4, "done": true, "since": "17", "snapshot": "18", "first": 0, ...}
    crc32c of the line above, 8 hex digits

A batch is a range of the files of a snapshot. It is recorded before it lands, so that after a crash the same rows have
the same batch number in the same load, which the sink's ledger counts once. Without the file a new load begins.
"""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple

from kafkalog._core.bytes.crc import crc32c
from kafkalog.errors import CorruptCheckpoint
from kafkalog.util.fileio import OS, atomic_write
from kafkalog.util.os_errors import os_errors, read_if_present

VERSION: Final = 1
_LOAD: Final = re.compile("[0-9a-f]{32}")
_MAX_BYTES: Final = 1 << 16
_HINT: Final = "restore it from a copy, or load the table into another topic: without it all rows are loaded again"


class LoadBatch(NamedTuple):
    """The last batch: files [first, stop) of the `files` files of a snapshot; `done` once it has landed.

    `load` is a random id. The files are those that `snapshot` added to `since`; all of its files without one.
    `topic_id` is that of the topic once it exists, if topics have ids there.
    """

    load: str
    batch: int
    done: bool
    since: str | None
    snapshot: str
    first: int
    stop: int
    files: int
    topic_id: str | None = None


def read_state(path: str) -> LoadBatch | None:
    """Return the last batch, None before the first one. Raises CorruptCheckpoint, StorageError."""
    content = read_if_present(path, _MAX_BYTES, "read how far the table was loaded", OS)
    if content is None:
        return None
    line, _, rest = content.partition(b"\n")
    try:
        if rest != b"%08x\n" % crc32c(line):
            raise ValueError("its checksum does not match")
        found = json.loads(line)
        if found.pop("version") != VERSION:
            raise ValueError(f"its version is not {VERSION}")
        batch = LoadBatch(**found)
        if not _LOAD.fullmatch(batch.load):
            raise ValueError("its load has no id")
        numbers = (batch.batch, batch.first, batch.stop, batch.files)
        if not (all(type(one) is int for one in numbers) and 0 <= batch.first <= batch.stop <= batch.files):
            raise ValueError("its numbers do not fit")
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise CorruptCheckpoint(f"the state of the load is damaged: {error}", path=path, hint=_HINT) from None
    return batch


def write_state(path: str, batch: LoadBatch) -> None:
    """Replace the state, synced. Raises StorageError; then the old one or this one is in place."""
    line = json.dumps({"version": VERSION, **batch._asdict()}, separators=(",", ":")).encode()
    with os_errors("write how far the table was loaded", path):
        atomic_write(OS, path, b"%b\n%08x\n" % (line, crc32c(line)))
