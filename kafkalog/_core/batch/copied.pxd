"""Copies of some records of a table, close together, so that the table's chunk may go."""
from libc.stdint cimport int64_t

from kafkalog._core.batch.decode cimport RecordTable


cdef RecordTable copied_rows(RecordTable table, const int64_t* rows, Py_ssize_t count)
