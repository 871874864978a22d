"""Do the records of a batch, once decoded, agree with its header? One pass over the columns."""
from libc.stdint cimport int64_t

from kafkalog._core.batch.batch_range cimport is_misplaced
from kafkalog._core.batch.check cimport BatchRow
from kafkalog._core.batch.decode cimport RecordTable
from kafkalog._core.bytes.wrap cimport subtracted

# what is wrong with a record that decodes
RECORD_OFFSET = FAULT_OFFSET
RECORD_RANGE = FAULT_RANGE
BATCH_TIME = FAULT_TIME

cdef enum:
    FAULT_OFFSET = 1                # its offset is not above that of the record before it
    FAULT_RANGE                     # ... lies outside of what the batch says
    FAULT_TIME                      # the batch's largest timestamp is not that of its records


def record_fault(RecordTable table not None, Py_ssize_t first=0) -> tuple[int, int, int] | None:
    """(what is wrong, record, row of the table's batches) for the first record from `first` on that contradicts its batch.

    None where all agree. `first` is a record that begins a batch; a fault of the whole batch names its last record.
    """
    cdef Py_ssize_t i = first
    cdef Py_ssize_t row = 0
    cdef int fault = 0
    if first < 0 or first >= table.count:
        return None
    with nogil:
        row = table.batch_row(i) - table.batches.rows
        while i < table.count:
            fault = batch_fault(table, row, &i)
            if fault != 0:
                break
            row += 1
    return (fault, i, row) if fault != 0 else None


cdef int batch_fault(RecordTable table, Py_ssize_t number, Py_ssize_t* at) noexcept nogil:
    """Moves over the records of one batch, or to the one that is wrong."""
    cdef BatchRow* row = &table.batches.rows[number]
    cdef int64_t end = 0x7FFFFFFFFFFFFFFF
    cdef int64_t previous = -1
    cdef int64_t largest = -1
    cdef Py_ssize_t begun = at[0]
    cdef int64_t offset
    if number + 1 < table.last_batch:
        end = subtracted(table.batches.rows[number + 1].position, table.base_position)
    while at[0] < table.count and table.places[at[0]].value_at < end:
        offset = table.offset_column[at[0]]
        if row.magic >= 2 and (offset < row.base_offset or offset > row.last_offset):
            return FAULT_RANGE
        if at[0] > begun and offset <= previous:
            return FAULT_OFFSET
        if row.magic < 2 and is_misplaced(row, offset, False, 0):
            return FAULT_RANGE
        previous = offset
        largest = max(largest, table.timestamp_column[at[0]])
        at[0] += 1
    if row.magic >= 2 and at[0] > begun and largest != row.max_timestamp:
        at[0] -= 1
        return FAULT_TIME
    return 0
