"""Elements of lists in Arrow columns, without a Python object for one: a single one of each row, or all of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


class _Spans(NamedTuple):
    """The values of all lists of an array, and where those of each list begin and how many they are."""

    values: pa.Array
    starts: NDArray[Any]
    lengths: NDArray[Any]
    is_valid: NDArray[Any]


def is_list(type: pa.DataType) -> bool:
    """Return True for every kind of Arrow's lists; a map is none."""
    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_list_view)
    return any(test(type) for test in (*tests, pa.types.is_large_list_view))


def _spans(array: pa.Array) -> _Spans:
    is_valid = array.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_list_view(array.type) or pa.types.is_large_list_view(array.type):
        starts, lengths = array.offsets.to_numpy(), array.sizes.to_numpy()
    else:
        if pa.types.is_fixed_size_list(array.type):
            array = array.cast(pa.list_(array.type.value_type))
        offsets = array.offsets.to_numpy()
        starts, lengths = offsets[:-1], numpy.diff(offsets)
    return _Spans(array.values, starts, numpy.where(is_valid, lengths, 0), is_valid)  # a null may lie over values


def element_of(array: pa.Array, number: int) -> pa.Array:
    """Return the element with this number of each list, counted from the end if it is negative; null without one.

    >>> element_of(pa.array([[1, 2], [], None]), -1).to_pylist()
    [2, None, None]
    """
    spans = _spans(array)
    places = spans.starts + (number if number >= 0 else spans.lengths + number)
    is_there = spans.lengths > number if number >= 0 else spans.lengths >= -number
    return spans.values.take(pa.array(places, pa.int64(), mask=~is_there))


class Elements(NamedTuple):
    """Elements of lists as one array: `rows` has the row of each, and `is_unknown` the rows whose list is null."""

    values: pa.Array
    rows: NDArray[Any]
    is_unknown: NDArray[Any]

    @classmethod
    def of(cls, array: pa.Array) -> Elements:
        """Return one element for each row: its value."""
        return cls(array, numpy.arange(len(array)), numpy.zeros(len(array), bool))

    def flattened(self) -> Elements:
        """Return the elements of the values, which are lists; of nulls, only that they are unknown."""
        is_unknown = self.is_unknown.copy()
        if pa.types.is_null(self.values.type):
            is_unknown[self.rows] = True
            return Elements(self.values.slice(0, 0), self.rows[:0], is_unknown)
        spans = _spans(self.values)
        is_unknown[self.rows[~spans.is_valid]] = True
        ends = numpy.cumsum(spans.lengths)
        places = numpy.repeat(spans.starts - ends + spans.lengths, spans.lengths)
        places = places + numpy.arange(len(places))
        return Elements(spans.values.take(pa.array(places)), numpy.repeat(self.rows, spans.lengths), is_unknown)

    def any(self, mask: pa.BooleanArray) -> pa.BooleanArray:
        """Return for each row if the mask is true for any of its elements; else null if one, or the list, is null."""
        count = len(self.is_unknown)
        is_true, is_null = numpy.zeros(count, bool), self.is_unknown.copy()
        is_true[self.rows[pc.fill_null(mask, False).to_numpy(zero_copy_only=False)]] = True
        is_null[self.rows[mask.is_null().to_numpy(zero_copy_only=False)]] = True
        return pa.array(is_true, mask=is_null & ~is_true)

    def gathered(self) -> pa.ListArray:
        """Return a list of the elements for each row, null where there is none because a list is null."""
        count = len(self.is_unknown)
        lengths = numpy.bincount(self.rows, minlength=count)
        offsets = numpy.concatenate([[0], numpy.cumsum(lengths)]).astype(numpy.int32)
        is_null = pa.array(self.is_unknown & (lengths == 0))
        return pa.ListArray.from_arrays(pa.array(offsets), self.values, mask=is_null)
