"""One plain batch with some of its records emptied: what a redaction writes in the place of it (docs/redact.md)."""
cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kafkalog._core.batch.check cimport BatchRow, place_of
from kafkalog._core.batch.emit cimport (
    message_size, put_message, put_sized, put_varint, put_varlong, varint_size, varlong_size,
)
from kafkalog._core.batch.fields cimport Fields, take_record, take_small_record
from kafkalog._core.batch.layout cimport (
    CODEC_MASK, CONTROL_BIT, ERR_COMPRESSED, ERR_COUNT_HIGH, ERR_COUNT_LOW, ERR_MAGIC, ERR_SHORT, OK, V2_RECORDS_AT,
)
from kafkalog._core.batch.legacy_message cimport Message, take_fields, take_frame
from kafkalog._core.batch.scan cimport BatchTable
from kafkalog._core.bytes.buffers cimport Held, hold
from kafkalog._core.bytes.cursor cimport Cursor
from kafkalog._core.bytes.wrap cimport added

cdef enum:
    WITH_TOMBSTONE = 0              # what becomes of a value
    WITH_EMPTY = 1
    UNTOUCHED = 110                 # a status beside those of layout.pxd: none of the records is changed

TOMBSTONE = WITH_TOMBSTONE
EMPTY = WITH_EMPTY


cdef struct Wanted:
    # which records, and what becomes of them
    const int64_t* offsets          # rising
    int64_t count
    int64_t at                      # the first that no record has passed
    int value
    bint erases_key


@cython.final
cdef class RedactedRow:
    """One batch after its redaction.

    `data`, its records without a header (of v0 and v1: its whole messages), is None where nothing is changed or where
    `status` is not 0, at record `record`. `found` are the offsets of the records that were wanted, `changed` those
    of them that held something.
    """
    cdef readonly object data
    cdef readonly int status
    cdef readonly int64_t record
    cdef readonly list found
    cdef readonly list changed


cdef inline bint is_wanted(Wanted* wanted, int64_t offset) noexcept nogil:
    """True if the record with this offset is one of those wanted; offsets that lie below it are passed."""
    while wanted.at < wanted.count and wanted.offsets[wanted.at] < offset:
        wanted.at += 1
    return wanted.at < wanted.count and wanted.offsets[wanted.at] == offset


cdef inline int32_t size_left(const Wanted* wanted, int32_t value_size) noexcept nogil:
    """The size of the value that a redacted record has: a tombstone stays one."""
    return -1 if wanted.value == WITH_TOMBSTONE or value_size < 0 else 0


cdef inline bint holds(const Wanted* wanted, int32_t key_size, int32_t value_size, int32_t header_count) noexcept nogil:
    """True if a redaction changes a record with these sizes."""
    return value_size != size_left(wanted, value_size) or header_count > 0 or (wanted.erases_key and key_size > 0)


cdef int note(
    RedactedRow out, const Wanted* wanted, object keys, int64_t offset, const uint8_t* key, int32_t key_size,
    bint holds_some,
) except -1 with gil:
    """Take note of a record that is wanted; 1 if it is to be changed, 0 if it has another key or holds nothing."""
    if keys is not None and (key_size < 0 or (<const char*>key)[:key_size] not in keys):
        return 0
    out.found.append(offset)
    if holds_some:
        out.changed.append(offset)
    return holds_some


cdef uint8_t* put_record(uint8_t* p, const Fields* f, const Wanted* wanted) noexcept nogil:
    """A record of a v2 batch without what it held; it is never longer than before."""
    cdef int32_t key_size = 0 if wanted.erases_key and f.key_size > 0 else f.key_size
    cdef int32_t value_size = size_left(wanted, f.value_size)
    cdef const uint8_t* body = f.end - f.body_size
    cdef int64_t size = (
        1 + varlong_size(f.timestamp_delta) + varint_size(f.offset_delta) + varint_size(key_size)
        + (key_size if key_size > 0 else 0) + varint_size(value_size) + 1
    )
    p = put_varint(p, <int32_t>size)
    p[0] = body[0]
    p = put_varint(put_varlong(p + 1, f.timestamp_delta), f.offset_delta)
    p = put_sized(p, f.key, key_size)
    p = put_varint(p, value_size)
    p[0] = 0
    return p + 1


