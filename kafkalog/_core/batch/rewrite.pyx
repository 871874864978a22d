"""Records of plain batches rewritten: in another format, with other offsets or times, into one batch or message set.

No record becomes an object. Compressed batches are made plain before (arena.pyx); what comes out is plain too.
"""
cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kafkalog._core.batch.check cimport BatchRow, place_of
from kafkalog._core.batch.emit cimport (
    HeaderFields, message_size, plain_header, put_header, put_message, put_sized, put_varint, put_varlong, varint_size,
    varlong_size,
)
from kafkalog._core.batch.fields cimport Fields, take_record, take_small_record
from kafkalog._core.batch.layout cimport (
    CODEC_MASK, CONTROL_BIT, ERR_COMPRESSED, ERR_COUNT_HIGH, ERR_COUNT_LOW, ERR_MAGIC, ERR_SHORT, OK,
    TIMESTAMP_TYPE_BIT, TRANSACTIONAL_BIT, V2_RECORDS_AT,
)
from kafkalog._core.batch.legacy_message cimport Message, take_fields, take_frame
from kafkalog._core.batch.scan cimport BatchTable
from kafkalog._core.bytes.cursor cimport Cursor
from kafkalog._core.bytes.wrap cimport added, subtracted

cdef enum:
    NEED_ROOM = 100
    NO_HEADERS                      # the target has no place for headers, and they are not to be dropped
    NEGATIVE_TIME
    OFFSETS_FALL
    TOO_LONG
    ROW_ENDS
    MOST = 0x7FFFFFFF
    LARGEST_OVERHEAD = 48           # what a record or message takes besides key, value and headers

STATUS_HEADERS = NO_HEADERS
STATUS_NEGATIVE_TIME = NEGATIVE_TIME
STATUS_OFFSETS = OFFSETS_FALL
STATUS_TOO_LONG = TOO_LONG


cdef struct Item:
    # one record of any format
    const uint8_t* key
    const uint8_t* value
    const uint8_t* headers
    int64_t headers_size
    int64_t offset
    int64_t timestamp
    int32_t key_size
    int32_t value_size
    int32_t header_count


cdef struct Job:
    # what to write
    int magic
    bint keep_offsets
    bint relative                   # v1 messages of a wrapper: offsets from 0 on
    bint drop_headers
    int64_t first_offset            # where offsets are not kept
    int64_t from_offset             # records below it are left out
    int64_t append_time             # -1: the producer's times
    # where to, and how far
    uint8_t* data
    int64_t capacity
    int64_t size
    int64_t need
    Cursor source
    bint row_begun
    int64_t number                  # of the next record in its batch
    int64_t count
    int64_t base_offset
    int64_t last_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t offset_of_max_timestamp


cdef int take_item(Job* job, const BatchRow* row, Item* item) noexcept nogil:
    """The next record of a plain batch, or ROW_ENDS."""
    cdef Fields f
    cdef Message m
    cdef int status
    cdef bint stamped = row.magic > 0 and (row.attributes & TIMESTAMP_TYPE_BIT) != 0
    if row.magic == 2:
        if job.number == row.count:
            return ROW_ENDS if job.source.p == job.source.end else ERR_COUNT_LOW
        if job.source.p == job.source.end:
            return ERR_COUNT_HIGH
        if not take_small_record(&job.source, &f):
            status = take_record(&job.source, &f)
            if status != OK:
                return status
        item.key = f.key
        item.key_size = f.key_size
        item.value = f.value
        item.value_size = f.value_size
        item.headers = f.headers
        item.headers_size = f.end - f.headers
        item.header_count = f.header_count
        item.offset = added(row.base_offset, f.offset_delta)
        item.timestamp = row.max_timestamp if stamped else added(row.base_timestamp, f.timestamp_delta)
        return OK
    status = take_frame(&job.source, &m)
    if status != OK:
        return ROW_ENDS if status == ERR_SHORT else status
    status = take_fields(&m)
    if status != OK:
        return status
    item.key = m.key
    item.key_size = m.key_size
    item.value = m.value
    item.value_size = m.value_size
    item.headers = NULL
    item.headers_size = item.header_count = 0
    item.offset = m.offset
    item.timestamp = row.max_timestamp if stamped and m.magic > 0 else m.timestamp
    return OK


