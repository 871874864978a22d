"""Start of the browser, after its requirements are checked."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.browse.levels import partition_level
from kafkalog.errors import IllegalState, MissingPackage
from kafkalog.tools.directories import PartitionPath
from kafkalog.util.fileio import OS, FileSystem

if TYPE_CHECKING:
    from kafkalog.browse.app import BrowseApp
    from kafkalog.browse.search import Select
    from kafkalog.tools.consume.decoded import Serdes


class BrowseOptions(NamedTuple):
    """Decoders of keys and values, the directory of key indexes (None: beside the segments), and decoded conditions."""

    serdes: Serdes | None = None
    key_store: str | os.PathLike[str] | None = None
    select: Select | None = None


_PLAIN: Final = BrowseOptions()


def make_app(found: Sequence[PartitionPath], fs: FileSystem = OS, options: BrowseOptions = _PLAIN) -> BrowseApp:
    """Return the browser for these partitions, not running yet; a single one opens at its segments. MissingPackage."""
    try:
        from kafkalog.browse.app import BrowseApp
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "textual":
            raise
        raise MissingPackage(
            "the package textual is not installed", hint="pip install 'kafkalog[browse]'"
        ) from None
    return BrowseApp(partition_level(found), fs, options)


def browse(found: Sequence[PartitionPath], fs: FileSystem = OS, options: BrowseOptions = _PLAIN) -> None:
    """Run the browser until the user quits. Raises MissingPackage; IllegalState without a terminal."""
    app = make_app(found, fs, options)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise IllegalState("the browser needs a terminal", hint="use `kafkalog stats` or `kafkalog dump`")
    app.run()
