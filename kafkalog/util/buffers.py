"""Type of byte buffers that are passed on unchanged; empty at run time."""

from __future__ import annotations

from collections.abc import Sized
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from typing_extensions import Buffer

    class Data(Buffer, Sized, Protocol):
        """Bytes of known length: bytes, bytearray, memoryview, a compressor's block."""