cdef int put_record(Job* job, const Item* item, int64_t delta) noexcept nogil:
    """One record of a v2 batch."""
    cdef int64_t time_delta = subtracted(item.timestamp, job.base_timestamp)
    cdef int64_t body
    cdef uint8_t* p
    body = (
        1 + varlong_size(time_delta) + varint_size(<int32_t>delta)
        + varint_size(item.key_size) + (item.key_size if item.key_size > 0 else 0)
        + varint_size(item.value_size) + (item.value_size if item.value_size > 0 else 0)
        + varint_size(item.header_count) + item.headers_size
    )
    if body > MOST - LARGEST_OVERHEAD:
        return TOO_LONG
    p = put_varint(job.data + job.size, <int32_t>body)
    p[0] = 0
    p = put_varlong(p + 1, time_delta)
    p = put_varint(p, <int32_t>delta)
    p = put_sized(p, item.key, item.key_size)
    p = put_sized(p, item.value, item.value_size)
    p = put_varint(p, item.header_count)
    if item.headers_size:
        memcpy(p, item.headers, <size_t>item.headers_size)
        p += item.headers_size
    job.size = p - job.data
    return OK


cdef int put_item(Job* job, const Item* item) noexcept nogil:
    """Writes one record; NEED_ROOM, with nothing written, where it does not fit."""
    cdef int64_t offset = item.offset if job.keep_offsets else added(job.first_offset, job.count)
    cdef int64_t inner
    cdef int64_t size
    cdef int64_t timestamp = item.timestamp
    cdef bint stamp = job.append_time >= 0 and job.magic == 1
    if item.timestamp < -1:
        return NEGATIVE_TIME
    if item.header_count and job.magic < 2 and not job.drop_headers:
        return NO_HEADERS
    job.need = (
        (item.key_size if item.key_size > 0 else 0) + <int64_t>(item.value_size if item.value_size > 0 else 0)
        + (item.headers_size if job.magic == 2 else 0) + LARGEST_OVERHEAD
    )
    if job.size + job.need > job.capacity:
        return NEED_ROOM
    if job.count == 0:
        job.base_offset = offset
        job.base_timestamp = timestamp
    elif offset <= job.last_offset:
        return OFFSETS_FALL
    inner = subtracted(offset, job.base_offset)
    if job.magic == 2:
        if inner < 0 or inner > MOST:
            return OFFSETS_FALL
        if put_record(job, item, inner) != OK:
            return TOO_LONG
    else:
        size = message_size(job.magic, item.key_size, item.value_size)
        put_message(
            job.data + job.size, size, job.magic, TIMESTAMP_TYPE_BIT if stamp else 0,
            inner if job.relative else offset, job.append_time if stamp else timestamp, item.key, item.key_size,
            item.value, item.value_size,
        )
        job.size += size
    if job.magic > 0 and timestamp > job.max_timestamp:
        job.max_timestamp = timestamp
        job.offset_of_max_timestamp = offset
    job.last_offset = offset
    job.count += 1
    return OK


cdef int work(Job* job, const uint8_t* p, const BatchRow* row) noexcept nogil:
    """Writes the rest of one batch; OK, or why it stopped. After NEED_ROOM it goes on with the same record."""
    cdef Item item
    cdef Cursor before
    cdef int status
    if not job.row_begun:
        if row.attributes & CODEC_MASK:
            return ERR_COMPRESSED
        if row.magic < 0 or row.magic > 2 or (row.magic == 2 and row.size < V2_RECORDS_AT):
            return ERR_MAGIC
        job.source.p = p + (V2_RECORDS_AT if row.magic == 2 else 0)
        job.source.end = p + row.size
        job.number = 0
        job.row_begun = True
    while True:
        before = job.source
        status = take_item(job, row, &item)
        if status == ROW_ENDS:
            job.row_begun = False
            return OK
        if status == OK and item.offset >= job.from_offset:
            status = put_item(job, &item)
        if status == NEED_ROOM:
            job.source = before
        if status != OK:
            return status
        job.number += 1


