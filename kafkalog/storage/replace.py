"""Putting new segments in the place of old ones, so that a crash at any moment loses nothing (LOG-79).

    new files are `.cleaned`    a crash: the loader removes them, the old segments are whole
    new files become `.swap`    highest base first; a crash: the loader finishes the replacement, or, as long as one
                                `.cleaned` is left, removes all of them
    old files become `.deleted` a crash: the loader finishes the replacement
    new files lose the suffix

The directory is synced after each step, so that no later one is on disk before it: a new segment under its own name
beside an old one that it holds the records of would be the same offsets twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkalog.storage.names import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX
from kafkalog.storage.segment import LogSegment
from kafkalog.util.fileio import FileSystem


def replace_files(directory: str, new: Sequence[LogSegment], old: Sequence[LogSegment], fs: FileSystem) -> None:
    """Rename the files of `new`, which are `.cleaned` and synced, into the place of those of `old`.

    StorageError, OSError where the system refuses: the loader of the next start goes on from there.
    """
    make_swaps(directory, new, fs)
    give_place(directory, new, old, fs)
    fs.fsync_dir(directory)


def make_swaps(directory: str, new: Sequence[LogSegment], fs: FileSystem) -> None:
    """Rename `.cleaned` files to `.swap`: from here on it is they that count. Errors as for `replace_files`."""
    for segment in sorted(new, key=lambda s: s.base_offset, reverse=True):
        segment.change_file_suffixes(CLEANED_SUFFIX, SWAP_SUFFIX)
    fs.fsync_dir(directory)


def give_place(directory: str, new: Sequence[LogSegment], old: Sequence[LogSegment], fs: FileSystem) -> None:
    """Rename the old files away and `.swap` files into their place; that is not synced. Errors as `replace_files`."""
    for segment in old:
        segment.change_file_suffixes("", DELETED_SUFFIX)
    fs.fsync_dir(directory)
    for segment in new:
        segment.change_file_suffixes(SWAP_SUFFIX, "")
