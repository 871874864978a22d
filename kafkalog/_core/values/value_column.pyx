"""The bytes that a decoder reads, from any library's column."""
cimport cython

from kafkalog._core.arrow.cells cimport NOTHING
from kafkalog._core.arrow.input cimport ArrowSource
from kafkalog._core.arrow.rows cimport bind_cells, bytes_layout, type_words

from kafkalog._core.arrow.input import BadArrow


@cython.final
cdef class ValueColumn:
    """A column of bytes or text, or of type null: any object with `__arrow_c_array__`, which it holds.

    BadArrow for another type, or a stream of several arrays (kind type), or a column that contradicts itself (malformed); TypeError for no Arrow data.
    """

    def __cinit__(self, column):
        cdef ArrowSource source = ArrowSource(column)
        cdef int layout = bytes_layout(&source.schema.schema, False)
        if layout < 0:
            raise BadArrow(
                f"the column is {type_words(&source.schema.schema)}, and a decoder reads binary or string", "type",
                hint="cast it",
            )
        self.cells.layout = NOTHING
        self.held = source.next_array()
        if self.held is None:
            return  # a stream of no arrays
        self.count = self.held.array.length
        if source.next_array() is not None:
            raise BadArrow("the column has more than one array", "type", hint="join them first")
        if self.count < 0 or (
            layout != NOTHING and not bind_cells(&self.cells, &self.held.array, layout, 0, self.count)
        ):
            raise BadArrow("the column contradicts itself", "malformed")

    def __len__(self) -> int:
        return self.count
