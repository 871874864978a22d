"""A cleaner's choice for plain batches and each of their records (CLN-6 to CLN-22).

Rows are gone over in windows: every record is looked at once, and those that the offset map decides about are asked
for in groups.
"""
cimport cython
from libc.stdlib cimport free, malloc, realloc

from kafkalog._core.batch.batch_range cimport ERR_BATCH_RANGE, ends_below_base
from kafkalog._core.batch.check cimport BatchRow, place_of
from kafkalog._core.batch.fields cimport Fields, take_record, take_small_record
from kafkalog._core.batch.layout cimport (
    CODEC_MASK, CONTROL_BIT, DELETE_HORIZON_BIT, ERR_COMPRESSED, ERR_COUNT_HIGH, ERR_COUNT_LOW, ERR_COUNT_NEGATIVE,
    ERR_MAGIC, ERR_MEMORY, ERR_SHORT, MIN_RECORD_BYTES, OK, TRANSACTIONAL_BIT, V2_RECORDS_AT,
)
from kafkalog._core.batch.legacy_message cimport Message, take_fields, take_frame
from kafkalog._core.bytes.cursor cimport Cursor
from kafkalog._core.bytes.wrap cimport added
from kafkalog._core.clean.cleaned_txns cimport TXN_MAY_GO, TXN_NO_MEMORY, CleanedTxns
from kafkalog._core.clean.kept_batch cimport KEEP, NO_VALUE

STATUS_MARKER = ERR_MARKER


