"""Replacing old segments by new ones so that a crash at any moment loses nothing (LOG-79).

    new files are `.cleaned`    a crash: the loader removes them, the old segments are complete
    new files become `.swap`    highest base first; a crash: the loader finishes the replacement, or, as long as one
                                `.cleaned` is left, removes all of them
    old files become `.deleted` a crash: the loader finishes the replacement
    new files lose the suffix

The directory is synced after each step, so that the disk never has a later step without an earlier one. A new
segment under its own name beside the old one would hold the same offsets twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkalog.storage.names import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX
from kafkalog.storage.segment import LogSegment
from kafkalog.util.fileio import FileSystem


def replace_files(directory: str, new: Sequence[LogSegment], old: Sequence[LogSegment], fs: FileSystem) -> None:
    """Replace the files of `old` by those of `new`, which are `.cleaned` and synced.

    StorageError or OSError if the system refuses; the loader finishes the replacement at the next start.
    """
    make_swaps(directory, new, fs)
    apply_swaps(directory, new, old, fs)
    fs.fsync_dir(directory)


def make_swaps(directory: str, new: Sequence[LogSegment], fs: FileSystem) -> None:
    """Rename `.cleaned` files to `.swap`, which makes them take effect. Raises as `replace_files` does."""
    for segment in sorted(new, key=lambda s: s.base_offset, reverse=True):
        segment.change_file_suffixes(CLEANED_SUFFIX, SWAP_SUFFIX)
    fs.fsync_dir(directory)


def apply_swaps(directory: str, new: Sequence[LogSegment], old: Sequence[LogSegment], fs: FileSystem) -> None:
    """Rename the old files to `.deleted` and `.swap` files to their place, unsynced. Raises as `replace_files` does."""
    for segment in old:
        segment.change_file_suffixes("", DELETED_SUFFIX)
    fs.fsync_dir(directory)
    for segment in new:
        segment.change_file_suffixes(SWAP_SUFFIX, "")
