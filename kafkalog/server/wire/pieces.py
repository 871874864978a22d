"""Pieces of a response: bytes and file ranges."""

from __future__ import annotations

from typing import Protocol


class Records(Protocol):
    """A range of a file, such as `storage.file_slice.FileSlice`."""

    @property
    def size(self) -> int:
        """Size in bytes."""


Pieces = list[bytes | Records]
