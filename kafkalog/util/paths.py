"""Resolution of paths given by callers."""

from __future__ import annotations

import os

from kafkalog.errors import IllegalArgument


def real_path(path: str | bytes | os.PathLike[str]) -> str:
    """Return the absolute path without symbolic links; raise IllegalArgument for an invalid path (a NUL in it)."""
    try:
        return os.path.realpath(os.fsdecode(path))
    except ValueError as error:
        raise IllegalArgument(f"{ascii(path)} is not a path: {error}") from None
