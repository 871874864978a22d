"""One record of a chunk, by its offset or its time: what a random access ends with."""
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

from kafkalog._core.batch.check cimport BatchRow, peek_batch, read_row
from kafkalog._core.batch.decode cimport RecordPlace, RecordTable
from kafkalog._core.batch.fields cimport Fields, take_record
from kafkalog._core.batch.layout cimport (
    CODEC_MASK, CONTROL_BIT, OK, V2_LAST_DELTA_AT, V2_MAX_TIMESTAMP_AT, V2_RECORDS_AT,
)
from kafkalog._core.batch.record cimport Record, record_of
from kafkalog._core.batch.scan cimport BatchTable
from kafkalog._core.bytes.cursor cimport Cursor
from kafkalog._core.bytes.endian cimport load32, load64

cdef enum:
    NONE_HERE = -1
    UNREADABLE = -2
    RELEASE_GIL_AT = 32768          # bytes of a batch that take as long to walk over as giving the GIL up is worth

NOT_HERE = NONE_HERE
NOT_READABLE = UNREADABLE


cdef inline const uint8_t* find_batch(
    const uint8_t* p, const uint8_t* end, int64_t target, bint by_time, BatchRow* row, bint at_end
) noexcept nogil:
    """The first batch from p on that ends at or above an offset, or holds a time at or above; NULL unless it is sound.

    Headers are walked, and by time the batches passed over have to be valid, since nothing else would show a damaged
    time. The batch found has to be whole, valid, of format v2 and uncompressed, else NULL. Its base offset lies outside
    the checksum: it has to follow the batch before it, or end below the one after it. `at_end`: none comes after `end`.
    """
    cdef int64_t size = 0
    cdef int magic = 0
    cdef int64_t seen
    cdef int64_t expected = -1
    while True:
        if peek_batch(p, end - p, True, &size, &magic) != -1:
            return NULL
        if magic != 2 or size < V2_RECORDS_AT or end - p < V2_RECORDS_AT:
            return NULL
        if by_time:
            seen = load64(p + V2_MAX_TIMESTAMP_AT)
        else:
            seen = last_offset_at(p)
        if seen >= target:
            break
        if size >= end - p:
            return NULL
        if by_time:
            read_row(p, size, magic, True, row)
            if row.valid != 1:
                return NULL
        expected = added(last_offset_at(p), 1)
        p += size
    if size > end - p:
        return NULL
    if load64(p) < expected:
        return NULL
    if load64(p) != expected:
        if end - p - size >= 8:
            if load64(p + size) <= last_offset_at(p):
                return NULL
        elif not at_end:
            return NULL
    read_row(p, size, magic, True, row)
    return p if row.valid == 1 and not row.attributes & CODEC_MASK else NULL


cdef inline int64_t last_offset_at(const uint8_t* p) noexcept nogil:
    return added(load64(p), load32(p + V2_LAST_DELTA_AT))


cdef inline int64_t offset_of(const BatchRow* row, const Fields* f) noexcept nogil:
    return added(row.base_offset, f.offset_delta)


cdef const uint8_t* find_record(
    const uint8_t* p, const uint8_t* end, int64_t offset, BatchRow* row, Fields* f, bint at_end
) noexcept nogil:
    """Return the address of the record with this offset, its fields and its batch's header; NULL if it is missing."""
    cdef int32_t i
    cdef Cursor c
    cdef const uint8_t* start
    p = find_batch(p, end, offset, False, row, at_end)
    if p == NULL or row.base_offset > offset or row.attributes & CONTROL_BIT:
        return NULL
    c.p = p + V2_RECORDS_AT
    c.end = p + row.size
    for i in range(row.count):
        start = c.p
        if take_record(&c, f) != OK:
            return NULL
        if offset_of(row, f) == offset:
            return start
    return NULL


cdef Record copied_out(const uint8_t* start, const BatchRow* row, const Fields* f, int64_t offset):
    """The record alone: it keeps its own bytes alive and no other's."""
    cdef RecordTable table = RecordTable.__new__(RecordTable)
    cdef BatchTable batches = BatchTable.__new__(BatchTable)
    cdef RecordPlace* place
    cdef bytes data = PyBytes_FromStringAndSize(<const char*>start, f.end - start)
    batches.rows[0] = row[0]
    batches.count = 1
    PyObject_GetBuffer(data, &table.view, PyBUF_SIMPLE)
    table.held = table.is_in_no_cycle = True
    table.data = <const uint8_t*>table.view.buf
    table.batches = batches
    table.last_batch = 1
    table.allocate(1)
    table.count = 1
    table.offset_column[0] = offset
    table.timestamp_column[0] = timestamp_of(row, f)
    place = table.places
    place.key_at = <int32_t>(f.key - start)
    place.key_size = f.key_size
    place.value_at = <int32_t>(f.value - start)
    place.value_size = f.value_size
    place.headers_at = <int32_t>(f.headers - start)
    place.header_count = f.header_count
    place.record_size = <int32_t>(f.end - start)
    return record_of(table, 0)


