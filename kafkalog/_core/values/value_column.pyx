"""The bytes that a decoder reads, from any library's column."""
cimport cython

from kafkalog._core.arrow.cells cimport NOTHING
from kafkalog._core.arrow.input cimport ArrowSource
from kafkalog._core.arrow.rows cimport bind_cells, bytes_layout, type_words

from kafkalog._core.arrow.input import BadArrow


@cython.final
cdef class ValueColumn:
    """A column of bytes or text, or of type null: any object with `__arrow_c_array__`, which it holds.

    BadArrow for another type (kind type) or a column that contradicts itself (malformed); TypeError for no Arrow data.
    """

    def __cinit__(self, column):
        cdef ArrowSource source = ArrowSource(column)
        cdef int layout = bytes_layout(&source.schema.schema, False)
        if layout < 0:
            raise BadArrow(
                f"the column is {type_words(&source.schema.schema)}, and a decoder reads binary or string", "type",
                hint="cast it",
            )
        self.held = source.next_array()
        if self.held is None:
            raise BadArrow("the Arrow data has no rows to give", "malformed")
        self.count = self.held.array.length
        self.cells.layout = NOTHING
        if self.count < 0 or (
            layout != NOTHING and not bind_cells(&self.cells, &self.held.array, layout, 0, self.count)
        ):
            raise BadArrow("the column contradicts itself", "malformed")

    def __len__(self) -> int:
        return self.count
