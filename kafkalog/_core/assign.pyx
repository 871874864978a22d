"""What a leader does to the bytes of a batch before they are written: look at every record, then set offsets in place."""
cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalog._core.batch cimport BatchRow, place_of
from kafkalog._core.crc cimport kl_crc32c
from kafkalog._core.cursor cimport Cursor
from kafkalog._core.endian cimport store16, store32, store64
from kafkalog._core.fields cimport Fields, take_record
from kafkalog._core.layout cimport (
    CODEC_MASK, ERR_COMPRESSED, ERR_COUNT_HIGH, ERR_COUNT_LOW, ERR_COUNT_NEGATIVE, ERR_MAGIC, OK, TIMESTAMP_TYPE_BIT,
    V2_ATTRIBUTES_AT, V2_CRC_AT, V2_LEADER_EPOCH_AT, V2_MAX_TIMESTAMP_AT, V2_RECORDS_AT,
)
from kafkalog._core.scan cimport BatchTable
from kafkalog._core.wrap cimport added

FAULT_TIMESTAMP = 101
FAULT_NO_KEY = 102

cdef enum:
    BAD_TIMESTAMP = 101
    BAD_KEY = 102
    MOST_FAULTS = 1000

cdef int64_t LAST_OFFSET = 0x7FFFFFFFFFFFFFFF


def assign(
    buf, BatchTable batches not None, int64_t first_offset, int32_t leader_epoch=-1, int64_t append_time=-1, *,
    Py_ssize_t first=0, Py_ssize_t last=-1, int64_t base_position=0,
) -> int:
    """Gives the v2 batches `first` up to `last` of a writable buffer consecutive offsets; returns the next free one.

    Base offset and leader epoch lie outside the checksum, so nothing else changes (REC-17). With an `append_time`
    (ms) of 0 or more every batch becomes LogAppendTime with that time, and its checksum is made anew (LOG-77). The
    table's rows are changed with the bytes: next offset 10 and five records give 10 to 14. ValueError, with nothing
    changed, for a batch of another format, one that ends below its base offset, or offsets past the largest there is.
    """
    cdef Py_buffer view
    cdef Py_ssize_t i
    cdef int64_t next_offset = first_offset
    if last < 0 or last > batches.count:
        last = batches.count
    if first < 0 or first > last:
        raise ValueError(f"rows {first} to {last} of a table of {batches.count} batches")
    PyObject_GetBuffer(buf, &view, PyBUF_WRITABLE)
    try:
        for i in range(first, last):
            next_offset = _next_offset(batches, i, next_offset, base_position, view.len)
        next_offset = first_offset
        for i in range(first, last):
            next_offset = _assign_one(
                <uint8_t*>view.buf + place_of(&batches.rows[i], base_position, view.len), &batches.rows[i],
                next_offset, leader_epoch, append_time,
            )
    finally:
        PyBuffer_Release(&view)
    batches.summarise()
    return next_offset


cdef int64_t _next_offset(
    BatchTable batches, Py_ssize_t i, int64_t offset, int64_t base_position, int64_t length
) except? -1:
    """The offset after batch `i` once it begins at `offset`; ValueError where it cannot."""
    cdef BatchRow* row = &batches.rows[i]
    if place_of(row, base_position, length) < 0:
        raise ValueError(f"batch {i} of the table lies outside the {length} bytes given")
    if row.magic != 2 or row.size < V2_RECORDS_AT:
        raise ValueError(f"batch {i} is not of format v2: its offsets cannot be set in place")
    if row.last_delta < 0 or offset < 0 or offset > LAST_OFFSET - row.last_delta - 1:
        raise ValueError(f"batch {i} cannot have offsets {offset} to {offset} + {row.last_delta}")
    return offset + row.last_delta + 1


cdef inline int64_t _assign_one(
    uint8_t* p, BatchRow* row, int64_t offset, int32_t leader_epoch, int64_t append_time
) noexcept nogil:
    """Writes offset, epoch and, from 0 on, time; returns the offset after the batch."""
    store64(p, offset)
    store32(p + V2_LEADER_EPOCH_AT, leader_epoch)
    row.base_offset = offset
    row.last_offset = offset + row.last_delta
    row.leader_epoch = leader_epoch
    if append_time >= 0:
        _stamp(p, row, append_time)
    return row.last_offset + 1


cdef void _stamp(uint8_t* p, BatchRow* row, int64_t append_time) noexcept nogil:
    if row.attributes & TIMESTAMP_TYPE_BIT and row.max_timestamp == append_time:
        return                  # nothing changes: the bytes stay untouched (REC-19)
    row.attributes |= TIMESTAMP_TYPE_BIT
    row.max_timestamp = append_time
    store16(p + V2_ATTRIBUTES_AT, row.attributes)
    store64(p + V2_MAX_TIMESTAMP_AT, append_time)
    row.crc = kl_crc32c(0, p + V2_ATTRIBUTES_AT, <size_t>(row.size - V2_ATTRIBUTES_AT))
    row.computed_crc = row.crc
    row.valid = 1
    store32(p + V2_CRC_AT, <int32_t>row.crc)


