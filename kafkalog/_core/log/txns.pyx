"""Transactions as batches show them: which are open, which were aborted, and which batches a committed read leaves out.

A transaction of a producer begins with its first transactional batch and ends with the next marker of that producer
(format.md section 3), so a batch belongs to an aborted one where it lies between the first offset and the ABORT
marker: no state has to travel from chunk to chunk, and any stretch of a log can be read on its own.
"""
from heapq import heapify, heappop, heappush

cimport cython
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, qsort, realloc

from kafkalog._core.batch.check cimport BatchRow, read_row
from kafkalog._core.batch.layout cimport CODEC_MASK, CONTROL_BIT, TRANSACTIONAL_BIT, V2_RECORDS_AT
from kafkalog._core.batch.marker cimport ABORT, COMMIT, marker_kind
from kafkalog._core.batch.scan cimport BatchTable
from kafkalog._core.bytes.wrap cimport added

cdef enum:
    NO_MARKER = -1
    MOST_MARKER_BYTES = 64 * 1024   # a marker has 78 bytes; later versions may append some


cdef int by_producer_and_end(const void* a, const void* b) noexcept nogil:
    cdef const Range* x = <const Range*>a
    cdef const Range* y = <const Range*>b
    if x.producer_id != y.producer_id:
        return -1 if x.producer_id < y.producer_id else 1
    if x.last_offset != y.last_offset:
        return -1 if x.last_offset < y.last_offset else 1
    return (x.first_offset > y.first_offset) - (x.first_offset < y.first_offset)    # the longest comes first


cdef inline bint is_transactional(const BatchRow* row) noexcept nogil:
    return row.magic >= 2 and row.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT) == TRANSACTIONAL_BIT


@cython.final
cdef class AbortedRanges:
    """Aborted transactions, each (producer id, first offset, offset of its ABORT marker), to ask of batches."""

    def __cinit__(self, transactions=()):
        cdef Py_ssize_t i = 0
        cdef list all_of_them = list(transactions)
        cdef Py_ssize_t count = len(all_of_them)
        if count == 0:
            return
        self.ranges = <Range*>realloc(NULL, <size_t>count * sizeof(Range))
        if self.ranges == NULL:
            raise MemoryError
        for producer_id, first_offset, last_offset in all_of_them:
            self.ranges[i] = Range(producer_id, first_offset, last_offset)
            i += 1
        self.count = count
        qsort(self.ranges, <size_t>count, sizeof(Range), by_producer_and_end)

    def __dealloc__(self):
        free(self.ranges)

    def __len__(self) -> int:
        return self.count

    cdef bint holds(self, const BatchRow* row) noexcept nogil:
        """True for a batch of an aborted transaction."""
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = self.count
        cdef Py_ssize_t middle
        cdef Range* range_
        while low < high:               # the first range of the producer that ends at or after the batch
            middle = (low + high) >> 1
            range_ = &self.ranges[middle]
            if range_.producer_id < row.producer_id or (
                range_.producer_id == row.producer_id and range_.last_offset < row.base_offset
            ):
                low = middle + 1
            else:
                high = middle
        if low == self.count:
            return False
        range_ = &self.ranges[low]
        return range_.producer_id == row.producer_id and range_.first_offset <= row.last_offset

    def __contains__(self, batch) -> bool:
        """True for the (producer id, base offset, last offset) of a batch of an aborted transaction."""
        cdef BatchRow row
        row.producer_id, row.base_offset, row.last_offset = batch
        return self.holds(&row)


cdef int check_rows(BatchTable table, Py_ssize_t first, Py_ssize_t last) except -1:
    if first < 0 or last > table.count or first > last:
        raise ValueError(f"rows {first} to {last} of a table of {table.count} batches")
    return 0


def has_transactions(BatchTable table not None, Py_ssize_t first, Py_ssize_t last) -> bool:
    """True when one of the rows `first` up to `last` holds records of a transaction (markers do not count)."""
    cdef Py_ssize_t i
    check_rows(table, first, last)
    for i in range(first, last):
        if is_transactional(&table.rows[i]):
            return True
    return False


def is_plain(BatchTable table not None, Py_ssize_t first, Py_ssize_t last) -> bool:
    """True when the rows `first` up to `last` are of format v2, not compressed, and lie back to back."""
    cdef Py_ssize_t i
    cdef BatchRow* row
    check_rows(table, first, last)
    for i in range(first, last):
        row = &table.rows[i]
        if row.magic != 2 or row.attributes & CODEC_MASK:
            return False
        if i > first and row.position != added(table.rows[i - 1].position, table.rows[i - 1].size):
            return False
    return True


