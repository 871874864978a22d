from libc.stdint cimport int64_t

from kafkalog._core.arrow.abi cimport ArrowArray, ArrowSchema
from kafkalog._core.arrow.cells cimport Cells, Lists, Numbers
from kafkalog._core.arrow.input cimport HeldArray, HeldSchema

cdef enum:
    # what a column is for
    VALUE = 0
    KEY = 1
    TOPIC = 2
    PARTITION = 3
    HEADERS = 4
    TIMESTAMP = 5
    ROLES = 6


cdef struct Role:
    # the column of a role as the schema has it
    int64_t child               # -1: there is none, or its type is null
    int layout                  # of bytes, text and lists
    int width                   # of numbers
    int64_t per_ms              # units of a timestamp in a millisecond; below 0: seconds
    int key_layout              # of the names and the values of headers
    int value_layout


cdef class RowPlan:
    """The columns of a schema that hold the parts of a record, and their layout in memory."""
    cdef Role roles[ROLES]
    cdef readonly dict columns
    cdef HeldSchema schema          # of the source that it was made for


cdef class Rows:
    """The rows of one record batch, as the encoder reads them."""
    cdef HeldArray held
    cdef readonly Py_ssize_t count
    cdef Cells value
    cdef Cells key
    cdef Cells topic
    cdef Numbers partition
    cdef Numbers timestamp
    cdef int64_t per_ms
    cdef Lists headers
    cdef RowPlan plan


cdef str type_words(const ArrowSchema* schema)
cdef int bytes_layout(const ArrowSchema* schema, bint text_only) noexcept
cdef bint bind_cells(Cells* c, const ArrowArray* array, int layout, int64_t first, int64_t rows) noexcept nogil