@cython.final
cdef class Rewritten:
    """One plain batch or message set, `data`, and what it holds; `status` is not 0 where a record stopped it.

    `row` and `record` then say which; `data` is None. Where no record was left, `count` is 0 and `data` empty.
    """
    cdef readonly object data
    cdef readonly int status
    cdef readonly Py_ssize_t row
    cdef readonly int64_t record
    cdef readonly int64_t count
    cdef readonly int64_t base_offset
    cdef readonly int64_t last_offset
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t offset_of_max_timestamp


cdef void header_of(HeaderFields* h, const Job* job, const BatchRow* row, int32_t leader_epoch) noexcept nogil:
    """The header of what was written: producer and flags are those of the first batch it was made from."""
    plain_header(h)
    h.base_offset = job.base_offset
    h.leader_epoch = leader_epoch
    h.count = <int32_t>job.count
    h.last_delta = <int32_t>subtracted(job.last_offset, job.base_offset)
    h.base_timestamp = job.base_timestamp
    h.max_timestamp = job.max_timestamp
    if row.magic == 2:
        h.producer_id = row.producer_id
        h.producer_epoch = row.producer_epoch
        h.base_sequence = row.base_sequence
        h.attributes = row.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT)
    if job.append_time >= 0:
        h.attributes |= TIMESTAMP_TYPE_BIT
        h.max_timestamp = job.append_time


cdef object grown(object out, Job* job):
    """Make room for `need` more bytes in a bytearray with no other owner."""
    cdef int64_t want = max(job.size + job.need, min(2 * job.capacity, <int64_t>MOST))
    if job.size + job.need > <int64_t>MOST + LARGEST_OVERHEAD:
        return None
    PyByteArray_Resize(out, <Py_ssize_t>want)
    job.data = <uint8_t*>PyByteArray_AS_STRING(out)
    job.capacity = want
    return out


cdef int64_t capacity_for(BatchTable batches, Py_ssize_t first, Py_ssize_t last, int64_t length) except -1:
    """Room to begin with: what the rows have, all of which must lie in the buffer, and an eighth more."""
    cdef int64_t size = 256
    cdef Py_ssize_t i
    for i in range(first, last):
        if place_of(&batches.rows[i], 0, length) < 0:
            raise ValueError(f"batch {i} of the table lies outside the {length} bytes given")
        size = added(size, batches.rows[i].size)
    return min(size + (size >> 3), <int64_t>MOST)


