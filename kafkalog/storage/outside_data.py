"""Places that must not lie inside a data directory."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Final

from kafkalog.errors import IllegalArgument
from kafkalog.storage.names import META_PROPERTIES
from kafkalog.util.checkpoint import RECOVERY_POINT_FILE
from kafkalog.util.paths import real_path

_MARKERS: Final = (META_PROPERTIES, RECOVERY_POINT_FILE)


def refuse_data_directory(place: str | os.PathLike[str], noun: str, known: Collection[str] = ()) -> None:
    """Raise IllegalArgument if `place` is or lies in a data directory: one of `known`, or one with a broker's files.

    A broker takes every directory in it for a partition, and does not start with another one. `known` are real paths.
    """
    directory = real_path(place)
    while True:
        if directory in known or any(os.path.exists(os.path.join(directory, marker)) for marker in _MARKERS):
            raise IllegalArgument(
                f"{noun} cannot be stored in the data directory {directory}",
                path=place,
                hint="a broker does not start with a directory in it that it does not know: name another directory",
            )
        parent = os.path.dirname(directory)
        if parent == directory:
            return
        directory = parent
