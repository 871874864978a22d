"""Putting new segments in the place of old ones, so that a crash at any moment loses nothing (LOG-79).

    new files are `.cleaned`    a crash: the loader removes them, the old segments are whole
    new files become `.swap`    highest base first; a crash: the loader finishes the replacement, or, as long as one
                                `.cleaned` is left, removes all of them
    old files become `.deleted`
    new files lose the suffix
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkalog.storage.names import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX
from kafkalog.storage.segment import LogSegment
from kafkalog.util.fileio import FileSystem


def replace_files(directory: str, new: Sequence[LogSegment], old: Sequence[LogSegment], fs: FileSystem) -> None:
    """Rename the files of `new`, which are `.cleaned` and synced, into the place of those of `old`.

    The directory is synced between the steps. StorageError where the system refuses: the loader of the next start
    goes on from there.
    """
    for segment in sorted(new, key=lambda s: s.base_offset, reverse=True):
        segment.change_file_suffixes(CLEANED_SUFFIX, SWAP_SUFFIX)
    fs.fsync_dir(directory)
    for segment in old:
        segment.change_file_suffixes("", DELETED_SUFFIX)
    for segment in new:
        segment.change_file_suffixes(SWAP_SUFFIX, "")
    fs.fsync_dir(directory)