def rewrite(
    buf, BatchTable batches not None, Py_ssize_t first=0, Py_ssize_t last=-1, *, int magic=2, first_offset=None,
    from_offset=None, bint relative=False, int64_t append_time=-1, int32_t leader_epoch=-1, bint drop_headers=False,
) -> Rewritten:
    """The records of the uncompressed rows `first` up to `last` as one v2 batch, or as a set of v0 or v1 messages.

    With a `first_offset` they get consecutive offsets from it on, else they keep theirs; `from_offset` leaves out
    those below it. `relative` is for the inner messages of a v1 wrapper. An `append_time` (ms) makes it LogAppendTime.
    Statuses: those of decode, STATUS_HEADERS where the format has none, STATUS_NEGATIVE_TIME for a time below -1,
    STATUS_OFFSETS where kept offsets do not rise or lie too far apart, STATUS_TOO_LONG over 2 GiB.
    """
    cdef Py_buffer view
    cdef Job job
    cdef HeaderFields header
    cdef Rewritten result = Rewritten.__new__(Rewritten)
    cdef Py_ssize_t i
    cdef int status = OK
    if magic < 0 or magic > 2:
        raise ValueError(f"there is no format v{magic}")
    if last < 0 or last > batches.count:
        last = batches.count
    if first < 0 or first >= last:
        raise ValueError(f"rows {first} to {last} of a table of {batches.count} batches")
    begin(&job, magic, relative, append_time, drop_headers)
    job.keep_offsets = first_offset is None
    job.first_offset = -1 if first_offset is None else first_offset
    job.from_offset = INT64_MIN if from_offset is None else from_offset
    PyObject_GetBuffer(buf, &view, PyBUF_SIMPLE)
    try:
        job.capacity = capacity_for(batches, first, last, view.len)
        out = PyByteArray_FromStringAndSize(NULL, <Py_ssize_t>job.capacity)
        job.data = <uint8_t*>PyByteArray_AS_STRING(out)
        i = first
        while i < last:
            with nogil:
                while i < last:
                    status = work(&job, <const uint8_t*>view.buf + batches.rows[i].position, &batches.rows[i])
                    if status != OK:
                        break
                    i += 1
            if status == NEED_ROOM and grown(out, &job) is None:
                status = TOO_LONG
            if status != OK and status != NEED_ROOM:
                break
        status = TOO_LONG if status == OK and job.size > MOST else status
        result.status = status
        result.row = i
        result.record = job.number
        if status == OK:
            if job.count == 0:
                job.size = 0
            elif magic == 2:
                header_of(&header, &job, &batches.rows[first], leader_epoch)
                with nogil:
                    put_header(job.data, job.size, &header)
            PyByteArray_Resize(out, <Py_ssize_t>job.size)
            result.data = out
    finally:
        PyBuffer_Release(&view)
    result.count = job.count
    result.base_offset = job.base_offset
    result.last_offset = job.last_offset
    result.max_timestamp = job.max_timestamp
    result.offset_of_max_timestamp = job.offset_of_max_timestamp
    return result


cdef void begin(Job* job, int magic, bint relative, int64_t append_time, bint drop_headers) noexcept nogil:
    job.magic = magic
    job.relative = relative
    job.append_time = append_time
    job.drop_headers = drop_headers
    job.size = V2_RECORDS_AT if magic == 2 else 0
    job.row_begun = False
    job.number = job.count = job.need = 0
    job.base_offset = job.last_offset = -1
    job.base_timestamp = job.max_timestamp = job.offset_of_max_timestamp = -1


def message_run(BatchTable batches not None, Py_ssize_t first, Py_ssize_t last, int64_t limit_bytes) -> int:
    """The row after the plain v0 or v1 messages from row `first` on that can go into one batch.

    They have one format and one timestamp type (and one time where the log stamped them), rising offsets that lie
    within 2^31 of each other, and together at most `limit_bytes`; the first is taken whatever its size.
    """
    cdef BatchRow* head = batches.row_at(first)
    cdef BatchRow* row
    cdef int64_t size = head.size
    cdef Py_ssize_t i
    if last > batches.count:
        last = batches.count
    if head.magic >= 2 or head.attributes & CODEC_MASK:
        return first + 1
    for i in range(first + 1, last):
        row = &batches.rows[i]
        size = added(size, row.size)
        if row.magic != head.magic or row.attributes & CODEC_MASK or size > limit_bytes:
            return i
        if (row.attributes ^ head.attributes) & TIMESTAMP_TYPE_BIT and row.magic > 0:
            return i
        if row.magic > 0 and head.attributes & TIMESTAMP_TYPE_BIT and row.max_timestamp != head.max_timestamp:
            return i
        if row.base_offset <= batches.rows[i - 1].base_offset or subtracted(row.base_offset, head.base_offset) > MOST:
            return i
        if subtracted(row.base_offset, head.base_offset) < 0:
            return i
    return last