def pick(buf, int64_t offset, bint at_end=False) -> Record | None:
    """The record with this offset among the batches of `buf`, the first of which begins at byte 0.

    `at_end` says that `buf` ends where the log does. None if it is missing, or its batch is cut off, damaged,
    compressed, a control batch or not of format v2: headers are walked up to the batch, whose checksum is then
    compared; also where neither the batch before it nor the one behind it in `buf` bears its base offset out. The
    record holds a copy of its own bytes.
    """
    cdef Py_buffer view
    cdef BatchRow row
    cdef Fields fields
    cdef const uint8_t* start
    memset(&fields, 0, sizeof(Fields))
    PyObject_GetBuffer(buf, &view, PyBUF_SIMPLE)
    try:
        start = find_record(<const uint8_t*>view.buf, <const uint8_t*>view.buf + view.len, offset, &row, &fields, at_end)
        if start == NULL:
            return None
        return copied_out(start, &row, &fields, offset)
    finally:
        PyBuffer_Release(&view)


cdef inline int64_t find_time(
    const uint8_t* p, const BatchRow* row, int64_t timestamp, int64_t start_offset, int64_t* found
) noexcept nogil:
    """The offset of the first record of a batch at or after a time and an offset, or why there is none."""
    cdef Cursor c
    cdef Fields f
    cdef int32_t i
    c.p = p + V2_RECORDS_AT
    c.end = p + row.size
    for i in range(row.count):
        if take_record(&c, &f) != OK:
            return UNREADABLE
        found[0] = timestamp_of(row, &f)
        if found[0] >= timestamp and offset_of(row, &f) >= start_offset:
            return offset_of(row, &f)
    return NONE_HERE


cdef inline int64_t find_time_from(
    const uint8_t* p, const uint8_t* end, int64_t known_offset, int64_t known_timestamp, int64_t timestamp,
    int64_t start_offset, BatchRow* row, int64_t* found, bint at_end,
) noexcept nogil:
    p = find_batch(p, end, known_offset, False, row, at_end)
    if p == NULL or row.max_timestamp != known_timestamp or row.base_offset > known_offset:
        return UNREADABLE
    if known_timestamp < timestamp:
        p = find_batch(p, end, timestamp, True, row, at_end)
        if p == NULL:
            return UNREADABLE
    return find_time(p, row, timestamp, start_offset, found)


def pick_by_time(
    buf, int64_t known_offset, int64_t known_timestamp, int64_t timestamp, int64_t start_offset, bint at_end=False
) -> tuple[int, int, int]:
    """(offset, timestamp, leader epoch) of the first record at or after `timestamp` ms and `start_offset`.

    `buf` begins with a batch. The batch that holds `known_offset` must have `known_timestamp` as its largest time, as
    a time index entry says of it; the search begins there. The offset is NOT_HERE where that is not so, or what is
    needed is not whole and valid in `buf`, or the first batch of that time has no such record.
    """
    cdef Py_buffer view
    cdef BatchRow row
    cdef int64_t found = -1
    cdef int64_t offset
    cdef const uint8_t* start
    row.leader_epoch = -1
    PyObject_GetBuffer(buf, &view, PyBUF_SIMPLE)
    start = <const uint8_t*>view.buf
    offset = find_time_from(
        start, start + view.len, known_offset, known_timestamp, timestamp, start_offset, &row, &found, at_end
    )
    PyBuffer_Release(&view)
    return max(offset, <int64_t>NONE_HERE), found, row.leader_epoch


def find_record_by_time(buf, int64_t start, int64_t timestamp, int64_t start_offset) -> tuple[int, int, int]:
    """(offset, timestamp, leader epoch) of the first record at or after `timestamp` ms and `start_offset`.

    Looks into the one batch that begins at byte `start` of `buf`. The offset is NOT_HERE where the batch has no such
    record, NOT_READABLE where it is not whole, not v2, compressed, or damaged before such a record was met.
    """
    cdef Py_buffer view
    cdef BatchRow row
    cdef int64_t size = 0
    cdef int64_t found = -1
    cdef int64_t offset = UNREADABLE
    cdef int magic = 0
    cdef const uint8_t* p
    row.leader_epoch = -1
    PyObject_GetBuffer(buf, &view, PyBUF_SIMPLE)
    if 0 <= start < view.len:
        p = <const uint8_t*>view.buf + start
        if peek_batch(p, view.len - start, True, &size, &magic) == -1 and V2_RECORDS_AT <= size <= view.len - start:
            read_row(p, size, magic, False, &row)
            if magic == 2 and not row.attributes & CODEC_MASK:
                if size < RELEASE_GIL_AT:
                    offset = find_time(p, &row, timestamp, start_offset, &found)
                else:
                    with nogil:
                        offset = find_time(p, &row, timestamp, start_offset, &found)
    PyBuffer_Release(&view)
    return offset, found, row.leader_epoch