cdef int redact_records(
    RedactedRow out, Wanted* wanted, object keys, const uint8_t* batch, const BatchRow* row, uint8_t* into,
    int64_t* size,
) except -1 nogil:
    """The records of a v2 batch; what is not wanted is copied as it is."""
    cdef uint8_t* p = into
    cdef const uint8_t* start
    cdef int64_t number
    cdef int status
    cdef bint some = False
    cdef Cursor c
    cdef Fields f
    c.p = batch + V2_RECORDS_AT
    c.end = batch + row.size
    for number in range(row.count):
        start = c.p
        if start == c.end:
            out.record = number
            return ERR_COUNT_HIGH
        if not take_small_record(&c, &f):
            status = take_record(&c, &f)
            if status != OK:
                out.record = number
                return status
        if is_wanted(wanted, added(row.base_offset, f.offset_delta)) and note(
            out, wanted, keys, added(row.base_offset, f.offset_delta), f.key, f.key_size,
            holds(wanted, f.key_size, f.value_size, f.header_count),
        ):
            p = put_record(p, &f, wanted)
            some = True
        else:
            memcpy(p, start, <size_t>(f.end - start))
            p += f.end - start
    if c.p != c.end:
        out.record = row.count
        return ERR_COUNT_LOW
    size[0] = p - into
    return OK if some else UNTOUCHED


cdef int redact_messages(
    RedactedRow out, Wanted* wanted, object keys, const uint8_t* batch, const BatchRow* row, uint8_t* into,
    int64_t* size,
) except -1 nogil:
    """The messages of a v0 or v1 set; one that is cut off at its end ends it, as for readers."""
    cdef uint8_t* p = into
    cdef int64_t number = 0
    cdef int64_t message
    cdef int32_t key_size
    cdef int32_t value_size
    cdef int status
    cdef bint some = False
    cdef Cursor c
    cdef Message m
    c.p = batch
    c.end = batch + row.size
    while True:
        status = take_frame(&c, &m)
        if status == ERR_SHORT:
            break
        if status == OK:
            status = ERR_COMPRESSED if m.attributes & CODEC_MASK else take_fields(&m)
        if status != OK:
            out.record = number
            return status
        number += 1
        if is_wanted(wanted, m.offset) and note(
            out, wanted, keys, m.offset, m.key, m.key_size, holds(wanted, m.key_size, m.value_size, 0)
        ):
            key_size = 0 if wanted.erases_key and m.key_size > 0 else m.key_size
            value_size = size_left(wanted, m.value_size)
            message = message_size(m.magic, key_size, value_size)
            put_message(p, message, m.magic, m.attributes, m.offset, m.timestamp, m.key, key_size, m.value, value_size)
            p += message
            some = True
        else:
            memcpy(p, m.start, <size_t>m.size)
            p += m.size
    size[0] = p - into
    return OK if some else UNTOUCHED


def redact_row(
    buf, BatchTable batches not None, Py_ssize_t row, offsets, *, int value, bint erases_key=False, keys=None,
    int64_t base_position=0,
) -> RedactedRow:
    """The uncompressed batch of row `row` without values and headers of the records at `offsets` (int64, rising).

    `value` is TOMBSTONE or EMPTY: what is left of a value. `erases_key` empties keys. With `keys` (a set of bytes)
    only records with one of them are wanted. Control batches have none. `base_position` is that of the scan. Offsets,
    timestamps and attributes stay. ValueError for a row that lies outside of the buffer; MemoryError.
    """
    cdef Held held = hold(buf)
    cdef Held given = hold(offsets)
    cdef RedactedRow out = RedactedRow.__new__(RedactedRow)
    cdef const BatchRow* one = batches.row_at(row)
    cdef int64_t at = place_of(one, base_position, held.size)
    cdef int64_t size = 0
    cdef Wanted wanted
    cdef uint8_t* into
    cdef const uint8_t* batch
    cdef object data
    cdef int status
    if at < 0:
        raise ValueError(f"batch {row} of the table lies outside the {held.size} bytes given")
    if given.size % 8 or value < WITH_TOMBSTONE or value > WITH_EMPTY:
        raise ValueError(f"{given.size} bytes of offsets, and {value} for a value")
    out.found = []
    out.changed = []
    wanted.offsets = <const int64_t*>given.data
    wanted.count = given.size // 8
    wanted.at = 0
    wanted.value = value
    wanted.erases_key = erases_key
    if one.magic < 0 or one.magic > 2:
        out.status = ERR_MAGIC
        return out
    if one.magic == 2 and one.attributes & CONTROL_BIT:
        return out
    if one.attributes & CODEC_MASK:
        out.status = ERR_COMPRESSED
        return out
    if one.magic == 2 and (one.size < V2_RECORDS_AT or one.count < 0):
        out.status = ERR_COUNT_HIGH
        return out
    data = PyByteArray_FromStringAndSize(NULL, <Py_ssize_t>one.size)
    into = <uint8_t*>PyByteArray_AS_STRING(data)
    batch = held.data + at
    with nogil:
        if one.magic == 2:
            status = redact_records(out, &wanted, keys, batch, one, into, &size)
        else:
            status = redact_messages(out, &wanted, keys, batch, one, into, &size)
    if status == OK:
        PyByteArray_Resize(data, <Py_ssize_t>size)
        out.data = data
    elif status != UNTOUCHED:
        out.status = status
    return out
