"""The bytes that a decoder reads: a column of binary or text that somebody else made, taken through the C interface.

    cdef ValueColumn column = ValueColumn(array)
    for row in range(column.count):
        if read_cell(&column.cells, row, &slice) != SOUND: …        # arrow/cells.pxd; size -1 is null
"""
from libc.stdint cimport int64_t

from kafkalog._core.arrow.cells cimport Cells
from kafkalog._core.arrow.input cimport HeldArray


cdef class ValueColumn:
    cdef HeldArray held             # the memory that `cells` points into
    cdef readonly int64_t count
    cdef Cells cells
