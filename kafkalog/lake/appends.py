"""Sources of a sync's new files, in shares for its commits: this process, or tasks elsewhere."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kafkalog.lake.files import TableFiles
from kafkalog.lake.rows import fitted

if TYPE_CHECKING:
    from kafkalog.lake.rows import TopicRows
    from kafkalog.lake.table import LakeTable, WrittenFile

FILES_PER_COMMIT: Final = 16
"""A backfill commits the bytes of this many files at a time; after a crash at most these are read again."""


class FinishedFiles(Protocol):
    """Complete files that no commit has yet."""

    @property
    def finished(self) -> list[WrittenFile]:
        """The files."""

    def take(self) -> None:
        """Note that a commit has the files, or may have them."""


class Share(NamedTuple):
    """Files for one commit, the records in them, and the offset that each partition has reached with them."""

    files: FinishedFiles
    records: int
    reached: Mapping[int, int]


class FileSource(Protocol):
    """A source of files of a table, which writes rows to them."""

    def __call__(self, rows: TopicRows, table: LakeTable, file_bytes: int) -> Generator[Share, None, None]:
        """Yield the rows as shares; each is requested after the last one's commit, for the newest snapshot.

        Closed early, it deletes the files that were not taken.
        """


def local_shares(rows: TopicRows, table: LakeTable, file_bytes: int) -> Generator[Share, None, None]:
    """Yield shares whose files this process writes."""
    files = TableFiles(table.writer, file_bytes)
    reached: dict[int, int] = {}
    records = 0
    try:
        for one in rows.ranges:
            for piece in rows.pieces(one):
                files.add(fitted(piece.rows, table.schema))
                records += piece.rows.num_rows
                reached[one.number] = piece.next_offset
                if files.finished_bytes >= FILES_PER_COMMIT * file_bytes:
                    files.close()
                    yield Share(files, records, reached)
                    files, reached, records = TableFiles(table.writer, file_bytes), {}, 0
            reached[one.number] = one.stop
        files.close()
        yield Share(files, records, reached)
    finally:
        files.abandon()
