"""The headers of a row of Arrow data: measured before the record is written, then written behind its value."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalog._core.arrow.cells cimport Lists, Slice, Span, is_set, read_cell, read_span
from kafkalog._core.batch.emit cimport put_sized, put_varint, varint_size

cdef enum HeaderStatus:
    HEADERS_FINE = 0
    HEADERS_MALFORMED = 1
    HEADERS_NULL = 2                # one of them is, or has no name
    HEADERS_LONG = 3


cdef inline int64_t header_size(const Slice* name, const Slice* value) noexcept nogil:
    return (
        varint_size(<int32_t>name.size) + name.size + varint_size(<int32_t>value.size)
        + (value.size if value.size > 0 else 0)
    )


cdef inline int measure_headers(
    const Lists* lists, int64_t row, int64_t most, Span* span, int64_t* size
) noexcept nogil:
    """The headers of a row, and the bytes they take with their count; HEADERS_LONG for more than `most` < 2^31."""
    cdef int64_t i
    cdef Slice name
    cdef Slice value
    cdef int64_t n
    if read_span(lists, row, span):
        return HEADERS_MALFORMED
    if span.last - span.first > most:
        return HEADERS_LONG
    n = varint_size(<int32_t>(span.last - span.first))
    for i in range(span.first, span.last):
        if lists.items_valid != NULL and not is_set(lists.items_valid, lists.items_first + i):
            return HEADERS_NULL
        if read_cell(&lists.key, i, &name) or read_cell(&lists.value, i, &value):
            return HEADERS_MALFORMED
        if name.size < 0:
            return HEADERS_NULL
        if name.size > most or value.size > most:
            return HEADERS_LONG
        n += header_size(&name, &value)
        if n > most:
            return HEADERS_LONG
    size[0] = n
    return HEADERS_FINE


cdef inline bint put_headers(uint8_t* p, const uint8_t* end, const Lists* lists, const Span* span) noexcept nogil:
    """Writes headers that were measured, up to `end`; False where somebody has changed them since."""
    cdef int64_t i
    cdef Slice name
    cdef Slice value
    p = put_varint(p, <int32_t>(span.last - span.first) if span.first >= 0 else 0)
    for i in range(span.first, span.last):
        if read_cell(&lists.key, i, &name) or read_cell(&lists.value, i, &value):
            return False
        if name.size < 0 or name.size > end - p or value.size > end - p or header_size(&name, &value) > end - p:
            return False
        p = put_sized(p, name.data, <int32_t>name.size)
        p = put_sized(p, value.data, <int32_t>value.size)
    return p == end
