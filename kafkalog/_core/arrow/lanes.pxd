"""Lanes: where the batches of one partition are written, record by record, until somebody takes the finished ones."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalog._core.arrow.memory cimport Memory, grow_memory
from kafkalog._core.batch.emit cimport (
    HeaderFields, plain_header, put_header, put_sized, put_varint, put_varlong, varint_size, varlong_size,
)
from kafkalog._core.batch.layout cimport V2_RECORDS_AT
from kafkalog._core.bytes.wrap cimport subtracted

cdef enum:
    MOST = 0x7FFFFFFF               # a size field holds no more


cdef struct Lane:
    Memory* memory                  # NULL where there is nothing
    int64_t size
    int64_t open_at                 # where the open batch begins; all before it is finished
    int64_t records                 # taken in so far, those of the open batch counted
    int64_t given                   # of these, how many were handed out
    int64_t base_timestamp          # of the open batch, as the next three
    int64_t max_timestamp
    int32_t count
    int64_t max_finished            # the newest time in the finished batches that wait; -1 for none
    int64_t batches                 # finished and waiting
    int64_t largest                 # bytes of the largest of them


cdef struct Row:
    # a record to be written; sizes of -1 are null
    const uint8_t* key
    int64_t key_size
    const uint8_t* value
    int64_t value_size
    int64_t timestamp
    int64_t headers_size            # encoded, their count too


cdef inline int64_t lane_finished(const Lane* lane) noexcept nogil:
    """Bytes of finished batches."""
    return lane.open_at if lane.count else lane.size


cdef inline void seal_lane(Lane* lane) noexcept nogil:
    """Writes header and checksum of the open batch; base offsets count the records of the lane from 0."""
    cdef HeaderFields h
    cdef int64_t size = lane.size - lane.open_at
    if lane.count == 0:
        return
    plain_header(&h)
    h.base_offset = lane.records - lane.count
    h.base_timestamp = lane.base_timestamp
    h.max_timestamp = lane.max_timestamp
    h.count = lane.count
    h.last_delta = lane.count - 1
    put_header(lane.memory.data + lane.open_at, size, &h)
    if lane.max_timestamp > lane.max_finished:
        lane.max_finished = lane.max_timestamp
    if size > lane.largest:
        lane.largest = size
    lane.batches += 1
    lane.open_at = lane.size
    lane.count = 0


cdef inline int64_t body_size(const Lane* lane, const Row* r) noexcept nogil:
    """Bytes of the record behind its length, as the next one of the open batch."""
    cdef int64_t delta = subtracted(r.timestamp, lane.base_timestamp) if lane.count else 0
    return (
        1 + varlong_size(delta) + varint_size(lane.count)
        + varint_size(<int32_t>r.key_size) + (r.key_size if r.key_size > 0 else 0)
        + varint_size(<int32_t>r.value_size) + (r.value_size if r.value_size > 0 else 0) + r.headers_size
    )


cdef inline bint lane_room(Lane* lane, int64_t more, int64_t first_capacity) noexcept nogil:
    """Makes room for `more` bytes behind the content; False without memory, and all is as it was."""
    cdef int64_t want = lane.size + more
    cdef Memory* memory
    if lane.memory != NULL and want <= lane.memory.capacity:
        return True
    memory = grow_memory(
        lane.memory, lane.size, max(want, first_capacity if lane.memory == NULL else 2 * lane.memory.capacity)
    )
    if memory == NULL:
        return False
    lane.memory = memory
    return True


cdef inline uint8_t* put_row(Lane* lane, const Row* r, int64_t body) noexcept nogil:
    """Writes a record up to its headers, whose place is returned; the room was made, the body counted."""
    cdef uint8_t* p
    if lane.count == 0:
        lane.open_at = lane.size
        lane.size += V2_RECORDS_AT
        lane.base_timestamp = lane.max_timestamp = r.timestamp
    elif r.timestamp > lane.max_timestamp:
        lane.max_timestamp = r.timestamp
    p = put_varint(lane.memory.data + lane.size, <int32_t>body)
    p[0] = 0
    p = put_varlong(p + 1, subtracted(r.timestamp, lane.base_timestamp))
    p = put_varint(p, lane.count)
    p = put_sized(p, r.key, <int32_t>r.key_size)
    p = put_sized(p, r.value, <int32_t>r.value_size)
    lane.size += varint_size(<int32_t>body) + body
    lane.count += 1
    lane.records += 1
    return p
