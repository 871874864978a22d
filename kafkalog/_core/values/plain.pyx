"""Values of one number, text or UUID, as Kafka's serializers write them, into a column."""
from libc.stdint cimport int64_t, uint8_t
from libc.stdio cimport snprintf

from kafkalog._core.arrow.cells cimport SOUND, Slice, read_cell
from kafkalog._core.values.builder cimport Builder, row_done, row_failed
from kafkalog._core.values.hex cimport is_uuid
from kafkalog._core.values.nodes cimport (
    BOOL_NODE, FIXED_NODE, PUT_CODES, PUT_OK, PUT_UTF8, Node, put_bool, put_fixed, put_null, put_text,
)
from kafkalog._core.values.value_column cimport ValueColumn

cdef enum:
    WRONG_SIZE = PUT_CODES
    NO_UUID = PUT_CODES + 1
    NO_BOOL = PUT_CODES + 2
    TEXT_SIZE = 128


cdef inline int put_number(Node* n, const uint8_t* data) noexcept nogil:
    """Put the node's `width` bytes, which are big-endian."""
    cdef uint8_t turned[16]
    cdef int i
    for i in range(n.width):
        turned[i] = data[n.width - 1 - i]
    return put_fixed(n, turned)


cdef inline int put_plain(Node* n, const Slice* cell, bint uuid) noexcept nogil:
    if n.storage == FIXED_NODE:
        return put_number(n, cell.data) if cell.size == n.width else WRONG_SIZE
    if n.storage == BOOL_NODE:
        if cell.size != 1:
            return WRONG_SIZE
        return put_bool(n, cell.data[0]) if cell.data[0] < 2 else NO_BOOL
    if uuid and not is_uuid(cell.data, cell.size):
        return NO_UUID
    return put_text(n, cell.data, cell.size)


cdef void say(char* out, int status, const Slice* cell, int width) noexcept nogil:
    if status == WRONG_SIZE:
        snprintf(out, TEXT_SIZE, b"it takes %d bytes, and there are %lld", width, <long long>cell.size)
    elif status == NO_UUID:
        snprintf(out, TEXT_SIZE, b"it is not a UUID of 36 characters")
    elif status == NO_BOOL:
        snprintf(out, TEXT_SIZE, b"%d is no boolean", <int>cell.data[0])
    elif status == PUT_UTF8:
        snprintf(out, TEXT_SIZE, b"it is not UTF-8")
    else:
        snprintf(out, TEXT_SIZE, b"its column takes more memory than the limit")


def fill(Builder builder not None, ValueColumn column not None, bint uuid=False):
    """Decode all rows into the builder's only node; returns how many rows were read.

    Fewer than there are: the builder stopped (its status says why), or a cell contradicts itself (its status is 0).
    Numbers are at most 16 bytes wide.
    """
    cdef Node* node = builder.nodes
    cdef Slice cell
    cdef int64_t row = 0
    cdef int status
    cdef char text[TEXT_SIZE]
    if node.storage == FIXED_NODE and node.width > 16:
        raise ValueError(f"a number of {node.width} bytes")
    with nogil:
        while row < column.count:
            if read_cell(&column.cells, row, &cell) != SOUND:
                break
            status = put_null(node) if cell.size < 0 else put_plain(node, &cell, uuid)
            if status == PUT_OK:
                row_done(builder)
            else:
                say(text, status, &cell, node.width)
                if not row_failed(builder, status, text):
                    break
            row += 1
    return row
