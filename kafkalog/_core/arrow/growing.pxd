"""Columns while records are put into them: bytes with their 32-bit ends, and the headers of records."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from kafkalog._core.arrow.memory cimport Memory, drop_memory, grow_memory, new_memory
from kafkalog._core.batch.headers cimport Header, take_header
from kafkalog._core.batch.layout cimport ERR_MEMORY, OK
from kafkalog._core.bytes.cursor cimport Cursor
from kafkalog._core.bytes.prefetch cimport kl_prefetch_to_write
from kafkalog._core.text.text_buffer cimport EXPANSION, is_utf8, put_java_text

cdef enum:
    MOST_BYTES = 0x7FFFFFFF         # the ends are 32 bits wide
    ERR_COLUMN_SIZE = 64            # a status beside those of layout.pxd: more than that in one record


cdef struct Bytes:
    # a column of bytes or text with room for `room` values and `capacity` bytes; `valid` is NULL until one is null
    Memory* ends
    Memory* data
    Memory* valid
    int64_t room
    int64_t capacity
    int64_t used
    int64_t nulls


cdef struct Headers:
    Memory* lists
    Bytes keys
    Bytes values
    int64_t count


cdef inline void drop_bytes(Bytes* b) noexcept nogil:
    drop_memory(b.ends)
    drop_memory(b.data)
    drop_memory(b.valid)
    memset(b, 0, sizeof(Bytes))


cdef inline int reserve_rows(Bytes* b, int64_t rows, int64_t room) noexcept nogil:
    """Room for `room` values in all, `rows` of which are there."""
    cdef Memory* more
    if room <= b.room:
        return OK
    more = grow_memory(b.ends, 4 * (rows + 1) if b.ends != NULL else 0, 4 * (room + 1))
    if more == NULL:
        return ERR_MEMORY
    if b.ends == NULL:
        (<int32_t*>more.data)[0] = 0
    b.ends = more
    if b.valid != NULL:
        more = grow_memory(b.valid, (rows + 7) >> 3, (room + 7) >> 3)
        if more == NULL:
            return ERR_MEMORY
        b.valid = more
        memset(more.data + ((rows + 7) >> 3), 0xFF, <size_t>(((room + 7) >> 3) - ((rows + 7) >> 3)))
    b.room = room
    return OK


cdef inline int reserve_bytes(Bytes* b, int64_t more) noexcept nogil:
    """Room for `more` bytes behind those that are there; at least twice what there was."""
    cdef int64_t capacity = b.used + more
    cdef Memory* memory
    if capacity <= b.capacity and b.data != NULL:
        return OK
    if capacity > MOST_BYTES:
        return ERR_COLUMN_SIZE
    capacity = min(max(capacity, 2 * b.capacity), <int64_t>MOST_BYTES)
    memory = grow_memory(b.data, b.used, capacity)
    if memory == NULL:
        return ERR_MEMORY
    b.data = memory
    b.capacity = capacity
    return OK


cdef inline int put_null(Bytes* b, int64_t row) noexcept nogil:
    """Value `row` is null."""
    if b.valid == NULL:
        b.valid = new_memory((b.room + 7) >> 3)
        if b.valid == NULL:
            return ERR_MEMORY
        memset(b.valid.data, 0xFF, <size_t>((b.room + 7) >> 3))
    b.valid.data[row >> 3] &= ~(1 << (row & 7))
    b.nulls += 1
    (<int32_t*>b.ends.data)[row + 1] = <int32_t>b.used
    return OK


cdef inline int put_bytes(Bytes* b, int64_t row, const uint8_t* source, int32_t size) noexcept nogil:
    """Value `row`, for which reserve_rows has made room; a size below 0 is null."""
    cdef int status
    if size < 0:
        return put_null(b, row)
    if size > b.capacity - b.used:
        status = reserve_bytes(b, size)
        if status != OK:
            return status
    memcpy(b.data.data + b.used, source, <size_t>size)
    b.used += size
    (<int32_t*>b.ends.data)[row + 1] = <int32_t>b.used
    return OK


cdef inline int put_text(Bytes* b, int64_t row, const uint8_t* source, int32_t size) noexcept nogil:
    """The same for text, which has to be UTF-8 in Arrow: malformed pieces become U+FFFD."""
    cdef int status
    if is_utf8(source, <size_t>size):
        return put_bytes(b, row, source, size)
    status = reserve_bytes(b, EXPANSION * <int64_t>size)
    if status != OK:
        return status
    b.used = put_java_text(b.data.data + b.used, source, <size_t>size) - b.data.data
    (<int32_t*>b.ends.data)[row + 1] = <int32_t>b.used
    return OK


cdef struct Lane:
    # a column of bytes as a loop keeps it at hand; `back_to` writes it back
    int32_t* ends
    uint8_t* data
    uint8_t* valid              # NULL until one is null
    int64_t used
    int64_t capacity
    int64_t nulls


cdef inline Lane lane_of(Bytes* b) noexcept nogil:
    cdef Lane lane
    lane.ends = <int32_t*>b.ends.data if b.ends != NULL else NULL
    lane.data = b.data.data if b.data != NULL else NULL
    lane.valid = b.valid.data if b.valid != NULL else NULL
    lane.used = b.used
    lane.capacity = b.capacity
    lane.nulls = b.nulls
    return lane


cdef inline void back_to(Bytes* b, const Lane* lane) noexcept nogil:
    b.used = lane.used
    b.nulls = lane.nulls


cdef inline bint fits(Lane* lane, int32_t size) noexcept nogil:
    """True where put_fitting may be called."""
    return size <= lane.capacity - lane.used and (size >= 0 or lane.valid != NULL)


cdef inline void put_fitting(Lane* lane, int64_t row, const uint8_t* source, int32_t size) noexcept nogil:
    if size >= 0:
        kl_prefetch_to_write(lane.data + lane.used + 512)
        memcpy(lane.data + lane.used, source, <size_t>size)
        lane.used += size
    else:
        lane.valid[row >> 3] &= ~(1 << (row & 7))
        lane.nulls += 1
    lane.ends[row + 1] = <int32_t>lane.used


cdef inline void drop_headers(Headers* h) noexcept nogil:
    drop_memory(h.lists)
    drop_bytes(&h.keys)
    drop_bytes(&h.values)
    memset(h, 0, sizeof(Headers))


cdef inline int reserve_headers(Headers* h, int64_t more) noexcept nogil:
    """Room for `more` headers behind those that are there."""
    cdef int64_t room = h.count + more
    cdef int status
    if room > h.keys.room or room > h.values.room:
        if room > MOST_BYTES:
            return ERR_COLUMN_SIZE
        room = max(room, 2 * h.keys.room)
        status = reserve_rows(&h.keys, h.count, room)
        if status == OK:
            status = reserve_rows(&h.values, h.count, room)
        return status
    return OK


cdef inline int put_headers(
    Headers* h, int64_t row, const uint8_t* start, const uint8_t* end, int32_t count
) noexcept nogil:
    """The headers of record `row`, which were checked before."""
    cdef Cursor c
    cdef Header header
    cdef int32_t i
    cdef int status
    if count > 0:
        status = reserve_headers(h, count)
        if status != OK:
            return status
    c.p = start
    c.end = end
    for i in range(count):
        status = take_header(&c, &header)
        if status == OK:
            status = put_text(&h.keys, h.count, header.key, header.key_size)
        if status == OK:
            status = put_bytes(&h.values, h.count, header.value, header.value_size)
        if status != OK:
            return status
        h.count += 1
    (<int32_t*>h.lists.data)[row + 1] = <int32_t>h.count
    return OK
