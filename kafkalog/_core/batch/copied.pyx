"""Copies of some records of a table, close together, so that the table's chunk may go."""
from cpython.buffer cimport PyBUF_SIMPLE, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from kafkalog._core.batch.check cimport BatchRow
from kafkalog._core.batch.decode cimport RecordPlace, RecordTable
from kafkalog._core.batch.headers cimport Header, take_header
from kafkalog._core.batch.layout cimport OK
from kafkalog._core.batch.scan cimport BatchTable
from kafkalog._core.bytes.cursor cimport Cursor


cdef int64_t end_of(RecordTable table, const RecordPlace* place) noexcept nogil:
    """Return where a record of format v2 ends in the chunk; -1 for bytes overwritten since.

    The number of its headers is part of it, also without any: `batch_row` needs a byte behind each value.
    """
    cdef Cursor c
    cdef Header header
    cdef int i
    if place.header_count <= 0:
        return place.headers_at
    c.p = table.data + place.headers_at
    c.end = table.data + table.view.len
    for i in range(place.header_count):
        if take_header(&c, &header) != OK:
            return -1
    return c.p - table.data


cdef RecordTable copied_rows(RecordTable table, const int64_t* rows, Py_ssize_t count):
    """Return a table with copies of some records, by rising row; None if one of them has no copy that is the same.

    A record of an old format has none: its message says what it is.
    """
    cdef Py_ssize_t i
    cdef int64_t size = 0
    cdef int64_t end
    for i in range(count):
        if table.places[rows[i]].key_size < -1 or table.places[rows[i]].value_size < -1:
            return None
        if table.batch_row(rows[i]).magic < 2:
            return None
        end = end_of(table, &table.places[rows[i]])
        if end < table.places[rows[i]].key_at:
            return None
        size += end - table.places[rows[i]].key_at
    if size > 0x7FFFFFFF:
        return None
    return filled(table, rows, count, size)


cdef RecordTable filled(RecordTable table, const int64_t* rows, Py_ssize_t count, int64_t size):
    cdef RecordTable made = RecordTable.__new__(RecordTable)
    cdef BatchTable batches = BatchTable.__new__(BatchTable)
    cdef bytes data = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t* into = <uint8_t*>PyBytes_AS_STRING(data)
    cdef const BatchRow* batch = NULL
    cdef const RecordPlace* place
    cdef RecordPlace* copy
    cdef Py_ssize_t i
    cdef int64_t at = 0
    cdef int64_t length
    made.allocate(count)
    for i in range(count):
        place = &table.places[rows[i]]
        if table.batch_row(rows[i]) != batch:
            batch = table.batch_row(rows[i])
            if batches.count == batches.capacity and batches.grow() != 0:
                raise MemoryError("no memory for copies of records")
            batches.rows[batches.count] = batch[0]
            batches.rows[batches.count].position = at
            batches.count += 1
        length = end_of(table, place) - place.key_at
        if length < 0 or length > size - at:
            raise ValueError(f"the bytes of record {rows[i]} were overwritten after it was decoded")
        memcpy(into + at, table.data + place.key_at, <size_t>length)
        copy = &made.places[i]
        copy[0] = place[0]
        copy.key_at = <int>at
        copy.value_at = <int>(at + place.value_at - place.key_at)
        copy.headers_at = <int>(at + place.headers_at - place.key_at)
        made.offset_column[i] = table.offset_column[rows[i]]
        made.timestamp_column[i] = table.timestamp_column[rows[i]]
        at += length
    PyObject_GetBuffer(data, &made.view, PyBUF_SIMPLE)
    made.held = made.is_in_no_cycle = True
    made.data = <const uint8_t*>made.view.buf
    made.batches = batches
    made.last_batch = batches.count
    made.count = count
    return made
