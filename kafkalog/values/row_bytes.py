"""Columns as the bytes of rows: what the encoders of Avro and Protobuf values share, each step a column at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow

_MOST_VARINT: Final = 10


def scalar(data: bytes) -> pyarrow.Scalar:
    """Return bytes that all rows have."""
    import pyarrow as pa

    return pa.scalar(data, pa.binary())


def repeated(data: bytes, rows: int) -> pyarrow.Array:
    """Return a column of the same bytes."""
    import pyarrow as pa

    return pa.repeat(scalar(data), rows)


def joined(rows: int, parts: list[Any]) -> pyarrow.Array:
    """Return the bytes of all parts of each row, back to back."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not any(isinstance(one, pa.Array) for one in parts):
        return repeated(b"".join(one.as_py() for one in parts), rows)
    return pc.binary_join_element_wise(*parts, scalar(b""))


def longs(values: Any) -> pyarrow.Array:
    """Return whole numbers as zigzag varints.

    >>> import numpy
    >>> [value.hex() for value in longs(numpy.array([0, -1, 64])).to_pylist()]
    ['00', '01', '8001']
    """
    import numpy as np

    signed = np.asarray(values, np.int64)
    return varints(((signed << 1) ^ (signed >> 63)).astype(np.uint64))


def varints(values: Any) -> pyarrow.Array:
    """Return whole numbers of 64 bits without a sign as varints.

    >>> import numpy
    >>> [value.hex() for value in varints(numpy.array([1, 128])).to_pylist()]
    ['01', '8001']
    """
    import numpy as np

    coded = np.asarray(values, np.uint64)
    lengths = np.ones(len(coded), np.int64)
    for step in range(1, _MOST_VARINT):
        lengths += coded >= np.uint64(1 << 7 * step)
    ends = np.cumsum(lengths)
    starts, data = ends - lengths, np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    for step in range(int(lengths.max()) if len(lengths) else 0):
        has = lengths > step
        more = np.where(lengths[has] > step + 1, 0x80, 0).astype(np.uint8)
        data[starts[has] + step] = (coded[has] >> np.uint64(7 * step)).astype(np.uint8) & 0x7F | more
    return _binary(np.concatenate(([0], ends)), data)


def _binary(offsets: Any, data: Any) -> pyarrow.Array:
    import numpy as np
    import pyarrow as pa

    buffers = [None, pa.py_buffer(offsets.astype(np.int32).tobytes()), pa.py_buffer(data.tobytes())]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def fixed(values: Any) -> pyarrow.Array:
    """Return the bytes of an array's items, or of the rows of an array of bytes."""
    import numpy as np

    size = values.itemsize * (values.shape[1] if values.ndim == 2 else 1)
    return _binary(np.arange(len(values) + 1) * size, values)


def numbers(values: pyarrow.Array, dtype: str) -> Any:
    """Return numbers in another type; ValueError for one that is beyond it."""
    import pyarrow as pa

    return values.cast(pa.type_for_alias(dtype)).to_numpy(zero_copy_only=False)


def utf8(values: pyarrow.Array) -> pyarrow.Array:
    """Return bytes as texts; ValueError for what is not UTF-8."""
    import pyarrow as pa

    return values.cast(pa.binary()).cast(pa.string())


def sized(values: pyarrow.Array, size: Callable[[Any], pyarrow.Array] = longs) -> pyarrow.Array:
    """Return texts or bytes with their sizes before them: zigzag varints, or as `size` writes them."""
    import pyarrow as pa

    data = values.cast(pa.large_binary()) if pa.types.is_large_string(values.type) else values
    data = data.cast(pa.binary())
    return joined(len(data), [size(sizes(data)), data])


def sizes(values: pyarrow.Array) -> Any:
    """Return the number of bytes of each value."""
    import pyarrow.compute as pc

    return pc.binary_length(values).to_numpy(zero_copy_only=False)


def concatenated(counts: Any, items: pyarrow.Array) -> pyarrow.Array:
    """Return the bytes of lists, which have so many of the items each, back to back."""
    import numpy as np
    import pyarrow as pa

    if not len(items):
        return repeated(b"", len(counts))
    _, offsets, data = items.buffers()
    ends = np.concatenate(([0], np.cumsum(counts)))
    starts = np.frombuffer(offsets, np.int32)[items.offset : items.offset + len(items) + 1][ends]
    return pa.Array.from_buffers(pa.binary(), len(counts), [None, pa.py_buffer(starts.tobytes()), data])
