"""Cells of Arrow columns that somebody else made: found by row, and looked at before they are believed.

The C data interface says how long a column is, not how large its buffers are. So every start and end is held against its
neighbours, against the last end of the column and against the sizes there are; what contradicts itself is MALFORMED.
"""
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

cdef enum:
    # how a column lies in memory
    NOTHING = 0                 # there is none, or all of it is null
    ENDS32 = 1                  # bytes or lists between ends of 32 bits
    ENDS64 = 2
    VIEWS = 3                   # sixteen bytes a value, short values inside
    SHORT_VIEW = 12             # the most bytes of a value that lies inside its view
    VIEW_BYTES = 16

cdef enum CellStatus:
    SOUND = 0
    MALFORMED = 1
    NOT_A_TIME = 2


cdef struct Slice:
    # bytes of a cell; size -1 is null
    const uint8_t* data
    int64_t size


cdef struct Span:
    # items of a list, `first` up to `last`; first -1 is null
    int64_t first
    int64_t last


cdef struct Cells:
    # a column of bytes or text
    int layout
    int64_t first               # where row 0 is in the buffers
    const uint8_t* valid        # bits; NULL where nothing is null
    const uint8_t* ends         # of a column of views: the views
    const uint8_t* data
    int64_t last                # the end of the last value
    const void** blocks         # of views: the buffers they point into, their sizes, and how many there are
    const uint8_t* block_sizes
    int64_t block_count


cdef struct Numbers:
    # a column of whole numbers of `width` bytes; width 0: there is none
    int width
    int64_t first
    const uint8_t* valid
    const uint8_t* data


cdef struct Lists:
    # a column of lists of structs (key, value)
    int layout
    int64_t first
    const uint8_t* valid
    const uint8_t* ends
    int64_t items               # how many structs there are
    int64_t items_first         # where the first of them is in its validity map
    const uint8_t* items_valid
    Cells key
    Cells value


cdef inline bint is_set(const uint8_t* bits, int64_t i) noexcept nogil:
    return (bits[i >> 3] >> (i & 7)) & 1


cdef inline int32_t at32(const uint8_t* p, int64_t i) noexcept nogil:
    """Number `i` of a buffer of any alignment."""
    cdef int32_t v
    memcpy(&v, p + 4 * i, 4)
    return v


cdef inline int64_t at64(const uint8_t* p, int64_t i) noexcept nogil:
    cdef int64_t v
    memcpy(&v, p + 8 * i, 8)
    return v


cdef inline int read_view(const Cells* c, int64_t i, Slice* out) noexcept nogil:
    cdef const uint8_t* view = c.ends + VIEW_BYTES * i
    cdef int64_t block
    cdef int64_t at
    out.size = at32(view, 0)
    if out.size < 0:
        return MALFORMED
    if out.size <= SHORT_VIEW:
        out.data = view + 4
        return SOUND
    block = at32(view, 2)
    at = at32(view, 3)
    if block < 0 or block >= c.block_count or at < 0 or c.blocks[block] == NULL:
        return MALFORMED
    if at64(c.block_sizes, block) - at < out.size:
        return MALFORMED
    out.data = <const uint8_t*>c.blocks[block] + at
    return SOUND


cdef inline int read_cell(const Cells* c, int64_t row, Slice* out) noexcept nogil:
    """The bytes in a row of the column."""
    cdef int64_t i = c.first + row
    cdef int64_t start
    cdef int64_t end
    if c.layout == NOTHING or (c.valid != NULL and not is_set(c.valid, i)):
        out.data = NULL
        out.size = -1
        return SOUND
    if c.layout == VIEWS:
        return read_view(c, i, out)
    if c.layout == ENDS32:
        start = at32(c.ends, i)
        end = at32(c.ends, i + 1)
    else:
        start = at64(c.ends, i)
        end = at64(c.ends, i + 1)
    if start < 0 or end < start or end > c.last or (c.data == NULL and start != end):
        return MALFORMED
    out.data = c.data + start
    out.size = end - start
    return SOUND


cdef inline int read_span(const Lists* c, int64_t row, Span* out) noexcept nogil:
    """Return the range of items in the list of a row."""
    cdef int64_t i = c.first + row
    out.first = out.last = -1
    if c.layout == NOTHING or (c.valid != NULL and not is_set(c.valid, i)):
        return SOUND
    if c.layout == ENDS32:
        out.first = at32(c.ends, i)
        out.last = at32(c.ends, i + 1)
    else:
        out.first = at64(c.ends, i)
        out.last = at64(c.ends, i + 1)
    return MALFORMED if out.first < 0 or out.last < out.first or out.last > c.items else SOUND


cdef inline bint read_number(const Numbers* c, int64_t row, int64_t* out) noexcept nogil:
    """The number in a row; False where it is null."""
    cdef int64_t i = c.first + row
    cdef int16_t two
    if c.width == 0 or (c.valid != NULL and not is_set(c.valid, i)):
        return False
    if c.width == 8:
        out[0] = at64(c.data, i)
    elif c.width == 4:
        out[0] = at32(c.data, i)
    elif c.width == 2:
        memcpy(&two, c.data + 2 * i, 2)
        out[0] = two
    else:
        out[0] = <int8_t>c.data[i]
    return True


cdef inline int read_time(const Numbers* c, int64_t row, int64_t per_ms, int64_t now, int64_t* out) noexcept nogil:
    """ms since 1970 of a row; `now` where it is null or exactly -1 ms, which stands for no time.

    `per_ms` is how many of the column's units a millisecond has; -1000 is for seconds. NOT_A_TIME before 1970.
    """
    cdef int64_t v = 0
    cdef int64_t most = 9223372036854775    # seconds, which are 2^63 - 1 ms
    if not read_number(c, row, &v):
        out[0] = now
        return SOUND
    if per_ms > 0:
        if v == -per_ms:
            out[0] = now
            return SOUND
        out[0] = v // per_ms
    else:
        if v > most:
            return NOT_A_TIME
        out[0] = v * 1000 if v >= 0 else -1
    return SOUND if v >= 0 else NOT_A_TIME
