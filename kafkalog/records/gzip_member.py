"""Gzip: one member per batch, written by `deflate` (libdeflate) if installed, else by the standard library.

libdeflate takes about half of zlib's time for the same size. It allocates its state for each call, so zlib is faster on
small batches. It also reads single members of known size, in a third of zlib's time. Other members are read by `isal`
if installed, in less than half of zlib's time.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kafkalog._core.batch.unpack import Tool
from kafkalog._core.bytes.store import Store

if TYPE_CHECKING:
    from typing_extensions import Buffer

DEFAULT_LEVEL: Final = 6
_GZIP_BITS: Final = 31
_LARGE_BYTES: Final = 4 << 10


@functools.cache
def _libdeflate() -> Callable[[memoryview, int], Buffer] | None:
    """Return the function that compresses data at a level; None if the package is not installed."""
    try:
        from deflate import gzip_compress
    except ImportError:
        return None
    return gzip_compress


def compress_into(store: Store, data: memoryview, level: int | None = None) -> None:
    """Append one member with `data`; levels are 1 to 9, and -1 and None mean the default."""
    chosen = DEFAULT_LEVEL if level is None or level < 0 else level
    compress_member = _libdeflate() if len(data) >= _LARGE_BYTES else None
    store.append(zlib.compress(data, chosen, _GZIP_BITS) if compress_member is None else compress_member(data, chosen))


def tool() -> Tool:
    """Return the tool that reads members and reports what is wrong with them."""
    return Tool(zlib.decompressobj, zlib.error)


def faster_tool() -> Tool | None:
    """Return the tool that reads intact members faster; None if it is not installed."""
    try:
        from isal import isal_zlib
    except ImportError:
        return None
    package: Any = isal_zlib  # its stubs declare the error as an instance
    return Tool(package.decompressobj, package.error)


def whole_tool() -> Tool | None:
    """Return the tool that reads the deflate stream of an intact member of known size; None if not installed."""
    try:
        from deflate import DeflateError, deflate_decompress
    except ImportError:
        return None
    return Tool(deflate_decompress, DeflateError, gives=True)