@cython.final
@cython.no_gc_clear                 # clearing would leave nothing where methods expect something
cdef class Retention:
    """The rules of one clean, and its choices for the rows last looked at.

    Records above the map's latest offset stay, those of aborted transactions go; of the others the latest of each key
    stays, as long as it has a value or deletes are still held. `now_ms` is the time of the whole clean,
    `upper_bound_offset` where it ends: the batch before that is kept even without records (CLN-12). What `live` covers
    the map is not asked for. Threads: one.
    """

    def __cinit__(
        self, SkimpyOffsetMap offset_map not None, CleanedTxns transactions not None, *, int64_t now_ms,
        int64_t delete_retention_ms, int64_t upper_bound_offset, LiveOffsets live=None,
    ):
        self.window = <Window*>malloc(sizeof(Window))
        if self.window == NULL:
            raise MemoryError
        self.map = offset_map
        self.live = LiveOffsets() if live is None else live
        self.reached = -1
        self.transactions = transactions
        self.now_ms = now_ms
        self.delete_retention_ms = delete_retention_ms
        self.upper_bound_offset = upper_bound_offset
        self.last_records = LastRecords()
        self.retain_legacy_deletes = True

    def __dealloc__(self):
        free(self.window)
        free(self.flags)

    @cython.critical_section
    def begin_segment(self, bint retain_legacy_deletes, LastRecords last_records not None) -> None:
        """The segment's age says whether its v0 and v1 tombstones stay; `last_records` are those of now (CLN-8, CLN-11)."""
        if self.busy:
            raise ValueError("a chunk is being filtered")
        self.retain_legacy_deletes = retain_legacy_deletes
        self.last_records = last_records

    @cython.critical_section
    def drops(self, int64_t first_offset, int64_t last_offset) -> bool:
        """True where nothing is left of the batches in [first_offset, last_offset], which are passed over then.

        For batches that `live` has, record by record: no transactions, no record without a key.
        """
        if not self.live.covers(first_offset, last_offset) or self.live.live_in(first_offset, last_offset) > 0:
            return False
        if first_offset < self.upper_bound_offset <= last_offset + 1 or first_offset <= self.reached:
            return False
        if self.last_records.any_in(first_offset, last_offset):
            return False
        self.reached = last_offset
        return True

    cdef int64_t new_horizon(self) noexcept nogil:
        """Until when a tombstone or marker that is met for the first time is held, ms (CLN-8, CLN-19)."""
        return added(self.now_ms, self.delete_retention_ms)

    cdef int decide(self, const uint8_t* data, int64_t length, const BatchRow* rows, Py_ssize_t count) noexcept nogil:
        """Makes choices for the first of `count` rows in the `length` bytes at `data`: `decided` says for how many."""
        cdef int status
        self.flag_count = 0
        self.key_count = 0
        self.decided = 0
        while self.decided < count and self.decided < WINDOW_ROWS and self.flag_count < WINDOW_RECORDS:
            self.error_record = 0
            status = self.choose(data, length, &rows[self.decided], self.decided)
            if status != OK:
                return status
            self.decided += 1
        self.ask()
        return OK

    cdef int choose(self, const uint8_t* data, int64_t length, const BatchRow* row, Py_ssize_t number) noexcept nogil:
        """Return the fate of one row as far as it does not depend on the map (CLN-7 to CLN-19)."""
        cdef Choice* choice = &self.window.choices[number]
        cdef int64_t at = place_of(row, 0, length)
        cdef bint is_control = row.magic >= 2 and row.attributes & CONTROL_BIT
        cdef bint has_horizon = row.magic >= 2 and row.attributes & DELETE_HORIZON_BIT
        cdef bint goes
        cdef int64_t kept
        cdef int step
        if at < 0 or row.magic < 0 or row.magic > 2 or row.magic == 2 and row.size < V2_RECORDS_AT:
            return ERR_MAGIC
        if ends_below_base(row):
            self.error_record = -1
            return ERR_BATCH_RANGE
        self.is_told = self.was_told(row)
        kept = self.kept_by_header(row)
        if row.attributes & CODEC_MASK and row.count != 0 and (kept < 0 or row.attributes & TRANSACTIONAL_BIT):
            return ERR_COMPRESSED
        if is_control:
            step = self.transactions.on_control(data + at, row)
        else:
            step = self.transactions.on_batch(row)
        if step < 0:
            return ERR_MEMORY if step == TXN_NO_MEMORY else ERR_MARKER
        goes = step == TXN_MAY_GO
        choice.ends_empty_txn = goes and is_control
        if is_control:
            goes = goes and has_horizon and row.base_timestamp <= self.now_ms
        if self.last_records.holds(row) or added(row.last_offset, 1) == self.upper_bound_offset:
            choice.outcome = RETAIN_EMPTY
        else:
            choice.outcome = DELETE if goes else DELETE_EMPTY
        choice.total = choice.kept = 0
        choice.no_values = False
        choice.first_flag = self.flag_count
        if choice.outcome == DELETE:
            return OK
        if kept >= 0 and not goes:
            choice.total = row.count
            choice.kept = kept
            return OK
        if row.magic >= 2:
            choice.holds_deletes = not has_horizon or self.now_ms < row.base_timestamp
            return self.look_at_records(data + at, row, number, is_control, goes)
        choice.holds_deletes = self.retain_legacy_deletes
        return self.look_at_messages(data + at, row, number)

    cdef bint was_told(self, const BatchRow* row) noexcept nogil:
        """True for a batch all of whose records, where `live` covers them, were added to it in order.

        A batch in which the map became full reaches beyond; one that lies behind that point is not in order. One below
        all that was added lies before the place at which the map's pass began, which is what an index said.
        """
        cdef bint in_order = row.base_offset > self.reached
        if row.last_offset > self.reached:
            self.reached = row.last_offset
        return (
            in_order and self.live.first <= row.last_offset < self.live.end
            and self.live.told_from <= row.base_offset < self.live.end
            and not (row.magic >= 2 and row.attributes & TRANSACTIONAL_BIT and self.live.left_out)
        )

    cdef int64_t kept_by_header(self, const BatchRow* row) noexcept nogil:
        """Return the number of records that the map leaves of a batch, none or all; -1 where each has to be looked at.

        The offsets of a batch with a record for each were looked at when they were added to the map.
        """
        cdef int64_t kept
        if (
            not self.is_told or row.magic != 2 or row.attributes & CONTROL_BIT
            or not self.live.covers(row.base_offset, row.last_offset)
            or row.count != row.last_offset - row.base_offset + 1
        ):
            return -1
        kept = self.live.live_in(row.base_offset, row.last_offset)
        if kept != 0 and kept != row.count or self.live.has_odd(row.base_offset, row.last_offset):
            return -1
        return kept

    cdef int reserve_flags(self, int64_t count) noexcept nogil:
        cdef int64_t room = max(self.flag_count + count, 2 * self.flag_room)
        cdef uint8_t* grown
        if self.flag_count + count <= self.flag_room:
            return OK
        grown = <uint8_t*>realloc(self.flags, <size_t>room)
        if grown == NULL:
            return ERR_MEMORY
        self.flags = grown
        self.flag_room = room
        return OK

    cdef int look_at_records(
        self, const uint8_t* batch, const BatchRow* row, Py_ssize_t number, bint is_control, bint goes
    ) noexcept nogil:
        """Flags for the records of a v2 batch."""
        cdef int64_t latest = self.map.latest_offset
        cdef int64_t offset
        cdef int64_t i
        cdef int status
        cdef Cursor c
        cdef Fields f
        c.p = batch + V2_RECORDS_AT
        c.end = batch + row.size
        if row.count < 0 or row.count > (c.end - c.p) // MIN_RECORD_BYTES:
            return ERR_COUNT_NEGATIVE if row.count < 0 else ERR_COUNT_HIGH
        if self.reserve_flags(row.count) != OK:
            return ERR_MEMORY
        for i in range(row.count):
            if not take_small_record(&c, &f):
                status = take_record(&c, &f)
                if status != OK:
                    self.error_record = i
                    return status
            offset = added(row.base_offset, f.offset_delta)
            if goes:
                self.note(number, 0)
            elif is_control or offset > latest:
                self.note(number, KEEP if f.value_size >= 0 else KEEP | NO_VALUE)
            else:
                self.note_key(number, offset, f.key, f.key_size, f.value_size < 0)
        return OK if c.p == c.end or row.count == 0 else ERR_COUNT_LOW

    cdef int look_at_messages(self, const uint8_t* batch, const BatchRow* row, Py_ssize_t number) noexcept nogil:
        """Flags for v0 or v1 messages, one or what was in a wrapper; one that is cut off there ends it for readers too."""
        cdef int64_t latest = self.map.latest_offset
        cdef int status
        cdef Cursor c
        cdef Message m
        c.p = batch
        c.end = batch + row.size
        while c.p < c.end:
            status = take_frame(&c, &m)
            if status == ERR_SHORT:
                return OK
            if status == OK:
                status = take_fields(&m)
            if status == OK:
                status = self.reserve_flags(1)
            if status != OK:
                self.error_record = self.window.choices[number].total
                return status
            if m.offset > latest:
                self.note(number, KEEP if m.value_size >= 0 else KEEP | NO_VALUE)
            else:
                self.note_key(number, m.offset, m.key, m.key_size, m.value_size < 0)
        return OK

    cdef void note(self, Py_ssize_t number, int flag) noexcept nogil:
        """One more record of a batch, already decided."""
        cdef Choice* choice = &self.window.choices[number]
        self.flags[self.flag_count] = <uint8_t>flag
        self.flag_count += 1
        choice.total += 1
        if flag & KEEP:
            choice.kept += 1
            choice.no_values = choice.no_values or flag & NO_VALUE

    cdef void note_key(
        self, Py_ssize_t number, int64_t offset, const uint8_t* key, int32_t key_size, bint no_value
    ) noexcept nogil:
        """One more record, for which its key decides."""
        cdef KeyOffset* entry
        cdef Asker* asker
        if key_size < 0:
            self.invalid_messages += 1
            self.note(number, 0)
            return
        if self.is_told and self.live.covers(offset, offset):
            self.note(number, NO_VALUE if no_value else 0)
            if self.live.is_live(offset):
                self.keep(&self.window.choices[number], self.flag_count - 1)
            return
        if self.key_count == KEYS:
            self.ask()
        entry = &self.window.keys[self.key_count]
        asker = &self.window.askers[self.key_count]
        self.key_count += 1
        entry.key = key
        entry.size = key_size
        entry.offset = offset
        asker.flag = self.flag_count
        asker.choice = <int32_t>number
        self.note(number, NO_VALUE if no_value else 0)

    cdef void ask(self) noexcept nogil:
        """Decides about the keys gathered so far: the latest stays, without a value as long as deletes are held (CLN-7)."""
        cdef Asker* asker
        cdef Py_ssize_t i
        self.map.get_many(self.window.keys, self.key_count, self.window.found)
        for i in range(self.key_count):
            if self.window.keys[i].offset < self.window.found[i]:
                continue
            asker = &self.window.askers[i]
            self.keep(&self.window.choices[asker.choice], asker.flag)
        self.key_count = 0

    cdef void keep(self, Choice* choice, int64_t flag) noexcept nogil:
        """The record is the last one of its key."""
        if self.flags[flag] & NO_VALUE:
            if not choice.holds_deletes:
                return
            choice.no_values = True
        self.flags[flag] |= KEEP
        choice.kept += 1