cdef inline bint is_hidden(const BatchRow* row, AbortedRanges aborted) noexcept nogil:
    """True for control batches, and for those of `aborted`, which may be None."""
    if row.magic < 2 or not row.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT):
        return False
    return row.attributes & CONTROL_BIT or (aborted is not None and aborted.holds(row))


def visible_rows(
    BatchTable table not None, Py_ssize_t first, Py_ssize_t last, AbortedRanges aborted=None
) -> BatchTable:
    """A table of those of the rows `first` up to `last` that a consumer sees: no control batches, none of `aborted`.

    `table` itself where all are seen. Rows keep their positions in what was scanned.
    """
    cdef Py_ssize_t i
    cdef BatchTable seen
    check_rows(table, first, last)
    for i in range(first, last):
        if is_hidden(&table.rows[i], aborted):
            break
    else:
        return table
    seen = BatchTable.__new__(BatchTable)
    for i in range(first, last):
        if is_hidden(&table.rows[i], aborted):
            continue
        if seen.count == seen.capacity and seen.grow() < 0:
            raise MemoryError
        seen.rows[seen.count] = table.rows[i]
        seen.count += 1
    seen.stop_position = table.stop_position
    seen.stop_reason = table.stop_reason
    seen.stop_value = table.stop_value
    seen.valid_bytes = table.valid_bytes
    seen.summarise()
    return seen


cdef int marker_type(bytes data, BatchRow* row) except -2:
    """ABORT or COMMIT for the bytes of a valid marker batch, else NO_MARKER."""
    cdef const uint8_t* p = data
    cdef BatchRow checked
    cdef int kind
    if len(data) != row.size or row.size < V2_RECORDS_AT:
        return NO_MARKER
    read_row(p, row.size, row.magic, True, &checked)
    if not checked.valid:
        return NO_MARKER
    kind = marker_kind(p, row)
    return kind if kind == ABORT or kind == COMMIT else NO_MARKER


@cython.final
cdef class TxnScan:
    """Follows the transactions of a log over its batches, in the order of their offsets.

    open_transactions: first offset by producer id, of those open where the scan begins. Afterwards `open` has those
    open at its end, `aborted` those that an ABORT marker ended, as (producer id, first offset, marker's offset, last
    stable offset after it), and `first_markers` by producer id the first marker met: (offset, whether it is ABORT).
    """

    cdef readonly dict open
    cdef readonly list aborted
    cdef readonly dict first_markers
    cdef list begun                 # a heap of (first offset, producer id), of those that have ended too

    def __init__(self, open_transactions=()):
        self.open = dict(open_transactions)
        self.begun = [(first_offset, producer_id) for producer_id, first_offset in self.open.items()]
        heapify(self.begun)
        self.aborted = []
        self.first_markers = {}

    @cython.critical_section
    def feed(self, BatchTable table not None, read) -> None:
        """Goes over all rows of a table, checked or not. `read(position, size)` gives the bytes of a marker batch."""
        cdef Py_ssize_t i
        cdef BatchRow* row
        cdef BatchRow marker
        for i in range(table.count):
            row = &table.rows[i]
            if row.magic < 2 or not row.attributes & TRANSACTIONAL_BIT:
                continue
            if not row.attributes & CONTROL_BIT:
                if row.producer_id not in self.open:
                    self.open[row.producer_id] = row.base_offset
                    heappush(self.begun, (row.base_offset, row.producer_id))
            elif row.size <= MOST_MARKER_BYTES:
                marker = row[0]     # `read` is the caller's code: the rows may lie elsewhere after it
                self.end(&marker, marker_type(read(marker.position, marker.size), &marker))

    cdef int end(self, BatchRow* row, int kind) except -1:
        """A marker ends the producer's transaction; one without any record changes nothing (LOG-67)."""
        if kind == NO_MARKER:
            return 0
        self.first_markers.setdefault(row.producer_id, (row.last_offset, kind == ABORT))
        first_offset = self.open.pop(row.producer_id, None)
        if kind == ABORT and first_offset is not None:
            self.aborted.append((row.producer_id, first_offset, row.last_offset, self.stable(row)))
        return 0

    cdef object stable(self, BatchRow* row):
        """The lowest offset of what is open, else the one after a marker: there may be many open, and as many markers."""
        while self.begun:
            first_offset, producer_id = self.begun[0]
            if self.open.get(producer_id) == first_offset:
                return first_offset
            heappop(self.begun)
        return added(row.last_offset, 1)
