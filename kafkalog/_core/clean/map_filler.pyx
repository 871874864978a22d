"""The keys of batches put into an offset map, straight from where they lie, with one call for all batches of a chunk.

What goes in, and how far, are the rules of the reference's Cleaner.buildOffsetMap: CLN-3, CLN-4, CLN-7, CLN-14, CLN-18,
CLN-46 of the checklist.
"""
cimport cython
from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.batch.batch_range cimport ERR_BATCH_RANGE, ends_below_base
from kafkalog._core.batch.check cimport BatchRow, place_of
from kafkalog._core.bytes.buffers cimport Held, hold
from kafkalog._core.bytes.cursor cimport Cursor
from kafkalog._core.batch.decode import STATUS_TEXT
from kafkalog._core.batch.fields cimport Fields
from kafkalog._core.batch.layout cimport CONTROL_BIT, ERR_COUNT_LOW, OK, TRANSACTIONAL_BIT, V2_RECORDS_AT
from kafkalog._core.batch.legacy_message cimport Message
from kafkalog._core.batch.record_walk cimport SET_ENDS, check_plain, check_rows, next_message, next_record
from kafkalog._core.batch.scan cimport BatchTable
from kafkalog._core.bytes.wrap cimport added
from kafkalog._core.clean.live_offsets cimport LiveOffsets
from kafkalog._core.clean.offset_map cimport KEY_GROUP, KeyOffset, SkimpyOffsetMap
from kafkalog._core.log.txns cimport AbortedRanges

cdef enum:
    MAP_IS_FULL = -1                # no status of a reader, but the end all the same


