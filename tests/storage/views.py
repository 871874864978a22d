"""Directories for the tests of mode "r", and what is asked of a view."""

from pathlib import Path

from kafkalog.reading.chunks import records
from kafkalog.storage.readonly.view import LogView
from tests.raw_batches import batches, write_segment


def thousand_offsets(path: Path) -> Path:
    """Offsets 0 to 999 in two segments of fifty batches of ten."""
    write_segment(path, 0, batches(0, 50, 10))
    write_segment(path, 500, batches(500, 50, 10))
    return path


def offsets(view: LogView, start: int | None = None, stop: int | None = None) -> list[int]:
    first = view.log_start_offset if start is None else start
    last = view.log_end_offset if stop is None else stop
    return [record.offset for record in records(view, first, last)]


def log_file(folder: Path, base: int) -> Path:
    return folder / f"{base:020d}.log"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)
