"""Gzip: one member for each batch, by `deflate` (libdeflate) where that is installed, else by the standard library.

libdeflate takes about half of zlib's time for the same size. It sets itself up anew for each call, so that zlib is
ahead on small batches. It also reads what is one member of known size, in a third of zlib's time; other members are
read by `isal` where that is installed, in less than half of it.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kafkalog._core.store import Store
from kafkalog._core.unpack import Tool

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["DEFAULT_LEVEL", "compress_into", "faster_tool", "tool", "whole_tool"]

DEFAULT_LEVEL: Final = 6
_GZIP_BITS: Final = 31
_LARGE_BYTES: Final = 4 << 10


@functools.cache
def _libdeflate() -> Callable[[memoryview, int], Buffer] | None:
    """Compresses data at a level; None where the package is not installed."""
    try:
        from deflate import gzip_compress
    except ImportError:
        return None
    return gzip_compress


def compress_into(store: Store, data: memoryview, level: int | None = None) -> None:
    """Appends one member with `data`; levels 1 to 9, -1 and None are the default."""
    chosen = DEFAULT_LEVEL if level is None or level < 0 else level
    squeeze = _libdeflate() if len(data) >= _LARGE_BYTES else None
    store.append(zlib.compress(data, chosen, _GZIP_BITS) if squeeze is None else squeeze(data, chosen))


def tool() -> Tool:
    """What reads members, and says what is wrong with them."""
    return Tool(zlib.decompressobj, zlib.error)


def faster_tool() -> Tool | None:
    """What reads sound members faster, where it is installed."""
    try:
        from isal import isal_zlib
    except ImportError:
        return None
    package: Any = isal_zlib  # which says that its error is an instance
    return Tool(package.decompressobj, package.error)


def whole_tool() -> Tool | None:
    """What reads the deflate stream of a sound member whose size is known, where it is installed."""
    try:
        from deflate import DeflateError, deflate_decompress
    except ImportError:
        return None
    return Tool(deflate_decompress, DeflateError, gives=True)
