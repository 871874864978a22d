"""Paths as callers hand them in."""

from __future__ import annotations

import os

from kafkalog.errors import IllegalArgument


def real_path(path: str | bytes | os.PathLike[str]) -> str:
    """The path from the root on, without links; IllegalArgument for what names no file (a NUL in it)."""
    try:
        return os.path.realpath(os.fsdecode(path))
    except ValueError as error:
        raise IllegalArgument(f"{ascii(path)} is no path: {error}") from None