@cython.final
cdef class MapFiller:
    """Puts the keys of [start_offset, end_offset) into `offset_map`, batch after batch, until it has `most` keys.

    Records of `aborted` transactions, control records and records without a key are not put (CLN-14, CLN-18).
    `messages_read` counts what was looked at, `is_full` says that a key did not fit: the record that it belongs to, and
    what lies behind it, is not in the map, whose `latest_offset` says how far it reaches. Damage ends a `take` with
    `status` and the place of it, as in a RecordTable. Each batch whose keys are put is added to `live`; `unusual` counts
    what a copy has to look at whatever becomes of the keys: batches of transactions, control batches, those outside the
    range, records without a key, and messages of formats v0 and v1, whose wrappers do not say where they begin. One
    thread; the map has no other user meanwhile.
    """

    cdef SkimpyOffsetMap offset_map
    cdef LiveOffsets live
    cdef AbortedRanges aborted
    cdef int64_t start_offset
    cdef int64_t end_offset
    cdef int64_t most
    cdef KeyOffset waiting[KEY_GROUP]
    cdef int64_t read_before[KEY_GROUP]     # records read before that of a waiting key
    cdef int64_t batches_before[KEY_GROUP]  # last offset of the batch before its batch
    cdef Py_ssize_t waits
    cdef int64_t reached                    # last offset of the last whole batch, -1 before one counts
    cdef bint busy
    cdef readonly int64_t messages_read
    cdef readonly int64_t unusual
    cdef readonly bint is_full
    cdef readonly int status
    cdef readonly Py_ssize_t error_batch
    cdef readonly int64_t error_position
    cdef readonly int64_t error_record

    def __cinit__(
        self, SkimpyOffsetMap offset_map not None, AbortedRanges aborted not None, *, int64_t start_offset,
        int64_t end_offset, int64_t most, LiveOffsets live=None,
    ):
        self.offset_map = offset_map
        self.live = LiveOffsets() if live is None else live
        self.aborted = aborted
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.most = most
        self.reached = -1
        self.error_batch = -1
        self.error_position = -1
        self.error_record = -1

    @property
    def error_text(self) -> str:
        return STATUS_TEXT[self.status]

    @cython.critical_section
    def take(self, buf, BatchTable batches not None, Py_ssize_t first, Py_ssize_t last, int64_t base_position=0) -> bool:
        """Puts the keys of rows `first` up to `last` (exclusive) of a batch table made from this very buffer.

        False where that was the end: the map is full, or `status` says what is damaged. The batches are plain ones
        (arena.pyx makes them so), `base_position` is the one that the scan was given.
        """
        cdef Held held = hold(buf)
        cdef Py_ssize_t i
        cdef BatchRow* row
        cdef int status = OK
        if self.busy:
            raise RuntimeError("another thread uses this filler")
        check_rows(batches, first, last, base_position, held.size)
        self.busy = True
        with nogil:
            for i in range(first, last):
                row = &batches.rows[i]
                status = self.take_batch(held.data + place_of(row, base_position, held.size), row)
                if status != OK:
                    break
            self.settle()
        self.busy = False
        if status > OK and not self.is_full:
            self.status = status
            self.error_batch = i
            self.error_position += place_of(row, base_position, held.size)
        return not self.is_full and self.status == OK

    cdef int take_batch(self, const uint8_t* batch, const BatchRow* row) noexcept nogil:
        """OK, MAP_IS_FULL, or what is wrong with the batch."""
        cdef int status
        if row.base_offset >= self.end_offset:
            self.unusual += 1
            return OK
        status = check_plain(row)
        if row.magic < 2 or row.attributes & (CONTROL_BIT | TRANSACTIONAL_BIT):
            self.unusual += 1
        if ends_below_base(row):
            status = self.damaged(ERR_BATCH_RANGE, 0, -1)
        elif row.magic >= 2 and row.attributes & CONTROL_BIT:
            status = OK
            self.messages_read += 1
        elif row.count >= 0 and self.is_aborted(row):
            status = OK
            self.live.left_out = True
            self.messages_read += row.count
        elif status != OK:
            self.damaged(status, 0, 0)
        else:
            status = self.take_records(batch, row) if row.magic == 2 else self.take_messages(batch, row)
        if status == OK and row.last_offset >= self.start_offset:
            self.reached = min(row.last_offset, self.end_offset - 1)
        return status

    cdef bint is_aborted(self, const BatchRow* row) noexcept nogil:
        return row.magic >= 2 and row.attributes & TRANSACTIONAL_BIT and self.aborted.holds(row)

    cdef int take_records(self, const uint8_t* batch, const BatchRow* row) noexcept nogil:
        cdef Cursor c
        cdef Fields f
        cdef int64_t i
        cdef int64_t offset
        cdef int64_t before = added(row.base_offset, -1)
        cdef int status
        cdef const uint8_t* start
        c.p = batch + V2_RECORDS_AT
        c.end = batch + row.size
        self.live.begin_batch(row.base_offset)
        for i in range(row.count):
            start = c.p
            status = next_record(&c, &f)
            if status != OK:
                return self.damaged(status, start - batch, i)
            offset = added(row.base_offset, f.offset_delta)
            if offset <= before or offset > row.last_offset:
                self.live.in_order = False
            before = offset
            if f.value_size < 0 or f.key_size < 0:
                self.note_odd(offset, f.key_size < 0)
            if f.key_size >= 0 and not self.wait(f.key, f.key_size, offset):
                return MAP_IS_FULL
            self.messages_read += 1
        self.live.end_batch(row.last_offset)
        return OK if c.p == c.end else self.damaged(ERR_COUNT_LOW, c.p - batch, row.count)

    cdef int take_messages(self, const uint8_t* batch, const BatchRow* row) noexcept nogil:
        """The messages of a v0 or v1 set."""
        cdef Cursor c
        cdef Message m
        cdef int status
        cdef int64_t i = 0
        cdef const uint8_t* start
        c.p = batch
        c.end = batch + row.size
        while True:
            start = c.p
            status = next_message(&c, &m)
            if status == SET_ENDS:
                return OK
            if status != OK:
                return self.damaged(status, start - batch, i)
            self.live.begin_batch(m.offset)
            self.live.end_batch(m.offset)
            if m.value_size < 0 or m.key_size < 0:
                self.note_odd(m.offset, m.key_size < 0)
            if m.key_size >= 0 and not self.wait(m.key, m.key_size, m.offset):
                return MAP_IS_FULL
            self.messages_read += 1
            i += 1

    cdef void note_odd(self, int64_t offset, bint has_no_key) noexcept nogil:
        """A record without a key or a value."""
        self.unusual += has_no_key
        self.live.mark_odd(offset)

    cdef int damaged(self, int status, int64_t position, int64_t record) noexcept nogil:
        """Notes where in its batch a record is not sound; the position is made one of the chunk later."""
        self.error_position = position
        self.error_record = record
        return status

    cdef bint wait(self, const uint8_t* key, Py_ssize_t size, int64_t offset) noexcept nogil:
        """Lets a key wait for its group; False when the group did not fit into the map."""
        if offset < self.start_offset or offset >= self.end_offset:
            return True
        self.waiting[self.waits] = KeyOffset(key, size, offset)
        self.read_before[self.waits] = self.messages_read
        self.batches_before[self.waits] = self.reached
        self.waits += 1
        return self.waits < KEY_GROUP or self.put_waiting()

    cdef bint put_waiting(self) noexcept nogil:
        cdef Py_ssize_t count = self.waits
        cdef Py_ssize_t done = self.offset_map.put_many(self.waiting, count, self.most)
        self.waits = 0
        if done == count:
            return True
        self.is_full = True
        self.messages_read = self.read_before[done]
        self.reached = self.batches_before[done]
        return False

    cdef void settle(self) noexcept nogil:
        """Puts what waits, since its bytes go, and says how far the map reaches: CLN-46, and batches without keys."""
        self.put_waiting()
        if self.reached > self.offset_map.latest_offset:
            self.offset_map.latest_offset = self.reached
