"""One batch with some of its records: what a cleaner writes in the place of it. The caller has made room."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kafkalog._core.batch.check cimport BatchRow
from kafkalog._core.batch.emit cimport (
    HeaderFields, plain_header, put_sized, put_varint, put_varlong, varint_size, varlong_size,
)
from kafkalog._core.batch.fields cimport Fields, take_record, take_small_record
from kafkalog._core.batch.layout cimport (
    CONTROL_BIT, DELETE_HORIZON_BIT, OK, TIMESTAMP_TYPE_BIT, TRANSACTIONAL_BIT, V2_RECORDS_AT,
)
from kafkalog._core.batch.legacy_message cimport Message, take_fields, take_frame
from kafkalog._core.bytes.cursor cimport Cursor
from kafkalog._core.bytes.wrap cimport added, subtracted

cdef enum:
    KEEP = 1                        # flags of a record
    NO_VALUE = 2
    OFFSETS_FALL = 103              # a status beside those of layout.pxd: kept offsets that do not rise
    TOO_LONG = 104
    MOST = 0x7FFFFFFF
    RECORD_GROWTH = 48              # the most that a record or message gets longer


cdef struct Kept:
    # what to write
    const uint8_t* batch            # plain
    const BatchRow* row             # of these bytes
    const uint8_t* flags            # of its records
    int64_t total                   # records in it
    int64_t delete_horizon          # -1: none
    # what was written
    uint8_t* end
    int64_t base_offset
    int64_t last_offset             # of the last record that was kept
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t count


cdef inline int64_t room_for_kept(const BatchRow* row, int64_t kept) noexcept nogil:
    """Bytes that are enough for `kept` records of a plain batch and their header."""
    return V2_RECORDS_AT + row.size + RECORD_GROWTH * kept


cdef inline int begin_record(Kept* k, int64_t offset, int64_t timestamp) noexcept nogil:
    """Takes note of the next record that is kept."""
    if k.count == 0:
        if k.row.magic < 2:
            k.base_offset = offset
        if k.delete_horizon < 0:
            k.base_timestamp = timestamp
    elif offset <= k.last_offset:
        return OFFSETS_FALL
    if subtracted(offset, k.base_offset) < 0 or subtracted(offset, k.base_offset) > MOST:
        return OFFSETS_FALL
    k.last_offset = offset
    k.count += 1
    if timestamp > k.max_timestamp:
        k.max_timestamp = timestamp
    return OK


cdef inline void put_head(Kept* k, int64_t timestamp, int32_t key_size, int64_t behind) noexcept nogil:
    """The fields up to the key's size, of a record with `behind` bytes after these."""
    cdef int64_t time_delta = subtracted(timestamp, k.base_timestamp)
    cdef int32_t delta = <int32_t>subtracted(k.last_offset, k.base_offset)
    cdef uint8_t* p
    p = put_varint(
        k.end, <int32_t>(1 + varlong_size(time_delta) + varint_size(delta) + varint_size(key_size) + behind)
    )
    p[0] = 0
    p = put_varint(put_varlong(p + 1, time_delta), delta)
    k.end = put_varint(p, key_size)


cdef inline int put_kept_records(Kept* k) noexcept nogil:
    """Those of a v2 batch: from the key on they stay as they are."""
    cdef bint stamped = k.row.attributes & TIMESTAMP_TYPE_BIT
    cdef int64_t number
    cdef int64_t timestamp
    cdef int64_t behind
    cdef int status
    cdef Cursor c
    cdef Fields f
    c.p = k.batch + V2_RECORDS_AT
    c.end = k.batch + k.row.size
    for number in range(k.total):
        if not take_small_record(&c, &f):
            status = take_record(&c, &f)
            if status != OK:
                return status
        if not k.flags[number] & KEEP:
            continue
        timestamp = k.row.max_timestamp if stamped else added(k.row.base_timestamp, f.timestamp_delta)
        status = begin_record(k, added(k.row.base_offset, f.offset_delta), timestamp)
        if status != OK:
            return status
        behind = f.end - f.key
        if behind > MOST - RECORD_GROWTH:
            return TOO_LONG
        put_head(k, timestamp, f.key_size, behind)
        memcpy(k.end, f.key, <size_t>behind)
        k.end += behind
    return OK


cdef inline int put_kept_messages(Kept* k) noexcept nogil:
    """Those of v0 and v1 messages, which become records."""
    cdef bint stamped = k.row.magic > 0 and k.row.attributes & TIMESTAMP_TYPE_BIT
    cdef int64_t number
    cdef int64_t timestamp
    cdef int64_t behind
    cdef int status
    cdef Cursor c
    cdef Message m
    c.p = k.batch
    c.end = k.batch + k.row.size
    for number in range(k.total):
        status = take_frame(&c, &m)
        if status == OK:
            status = take_fields(&m)
        if status != OK:
            return status
        if not k.flags[number] & KEEP:
            continue
        timestamp = k.row.max_timestamp if stamped and m.magic > 0 else m.timestamp
        status = begin_record(k, m.offset, timestamp)
        if status != OK:
            return status
        behind = max(m.key_size, 0) + varint_size(m.value_size) + <int64_t>max(m.value_size, 0) + 1
        if behind > MOST - RECORD_GROWTH:
            return TOO_LONG
        put_head(k, timestamp, m.key_size, behind)
        if m.key_size > 0:
            memcpy(k.end, m.key, <size_t>m.key_size)
            k.end += m.key_size
        k.end = put_sized(k.end, m.value, m.value_size)
        k.end[0] = 0
        k.end += 1
    return OK


cdef inline int put_kept(Kept* k, uint8_t* records) noexcept nogil:
    """Writes the records that are kept, without a header."""
    k.end = records
    k.count = 0
    k.base_offset = k.row.base_offset
    k.last_offset = -1
    k.base_timestamp = k.delete_horizon
    k.max_timestamp = -1
    return put_kept_records(k) if k.row.magic == 2 else put_kept_messages(k)


cdef inline void header_without_records(HeaderFields* h, const BatchRow* row) noexcept nogil:
    """Write a batch without records, which keeps offsets, largest time and producer (CLN-11, CLN-12)."""
    plain_header(h)
    h.base_offset = row.base_offset
    h.last_delta = <int32_t>subtracted(row.last_offset, row.base_offset)
    h.max_timestamp = row.max_timestamp
    if row.magic > 0:
        h.attributes = row.attributes & TIMESTAMP_TYPE_BIT
    if row.magic == 2:
        h.leader_epoch = row.leader_epoch
        h.producer_id = row.producer_id
        h.producer_epoch = row.producer_epoch
        h.base_sequence = row.base_sequence
        h.attributes |= row.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT)


cdef inline void header_of_kept(HeaderFields* h, const Kept* k, int codec) noexcept nogil:
    """The header for the records that were written; a v2 batch keeps its range of offsets (CLN-10)."""
    header_without_records(h, k.row)
    h.count = <int32_t>k.count
    h.base_timestamp = k.base_timestamp
    h.attributes |= codec
    if not h.attributes & TIMESTAMP_TYPE_BIT:
        h.max_timestamp = k.max_timestamp
    if k.row.magic < 2:
        h.base_offset = k.base_offset
        h.last_delta = <int32_t>subtracted(k.last_offset, k.base_offset)
    if k.delete_horizon >= 0:
        h.attributes |= DELETE_HORIZON_BIT
