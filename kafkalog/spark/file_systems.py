"""File system of a read's directories: this machine's, or with the option `tiered` one in which topics are whole."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from kafkalog.util.fileio import OS, FileSystem

if TYPE_CHECKING:
    from kafkalog.spark.options import SourceOptions


def file_system(options: SourceOptions) -> FileSystem:
    """Return the file system of a read; the same one for later reads of the same directories in this process.

    A description that was changed is read again. Raises as `tiered_file_system` does.
    """
    if options.tiered is None:
        return OS
    try:
        changed_ns = OS.stat(options.tiered).st_mtime_ns
    except OSError:  # a URL, or a file of which the read raises
        changed_ns = 0
    return _tiered(options.paths, options.tiered, changed_ns)


@lru_cache(maxsize=2)
def _tiered(paths: tuple[str, ...], tiered: str, changed_ns: int) -> FileSystem:
    from kafkalog.tiered.open import located

    return located(paths, tiered)[0]
