from libc.stdint cimport int32_t, int64_t

from kafkalog._core.batch.decode cimport RecordTable

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(object one)


cdef class Record:
    cdef RecordTable table
    cdef Py_ssize_t row             # without a table: 0 for a record made by hand, or what `lone_record` packs
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp
    cdef object own_key
    cdef object own_value
    cdef object own_headers


cdef inline Record record_of(RecordTable table, Py_ssize_t row):
    """The record in a row of a table; the row must be there.

    Of a chunk that is in no cycle, the record is in none either: the collector, which would look at millions of records
    again and again, is not to.
    """
    cdef Record r = Record.__new__(Record)
    if table.is_in_no_cycle:
        PyObject_GC_UnTrack(r)
    r.table = table
    r.row = row
    r.offset = table.offset_column[row]
    r.timestamp = table.timestamp_column[row]
    return r


cdef inline Record lone_record(bytes key, bytes value, int64_t offset, int64_t timestamp, bint appended, int32_t epoch):
    """A record without headers that has its key and value as objects, and no table.

    appended: its time is that of the append. epoch: of the leader. The key is of no derived class: it is in no cycle.
    """
    cdef Record r = Record.__new__(Record)
    PyObject_GC_UnTrack(r)
    r.own_key = key
    r.own_value = value
    r.own_headers = ()
    r.offset = offset
    r.timestamp = timestamp
    r.row = <Py_ssize_t>epoch * 4 + (2 if appended else 0) + 1
    return r