def stamp_batch(buf, BatchTable batches not None, Py_ssize_t i, *, bint append_time_type, int64_t timestamp) -> None:
    """Sets timestamp type and max timestamp (ms) of one v2 batch in place, checksum too; equal values change no byte."""
    cdef Py_buffer view
    cdef BatchRow* row = batches.row_at(i)
    cdef uint8_t* p
    cdef int64_t at
    cdef bint now_append = (row.attributes & TIMESTAMP_TYPE_BIT) != 0
    if row.magic != 2 or row.size < V2_RECORDS_AT:
        raise ValueError(f"batch {i} is not of format v2")
    if now_append == append_time_type and row.max_timestamp == timestamp:
        return
    PyObject_GetBuffer(buf, &view, PyBUF_WRITABLE)
    try:
        at = place_of(row, 0, view.len)
        if at < 0:
            raise ValueError(f"batch {i} of the table lies outside the {view.len} bytes given")
        p = <uint8_t*>view.buf + at
        if append_time_type:
            _stamp(p, row, timestamp)
        else:
            row.attributes &= ~TIMESTAMP_TYPE_BIT
            row.max_timestamp = timestamp
            store16(p + V2_ATTRIBUTES_AT, row.attributes)
            store64(p + V2_MAX_TIMESTAMP_AT, timestamp)
            row.crc = kl_crc32c(0, p + V2_ATTRIBUTES_AT, <size_t>(row.size - V2_ATTRIBUTES_AT))
            row.computed_crc = row.crc
            row.valid = 1
            store32(p + V2_CRC_AT, <int32_t>row.crc)
    finally:
        PyBuffer_Release(&view)
    batches.summarise()


cdef struct Faults:
    int64_t record[MOST_FAULTS]
    int kind[MOST_FAULTS]
    int count
    int64_t total


cdef int look(
    const uint8_t* p, BatchRow* row, int64_t oldest, int64_t newest, bint times, bint keys, Faults* faults,
    int64_t* position,
) noexcept nogil:
    cdef Cursor c
    cdef Fields f
    cdef int status
    cdef int64_t i
    cdef int64_t ts
    cdef bint own_times = (row.attributes & TIMESTAMP_TYPE_BIT) == 0
    position[0] = V2_RECORDS_AT
    if row.count < 0:
        return ERR_COUNT_NEGATIVE
    c.p = p + V2_RECORDS_AT
    c.end = p + row.size
    for i in range(row.count):
        position[0] = c.p - p
        if c.p == c.end:
            return ERR_COUNT_HIGH
        status = take_record(&c, &f)
        if status != OK:
            return status
        if keys and f.key_size < 0:
            note(faults, i, BAD_KEY)
        ts = added(row.base_timestamp, f.timestamp_delta) if own_times else row.max_timestamp
        if times and ts != -1:
            if ts < oldest or ts > newest:
                note(faults, i, BAD_TIMESTAMP)
        elif not own_times:
            note(faults, i, BAD_TIMESTAMP)
    position[0] = c.p - p
    return ERR_COUNT_LOW if c.p != c.end else OK


cdef inline void note(Faults* faults, int64_t record, int kind) noexcept nogil:
    if faults.count < MOST_FAULTS:
        faults.record[faults.count] = record
        faults.kind[faults.count] = kind
        faults.count += 1
    faults.total += 1


@cython.final
cdef class RecordCheck:
    """What is wrong with the records of one batch.

    `status` is not 0 where the batch's structure is broken, at byte `position` of the batch; `faults` lists
    (record number, FAULT_TIMESTAMP or FAULT_NO_KEY), of `total` in all.
    """
    cdef readonly int status
    cdef readonly int64_t position
    cdef readonly list faults
    cdef readonly int64_t total


def check_records(
    buf, BatchTable batches not None, Py_ssize_t i, int64_t oldest=-0x7FFFFFFFFFFFFFFF,
    int64_t newest=0x7FFFFFFFFFFFFFFF, bint check_times=True, bint need_keys=False, int64_t base_position=0,
) -> RecordCheck | None:
    """None when every record of uncompressed v2 batch `i` is sound, else what is wrong (format.md section 11, stage C3).

    With `check_times` a timestamp other than -1 must lie in [oldest, newest] (ms); without it, and for -1, the batch
    must not carry the LogAppendTime bit. `need_keys` is for compacted topics.
    """
    cdef Py_buffer view
    cdef Faults faults
    cdef BatchRow* row = batches.row_at(i)
    cdef RecordCheck out
    cdef int64_t position = 0
    cdef int64_t at
    cdef int status
    cdef int n
    faults.count = 0
    faults.total = 0
    PyObject_GetBuffer(buf, &view, PyBUF_SIMPLE)
    try:
        at = place_of(row, base_position, view.len)
        if at < 0:
            raise ValueError(f"batch {i} of the table lies outside the {view.len} bytes given")
        if row.magic != 2 or row.size < V2_RECORDS_AT:
            status = ERR_MAGIC
        elif row.attributes & CODEC_MASK:
            status = ERR_COMPRESSED
        elif row.size < 8192:
            status = look(
                <const uint8_t*>view.buf + at, row, oldest, newest, check_times, need_keys, &faults, &position
            )
        else:
            with nogil:
                status = look(
                    <const uint8_t*>view.buf + at, row, oldest, newest, check_times, need_keys, &faults, &position
                )
    finally:
        PyBuffer_Release(&view)
    if status == OK and faults.total == 0:
        return None
    out = RecordCheck.__new__(RecordCheck)
    out.status = status
    out.position = position
    out.faults = [(faults.record[n], faults.kind[n]) for n in range(faults.count)]
    out.total = faults.total
    return out
