"""Objects of a store that fsspec knows, written so that none is visible before it is complete."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kafkalog.util.fileio import OS


def write_object(remote: Any, path: str, fill: Callable[[Any], object], partial: str | None) -> None:
    """Create the object `path`, which `fill` writes; errors as those of the store and of `fill`.

    `partial` is the name of the incomplete file in a store that is a directory of this machine, else None.
    """
    if partial is not None:
        _write_locally(path, fill, partial)
        return
    target = remote.open(path, "wb", autocommit=False)
    try:
        fill(target)
        target.close()
    except BaseException:
        with suppress(Exception):
            target.discard()
        with suppress(Exception):
            target.closed = True  # else fsspec completes a buffered file when it is garbage-collected
        raise
    target.commit()


def _write_locally(path: str, fill: Callable[[Any], object], partial: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(partial, "wb") as target:
        fill(target)
        target.flush()
        OS.fsync(target.fileno())
    os.replace(partial, path)
    OS.fsync_dir(os.path.dirname(path))
