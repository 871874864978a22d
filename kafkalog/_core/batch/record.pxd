# cython: language_level=3
from libc.stdint cimport int64_t

from kafkalog._core.batch.decode cimport RecordTable

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(object one)


cdef class Record:
    cdef RecordTable table
    cdef Py_ssize_t row
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
