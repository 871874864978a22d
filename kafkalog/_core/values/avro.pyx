"""Avro data into columns: what stands before a value, its steps, and the text for a row that is wrong."""
from libc.stdint cimport int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy, memset

from kafkalog._core.arrow.cells cimport SOUND, Slice, read_cell
from kafkalog._core.bytes.endian cimport loadu32
from kafkalog._core.values.avro_program cimport OP_FAIL, AvroPrograms, Op
from kafkalog._core.values.avro_steps cimport (
    BEYOND, BEYOND_INT, BLOCK, DECIMAL, DEPTH, ITEMS, LENGTH, NEGATIVE, NO_BOOL, NO_BRANCH, NO_HEADER, NO_SYMBOL, SHORT,
    TIME, TRAILING, UNKNOWN_SYMBOL, VARINT, Run, hide, run, take_long,
)
from kafkalog._core.values.builder cimport Builder, row_done, row_failed
from kafkalog._core.values.nodes cimport PUT_CODES, PUT_OK, PUT_UTF8, put_null
from kafkalog._core.values.value_column cimport ValueColumn

cdef enum:
    # what stands before a value
    RAW = 0
    REGISTRY = 1                # a zero byte and a schema's id of four
    PREFIXED = 2                # the length as a zigzag varint
    SINGLE_OBJECT = 3           # C3 01 and the schema's fingerprint of eight bytes, little-endian

cdef enum:
    TEXT_SIZE = 512

FRAMINGS = {"raw": RAW, "registry": REGISTRY, "length": PREFIXED, "single-object": SINGLE_OBJECT}


cdef int take_frame(Run* r, int framing, int64_t* id) noexcept nogil:
    """Read what stands before the data: `id` is the schema's, or its fingerprint; 0 where none is given."""
    cdef int64_t size = 0
    cdef int status
    id[0] = 0
    if framing == RAW:
        return PUT_OK
    if framing == REGISTRY:
        if r.end - r.p < 5 or r.p[0] != 0:
            return NO_HEADER
        id[0] = loadu32(r.p + 1)
        r.p += 5
        return PUT_OK
    if framing == SINGLE_OBJECT:
        if r.end - r.p < 10 or r.p[0] != 0xC3 or r.p[1] != 1:
            return NO_HEADER
        memcpy(id, r.p + 2, 8)
        r.p += 10
        return PUT_OK
    status = take_long(r, &size)
    if status != PUT_OK:
        return status
    r.detail = size
    return PUT_OK if size == r.end - r.p else LENGTH


cdef void say(char* out, int status, const Run* r, const uint8_t* start, int framing) noexcept nogil:
    """Write what is wrong with a value, for its row."""
    cdef const Op* op = r.failed
    cdef const char* path = b""
    cdef const char* field = b""
    cdef const char* colon = b""
    cdef long long at = r.p - start
    cdef long long n = r.detail
    if op != NULL and op.path[0] != 0:
        path = op.path
        field = b"field "
        colon = b": "
    if op != NULL and op.code == OP_FAIL:
        snprintf(out, TEXT_SIZE, b"%s%s%s%s", field, path, colon, <const char*>op.data)
    elif status == NO_HEADER:
        snprintf(out, TEXT_SIZE, (
            b"it does not begin with a schema registry's header (a zero byte and a 4-byte id)" if framing == REGISTRY
            else b"it does not begin with a single object's header (C3 01 and 8 bytes of fingerprint)"
        ))
    elif status == TRAILING:
        snprintf(out, TEXT_SIZE, b"%lld bytes follow the Avro value", <long long>(r.end - r.p))
    elif status == LENGTH:
        snprintf(out, TEXT_SIZE, b"its length says %lld bytes, and there are %lld", n, <long long>(r.end - r.p))
    elif status == NEGATIVE or status == BEYOND:
        snprintf(out, TEXT_SIZE, b"%s%s%sa length of %lld at byte %lld, where %lld are left", field, path, colon, n, at,
                 <long long>(r.end - r.p))
    elif status == BLOCK or status == ITEMS:
        snprintf(out, TEXT_SIZE, b"%s%s%sa block of %lld items at byte %lld%s", field, path, colon, n, at, (
            b", more than the bytes that are left can hold" if status == BLOCK else b", more than the limit for items without bytes"
        ))
    elif status == NO_BRANCH or status == NO_SYMBOL or status == NO_BOOL or status == UNKNOWN_SYMBOL:
        snprintf(out, TEXT_SIZE, b"%s%s%sthere is no %s %lld%s, before byte %lld", field, path, colon, (
            b"branch" if status == NO_BRANCH else b"boolean" if status == NO_BOOL else b"symbol"
        ), n, b" in the reader's schema" if status == UNKNOWN_SYMBOL else b"", at)
    elif status == BEYOND_INT or status == TIME:
        snprintf(out, TEXT_SIZE, b"%s%s%s%lld is beyond %s, before byte %lld", field, path, colon, n,
                 b"an int" if status == BEYOND_INT else b"the time of a day", at)
    else:
        snprintf(out, TEXT_SIZE, b"%s%s%s%s, at byte %lld", field, path, colon, words_of(status), at)


cdef const char* words_of(int status) noexcept nogil:
    if status == SHORT:
        return b"it ends inside a value"
    if status == VARINT:
        return b"a number has more than 64 bits"
    if status == DECIMAL:
        return b"the decimal has more digits than its precision"
    if status == DEPTH:
        return b"it is nested more than 200 levels deep"
    if status == PUT_UTF8:
        return b"the string is not UTF-8"
    return b"its columns take more memory than the limit"


cdef int find(AvroPrograms programs, int64_t id) noexcept nogil:
    cdef int i
    for i in range(programs.count):
        if programs.ids[i] == id:
            return i
    return -1


def fill(
    Builder builder not None, ValueColumn column not None, AvroPrograms programs not None, int framing, int64_t first,
    int64_t most_items,
):
    """Decode the rows from `first` on; returns (the next row, None), or (that row, its id) for an id without program.

    (row, None) with fewer rows than there are: the builder stopped (its status says why), or the column's cell
    contradicts itself (the builder's status is 0).
    """
    cdef Run r
    cdef Slice cell
    cdef int64_t row = first
    cdef int64_t id = 0
    cdef int64_t last_id = 0
    cdef int found = -1
    cdef int status
    cdef char text[TEXT_SIZE]
    cdef bint unknown = False
    memset(&r, 0, sizeof(Run))
    r.nodes = builder.nodes
    hide(&r)
    with nogil:
        while row < column.count:
            if read_cell(&column.cells, row, &cell) != SOUND:
                break
            if cell.size < 0:
                status = put_null(builder.nodes)
                if status != PUT_OK:
                    builder.stopped = status
                    break
                row_done(builder)
                row += 1
                continue
            r.p = cell.data
            r.end = cell.data + cell.size
            r.failed = NULL
            r.items_left = most_items
            r.depth = 0
            status = take_frame(&r, framing, &id)
            if status == PUT_OK:
                if found < 0 or id != last_id:
                    found = find(programs, id)
                    last_id = id
                    if found < 0:
                        unknown = True
                        break
                if programs.starts[found] == NULL:
                    if not row_failed(builder, PUT_CODES, programs.texts[found]):
                        break
                    row += 1
                    continue
                status = run(&r, programs.starts[found])
                if status == PUT_OK and r.p != r.end:
                    r.failed = NULL
                    status = TRAILING
            if status == PUT_OK:
                row_done(builder)
            else:
                say(text, status, &r, cell.data, framing)
                if not row_failed(builder, status, text):
                    break
            row += 1
    return row, (id if unknown else None)
