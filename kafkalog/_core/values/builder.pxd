"""The columns of one batch of values: a tree of nodes, the texts of rows that failed, and both as Arrow data.

`Builder(fields, most_bytes)` makes the tree of a nested tuple (nodes.pxd says how it is filled):

    (name, format, nullable, children, words)

`format` is the Arrow C data interface's: b; c C s S i I l L f g; z u; w:16; d:10,2; tdD ttm ttu; tsm:UTC tsu: …; n;
+s; +l with one child; +m with one child, a struct of two. `words` is a tuple of strings for a dictionary, whose format
is that of its numbers, i; () otherwise. A child of a struct whose format begins with - is hidden, with all below it, and
stands behind those that are columns. Then `values()` and `errors()` give what pyarrow.array takes; a builder is used
for one batch.
"""
from libc.stdint cimport int64_t

from kafkalog._core.values.nodes cimport (
    PUT_ENDS, PUT_LIMIT, PUT_MEMORY, PUT_OK, Limits, Node, cut, put_bytes, put_null,
)


cdef enum:
    MOST_LARGE_ROWS = 64            # each of them may take as long as it takes to fill the limit


cdef class Builder:
    cdef Node* nodes                # in preorder; node 0 is the column itself
    cdef readonly Py_ssize_t node_count
    cdef Limits limits
    cdef Node texts                 # what is wrong with a row; behind the rows until one fails
    cdef readonly int64_t rows
    cdef readonly int64_t failed
    cdef readonly int stopped       # the status for which no further row is taken
    cdef int large_rows             # that met the limit alone
    cdef bint taken
    cdef tuple fields               # owns the names and formats that the nodes point to
    cdef list kept

    cdef int _plant(self, int* at, tuple field, bint hidden) except -1
    cdef const char* _keep(self, str text) except NULL
    cdef object _take(self, Node* node)


cdef bint shrink(Builder b) noexcept nogil
cdef tuple shown_field(tuple field)


cdef inline void row_done(Builder b) noexcept nogil:
    """The row that was put is whole: node 0 has a value more."""
    b.rows += 1


cdef inline bint row_failed(Builder b, int status, const char* text) noexcept nogil:
    """Make the row that was being put null, with a text that says why; False where no further row can be taken.

    A row that met the limit alone fails like any other. If the rows before it take a quarter of the limit, if many rows
    met it, or if the machine has no memory, `stopped` is the status, the row counts as not put, and the caller raises.
    """
    cdef int64_t size = 0
    cdef bint room = True
    cut(b.nodes, b.rows)
    if status == PUT_MEMORY:
        b.stopped = status
        return False
    if status == PUT_LIMIT or status == PUT_ENDS:
        b.large_rows += 1
        # what the row made large would leave no room for the rows after it
        room = b.large_rows <= MOST_LARGE_ROWS and shrink(b)
    if room:
        status = put_null(b.nodes)
        while status == PUT_OK and b.texts.count < b.rows:
            status = put_null(&b.texts)
        if status == PUT_OK:
            while text[size] != 0:
                size += 1
            status = put_bytes(&b.texts, <const unsigned char*>text, size)
    if not room or status != PUT_OK:
        cut(b.nodes, b.rows)
        cut(&b.texts, b.rows)
        b.stopped = status
        return False
    b.rows += 1
    b.failed += 1
    return True
