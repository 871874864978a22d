"""Transactions while a cleaner goes over batches in order: which data was aborted, and which markers can go.

A marker is needed as long as data of its transaction lies before it: without an ABORT marker aborted data would come
back to life, and the index of a segment has to be rebuilt for those that stay (CLN-14 to CLN-22).
"""
cimport cython
from libc.stdlib cimport free, qsort
from libc.string cimport memset

from kafkalog._core.batch.check cimport BatchRow, place_of
from kafkalog._core.batch.layout cimport CONTROL_BIT, TRANSACTIONAL_BIT
from kafkalog._core.batch.marker cimport ABORT, COMMIT, UNREADABLE, marker_kind
from kafkalog._core.batch.scan cimport BatchTable
from kafkalog._core.bytes.buffers cimport Held, hold
from kafkalog._core.bytes.room cimport room_for_one
from kafkalog._core.log.ids cimport drop_ids, make_ids, number_of


cdef int by_first_offset(const void* a, const void* b) noexcept nogil:
    cdef const Aborted* x = <const Aborted*>a
    cdef const Aborted* y = <const Aborted*>b
    if x.first_offset != y.first_offset:
        return -1 if x.first_offset < y.first_offset else 1
    return (x.last_offset > y.last_offset) - (x.last_offset < y.last_offset)


@cython.final
cdef class CleanedTxns:
    """Follows transactions over the batches of a clean, from segment to segment and from group to group.

    Aborted transactions are added beforehand, from the indexes of the segments; those that reach into a segment whose
    neighbour has them may come twice. Threads: belongs to the clean.
    """

    def __cinit__(self):
        make_ids(&self.ids)

    def __dealloc__(self):
        free(self.aborted)
        free(self.ongoing)
        free(self.retained)
        drop_ids(&self.ids)

    @cython.critical_section
    def add_aborted(self, transactions) -> None:
        """Adds transactions as (version, producer id, first offset, last offset, last stable offset)."""
        cdef Aborted* grown
        for version, producer_id, first_offset, last_offset, last_stable_offset in transactions:
            grown = <Aborted*>room_for_one(self.aborted, self.count, &self.room, sizeof(Aborted))
            if grown == NULL:
                raise MemoryError
            self.aborted = grown
            self.aborted[self.count] = Aborted(first_offset, last_offset, last_stable_offset, producer_id, version)
            self.count += 1
        if self.next == self.count:
            return
        qsort(self.aborted + self.next, <size_t>(self.count - self.next), sizeof(Aborted), by_first_offset)

    @cython.critical_section
    def take_retained(self) -> list:
        """The aborted transactions whose markers were met since the last call and have data before them, in that order."""
        cdef list taken = []
        cdef Aborted* txn
        cdef Py_ssize_t i
        for i in range(self.retained_count):
            txn = &self.aborted[self.retained[i]]
            taken.append((txn.version, txn.producer_id, txn.first_offset, txn.last_offset, txn.last_stable_offset))
        self.retained_count = 0
        return taken

    cdef Ongoing* state_of(self, int64_t producer_id) noexcept nogil:
        """Return the entry of a producer; NULL without memory."""
        cdef Py_ssize_t number = number_of(&self.ids, producer_id)
        cdef Ongoing* grown
        if number < 0:
            return NULL
        if number >= self.ongoing_count:
            grown = <Ongoing*>room_for_one(self.ongoing, self.ongoing_count, &self.ongoing_room, sizeof(Ongoing))
            if grown == NULL:
                return NULL
            self.ongoing = grown
            memset(&self.ongoing[number], 0, sizeof(Ongoing))
            self.ongoing_count = number + 1
        return &self.ongoing[number]

    cdef int reach(self, int64_t offset) noexcept nogil:
        """Takes note of the transactions that begin at or below `offset`."""
        cdef Ongoing* state
        while self.next < self.count and self.aborted[self.next].first_offset <= offset:
            state = self.state_of(self.aborted[self.next].producer_id)
            if state == NULL:
                return TXN_NO_MEMORY
            if state.aborted == 0:
                state.aborted = self.next + 1
                state.has_data = False
            self.next += 1
        return TXN_STAYS

    cdef int on_batch(self, const BatchRow* row) noexcept nogil:
        """Goes over a batch that is no control batch: TXN_MAY_GO for data of an aborted transaction."""
        cdef Ongoing* state
        if self.next < self.count and self.reach(row.last_offset) < 0:
            return TXN_NO_MEMORY
        if row.magic < 2 or not row.attributes & TRANSACTIONAL_BIT:
            return TXN_STAYS
        state = self.state_of(row.producer_id)
        if state == NULL:
            return TXN_NO_MEMORY
        if state.aborted and self.aborted[state.aborted - 1].last_offset < row.base_offset:
            state.aborted = 0           # it ended before: its marker is gone, what follows is another transaction
        state.has_data = True
        return TXN_MAY_GO if state.aborted else TXN_STAYS

    cdef int on_control(self, const uint8_t* batch, const BatchRow* row) noexcept nogil:
        """Goes over a control batch, plain bytes: TXN_MAY_GO for one without records or without data before it."""
        cdef Ongoing* state
        cdef int kind
        if self.next < self.count and self.reach(row.last_offset) < 0:
            return TXN_NO_MEMORY
        if row.count == 0:
            return TXN_MAY_GO           # an earlier clean took its marker
        kind = marker_kind(batch, row)
        if kind == UNREADABLE:
            return TXN_UNREADABLE
        if kind != ABORT and kind != COMMIT:
            return TXN_STAYS
        state = self.state_of(row.producer_id)
        if state == NULL:
            return TXN_NO_MEMORY
        if kind == ABORT:
            return self.on_abort(state)
        kind = TXN_STAYS if state.has_data else TXN_MAY_GO
        if state.aborted == 0:
            state.has_data = False
        return kind

    cdef int on_abort(self, Ongoing* state) noexcept nogil:
        cdef Py_ssize_t* grown
        cdef bint has_data = state.has_data
        if state.aborted and has_data:
            grown = <Py_ssize_t*>room_for_one(
                self.retained, self.retained_count, &self.retained_room, sizeof(Py_ssize_t)
            )
            if grown == NULL:
                return TXN_NO_MEMORY
            self.retained = grown
            self.retained[self.retained_count] = state.aborted - 1
            self.retained_count += 1
        state.aborted = 0
        state.has_data = False
        return TXN_STAYS if has_data else TXN_MAY_GO

    @cython.critical_section
    def feed(self, batch, BatchTable table not None, Py_ssize_t i) -> bool:
        """Goes over row `i` of `table`, scanned from `batch`: True where transactions do not need it.

        MemoryError; ValueError for a row that does not lie in `batch` and for a control batch that cannot be read.
        """
        cdef Held held = hold(batch)
        cdef BatchRow* row = table.row_at(i)
        cdef int64_t at = place_of(row, 0, held.size)
        cdef int step
        if at < 0:
            raise ValueError(f"batch {i} of the table lies outside the {held.size} bytes given")
        if row.magic >= 2 and row.attributes & CONTROL_BIT:
            step = self.on_control(held.data + at, row)
        else:
            step = self.on_batch(row)
        if step == TXN_NO_MEMORY:
            raise MemoryError
        if step == TXN_UNREADABLE:
            raise ValueError(f"the control batch at offset {row.base_offset} cannot be read")
        return step == TXN_MAY_GO
