"""The records of many keys taken from batches, in the order of their offsets.

A batch is walked over once for all keys whose records it has, and only those records are read whole. They are copied
as their batches pass by, and become objects or columns in the order of the keys: what goes over those later then goes
over memory in its order.
"""
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from kafkalog._core.arrow.cells cimport Slice
from kafkalog._core.arrow.filling cimport take_head
from kafkalog._core.batch.check cimport BatchRow, place_of
from kafkalog._core.batch.copied cimport copied_rows
from kafkalog._core.batch.fields cimport HEAD_BYTES, Fields, take_record, take_small_record
from kafkalog._core.batch.layout cimport OK, TIMESTAMP_TYPE_BIT, V2_RECORDS_AT
from kafkalog._core.batch.pick cimport timestamp_of
from kafkalog._core.batch.record cimport Record, lone_record, record_of
from kafkalog._core.batch.record_walk cimport check_plain, check_rows
from kafkalog._core.batch.scan cimport BatchTable
from kafkalog._core.bytes.buffers cimport Held, hold
from kafkalog._core.bytes.cursor cimport Cursor, kl_head, kl_short, kl_step
from kafkalog._core.bytes.large_pages cimport kl_want_huge
from kafkalog._core.bytes.prefetch cimport kl_prefetch, kl_prefetch_to_write
from kafkalog._core.bytes.wrap cimport added

from kafkalog._core.batch.decode import STATUS_TEXT, decode

cdef enum:
    NO_HEAD = 1 << 16
    MOST_DIGIT_BITS = 12            # two passes for the offsets of a segment of ten million records
    MOST_DIGITS = 1 << MOST_DIGIT_BITS
    FEW_DIGIT_BITS = 8              # for few offsets, for which the counts of the digits would take longer
    FIRST_ROOM = 64 << 10
    LEAST_TO_EXPECT = 256           # keys that were looked at
    MOST_EXPECTED = 256 << 20
    FETCHED_AHEAD = 768             # bytes between a record that is read and what is then on its way into the cache
    LEAST_IN_PARTS = 8 << 20        # bytes of copies that would not stay in the cache until they are used
    EARLY_COPY = 128                # bytes between a copy and the line that is then on its way for one of the next


cdef bint sort_by_offset(Wanted** wanted, Py_ssize_t count, int64_t least, int64_t most) noexcept nogil:
    """Sort by offset, of which `least` and `most` are the limits; what has one offset stays in order. False: no memory."""
    cdef Wanted* from_ = wanted[0]
    cdef Wanted* into = <Wanted*>malloc(<size_t>max(count, 1) * sizeof(Wanted))
    cdef Py_ssize_t starts[MOST_DIGITS]
    cdef Py_ssize_t i, before, own
    cdef int shift = 0
    cdef int bits = 0
    cdef int width = 0
    cdef int most_bits = MOST_DIGIT_BITS if count >= MOST_DIGITS else FEW_DIGIT_BITS
    cdef int passes
    if into == NULL:
        return False
    kl_want_huge(into, <size_t>count * sizeof(Wanted))
    while bits < 63 and most > least and (most - least) >> bits > 0:
        bits += 1
    passes = (bits + most_bits - 1) // most_bits
    if passes > 0:
        width = (bits + passes - 1) // passes
    while shift < bits:
        memset(starts, 0, sizeof(Py_ssize_t) << width)
        for i in range(count):
            starts[((from_[i].offset - least) >> shift) & ((1 << width) - 1)] += 1
        before = 0
        for i in range(1 << width):
            own = starts[i]
            starts[i] = before
            before += own
        for i in range(count):
            own = ((from_[i].offset - least) >> shift) & ((1 << width) - 1)
            into[starts[own]] = from_[i]
            starts[own] += 1
        from_, into = into, from_
        shift += width
    free(into)
    wanted[0] = from_
    return True


cpdef Record own_record(Record record):
    """Return a copy of the record, so that few records do not keep whole chunks in memory; not for format v0."""
    cdef RecordTable table = record.table
    cdef int64_t row = record.row
    if table is None or table.view.len <= table.places[row].record_size:
        return record
    cdef RecordTable own = copied_rows(table, &row, 1)
    if own is not None:
        return record_of(own, 0)
    if table.batch_row(row).magic != 1 or table.places[row].key_size < -1 or table.places[row].value_size < -1:
        return record
    kind = table.timestamp_type(row)
    return lone_record(table.key_at(row), table.value_at(row), record.offset, record.timestamp, kind == 1, -1)


cdef class KeyPicker:
    """Copies of the records at the offsets (int64, below `start_offset`: none) of the `keys`, for a class that uses them.

    Batches are given with rising offsets. `missed` has the numbers of the keys that no batch had, and after `finish` of
    those whose record has another key; `absent` counts the keys without an offset. One thread. MemoryError.
    """

    def __cinit__(self, GivenKeys keys not None, offsets, int64_t start_offset, *args):
        cdef Held given = hold(offsets)
        cdef const int64_t* found = <const int64_t*>given.data
        cdef int64_t most = -1
        cdef int64_t least = 0x7FFFFFFFFFFFFFFF
        cdef Py_ssize_t i
        if given.size != 8 * keys.count:
            raise ValueError(f"{given.size} bytes of offsets for {keys.count} keys")
        self.keys = keys
        self.error_batch = self.error_position = self.error_record = -1
        self.wanted = <Wanted*>malloc(<size_t>max(keys.count, 1) * sizeof(Wanted))
        self.places = <int64_t*>malloc(<size_t>max(keys.count, 1) * sizeof(int64_t))
        if self.wanted == NULL or self.places == NULL:
            raise MemoryError("no memory for the keys to read")
        kl_want_huge(self.wanted, <size_t>keys.count * sizeof(Wanted))
        kl_want_huge(self.places, <size_t>keys.count * sizeof(int64_t))
        memset(self.places, 0, <size_t>keys.count * sizeof(int64_t))
        for i in range(keys.count):
            if found[i] >= 0 and found[i] >= start_offset:
                self.wanted[self.count] = Wanted(found[i], i)
                self.count += 1
                least, most = min(least, found[i]), max(most, found[i])
        self.absent = keys.count - self.count
        if not sort_by_offset(&self.wanted, self.count, least, most):
            raise MemoryError("no memory for the keys to read")

    def __dealloc__(self):
        free(self.wanted)
        free(self.places)
        free(self.copies)
        free(self.parts)

    @property
    def offset(self) -> int:
        """The next offset wanted; -1 at the end."""
        cdef Py_ssize_t at = self.at
        return self.wanted[at].offset if at < self.count else -1

    @property
    @cython.critical_section
    def missed(self) -> list[int]:
        """The numbers of the keys whose record was not where it was looked for, rising."""
        cdef Py_ssize_t i
        return [i for i in range(self.keys.count) if self.places[i] == MISSED]

    @property
    @cython.critical_section
    def without(self) -> list[int]:
        """The numbers of the keys that have no record so far, rising."""
        cdef Py_ssize_t i
        return [i for i in range(self.keys.count) if self.places[i] == MISSED or self.places[i] == NOTHING_THERE]

    @property
    def error_text(self) -> str:
        return STATUS_TEXT[self.status]

    def is_near(self, int64_t distance) -> bool:
        """True if another offset is wanted within `distance` of the next one."""
        cdef Py_ssize_t at = self.at
        cdef Py_ssize_t i = at + 1
        while i < self.count and self.wanted[i].offset == self.wanted[at].offset:
            i += 1
        return i < self.count and self.wanted[i].offset - self.wanted[at].offset <= distance

    def run_end(self, int64_t distance) -> int:
        """The offset after the last one wanted of those that each lie within `distance` of the one before."""
        cdef Py_ssize_t i = self.at
        if i >= self.count:
            return -1
        while i + 1 < self.count and self.wanted[i + 1].offset - self.wanted[i].offset <= distance:
            i += 1
        return self.wanted[i].offset + 1

    @cython.critical_section
    def take(
        self, buf, BatchTable batches not None, Py_ssize_t first, Py_ssize_t last, int64_t base_position=0
    ) -> bool:
        """Takes what is wanted of rows `first` up to `last` of a batch table made from this very buffer; all are plain.

        Wanted offsets below a batch's last one that no batch has are missed; a batch of which nothing is wanted is not
        looked into. False where `status` says what is damaged, as in a RecordTable.
        """
        cdef Held held = hold(buf)
        cdef Py_ssize_t i = first
        cdef Py_ssize_t old
        cdef int64_t at = 0
        cdef int status = OK
        check_alone(self)
        check_rows(batches, first, last, base_position, held.size)
        self.busy = True
        try:
            while i < last and self.at < self.count:
                with nogil:
                    while i < last:
                        at = place_of(&batches.rows[i], base_position, held.size)
                        status = self.take_batch(held.data + at, &batches.rows[i])
                        if status != OK:
                            break
                        i += 1
                if status == STATUS_FULL:
                    self.make_room()
                elif status == STATUS_OLD:
                    old = i
                    while i < last and batches.rows[i].magic < 2:
                        i += 1
                    if not self.take_old(buf, batches, old, i, base_position):
                        return False
                elif status != OK:
                    self.status, self.error_batch = status, i
                    self.error_position += at
                    return False
        finally:
            self.busy = False
        return True

    cdef int take_old(self, object buf, object batches, Py_ssize_t first, Py_ssize_t last, int64_t position) except -1:
        """As `take`, for batches of old formats."""
        cdef RecordTable table = decode(buf, batches, first, last, base_position=position)
        self.take_table(table)
        self.status, self.error_batch = table.status, table.error_batch
        self.error_position, self.error_record = table.error_position, table.error_record
        return table.status == OK

    cdef int take_batch(self, const uint8_t* batch, const BatchRow* row) noexcept nogil:
        """OK, what is wrong with the batch, or why it is not for this pass."""
        cdef Cursor c
        cdef Fields f
        cdef int64_t i, offset
        cdef int status
        cdef const uint8_t* start
        if row.magic < 2:
            return STATUS_OLD if self.at < self.count else OK
        if self.at >= self.count or self.wanted[self.at].offset > row.last_offset:
            return OK
        self.error_position, self.error_record = 0, 0
        status = check_plain(row)
        if status != OK:
            return status
        if row.last_offset - row.base_offset == <int64_t>row.count - 1:
            status = self.hop(batch, row)
            if status != OK or self.at >= self.count or self.wanted[self.at].offset > row.last_offset:
                return status
        c.p = batch + V2_RECORDS_AT
        c.end = batch + row.size
        for i in range(row.count):
            if self.at >= self.count or self.wanted[self.at].offset > row.last_offset:
                return OK
            start = c.p
            kl_prefetch(start + FETCHED_AHEAD)
            status = take_head(&c, &f)
            if status == OK:
                offset = added(row.base_offset, f.offset_delta)
                if offset < self.wanted[self.at].offset:
                    continue
                self.miss(offset)
                if self.at >= self.count or self.wanted[self.at].offset != offset:
                    continue
                c.p = start
                status = take_record(&c, &f)
                if status == OK:
                    status = self.take_wanted(start, row, &f, offset)
            if status != OK:
                self.error_position, self.error_record = start - batch, i
                return status
        self.miss(added(row.last_offset, 1))
        return OK

    cdef int hop(self, const uint8_t* batch, const BatchRow* row) noexcept nogil:
        """Take what is wanted of a batch without gaps, by the lengths of the records before; STATUS_FULL, or OK.

        It stops at what is not as it should be, which the careful way then meets.
        """
        cdef const uint8_t* p = batch + V2_RECORDS_AT
        cdef const uint8_t* end = batch + row.size
        cdef const uint8_t* start
        cdef int64_t i = 0
        cdef int64_t delta
        cdef uint32_t head
        cdef uint32_t last_head = NO_HEAD
        cdef int64_t step = 0
        cdef uint32_t size
        cdef Cursor c
        cdef Fields f
        cdef int status
        while self.at < self.count and self.wanted[self.at].offset <= row.last_offset:
            delta = self.wanted[self.at].offset - row.base_offset
            while i < delta and end - p >= HEAD_BYTES:
                kl_prefetch(p + FETCHED_AHEAD)
                head = kl_head(p)
                if head == last_head and step <= end - p:
                    p = kl_step(p, step)
                    i += 1
                    continue
                start = p
                size = kl_short(&p)
                if size & 1 or size >> 1 > <uint64_t>(end - p):
                    return OK
                p += size >> 1
                i += 1
                last_head, step = head, p - start
            if i != delta:
                return OK
            c.p, c.end = p, end
            if not take_small_record(&c, &f) and take_record(&c, &f) != OK or f.offset_delta != delta:
                return OK
            status = self.take_wanted(p, row, &f, self.wanted[self.at].offset)
            if status != OK:
                return status
        return OK

    cdef int take_wanted(self, const uint8_t* start, const BatchRow* row, const Fields* f, int64_t offset) noexcept nogil:
        """Copy a record for each key that wants it; STATUS_FULL, at one of them, without room."""
        cdef bint whole = f.header_count != 0
        cdef int64_t size = f.end - start if whole else f.value_size
        cdef int64_t number
        cdef Copied* made
        while self.at < self.count and self.wanted[self.at].offset == offset:
            number = self.wanted[self.at].number
            if self.at + AHEAD < self.count:
                kl_prefetch(&self.places[self.wanted[self.at + AHEAD].number])
            if f.key_size < 0:
                self.places[number] = MISSED
                self.at += 1
                continue
            made = self.copy(number, size + <int64_t>sizeof(BatchRow) if whole else max(size, 0) + f.key_size)
            if made == NULL:
                return STATUS_FULL
            made.offset, made.timestamp = offset, timestamp_of(row, f)
            made.size, made.key_size, made.epoch, made.whole = <int32_t>size, f.key_size, row.leader_epoch, whole
            made.kind = row.attributes & TIMESTAMP_TYPE_BIT != 0
            if whole:
                memcpy(made + 1, row, sizeof(BatchRow))
                memcpy(<uint8_t*>(made + 1) + sizeof(BatchRow), start, <size_t>size)
            else:
                if size > 0:
                    memcpy(made + 1, f.value, <size_t>size)
                memcpy(<uint8_t*>(made + 1) + max(size, 0), f.key, <size_t>f.key_size)
            self.at += 1
        return OK

    cdef bint is_key(self, int64_t number, const uint8_t* key, int64_t size) noexcept nogil:
        cdef const Slice* given = &self.keys.slices[number]
        return given.size == size and memcmp(given.data, key, <size_t>size) == 0

    cdef bint has_key(self, int64_t number, const Copied* copied) noexcept nogil:
        """True if the copy is of a record with this key. Copies have their keys, which are compared last, in their order."""
        cdef const uint8_t* data = <const uint8_t*>(copied + 1)
        cdef Cursor c
        cdef Fields f
        if copied.key_size == COMPARED:
            return True
        if not copied.whole:
            return self.is_key(number, data + max(copied.size, 0), copied.key_size)
        c.p = data + sizeof(BatchRow)
        c.end = c.p + copied.size
        return take_record(&c, &f) == OK and self.is_key(number, f.key, f.key_size)

    cdef Copied* copy(self, int64_t number, int64_t size) noexcept nogil:
        """The place of the copy for a key, with `size` bytes behind it; NULL without room."""
        cdef int64_t at = self.tail
        cdef int64_t part = number >> PART_BITS
        size = (size + <int64_t>sizeof(Copied) + 7) & ~7
        if self.parts != NULL and self.parts[part] + size <= self.parts_at + (part + 1) * self.part_bytes:
            at = self.parts[part]
            self.parts[part] = at + size
            kl_prefetch_to_write(self.copies + at + size + EARLY_COPY)
            kl_prefetch_to_write(self.copies + at + size + EARLY_COPY + LINE_BYTES)
        elif at + size > self.room:
            self.wanted_room = at + size
            return NULL
        else:
            self.tail = at + size
        self.places[number] = at + 1
        self.copied_bytes += size
        return <Copied*>(self.copies + at)

    cdef int miss(self, int64_t below) noexcept nogil:
        """Mark the wanted offsets below `below` as missing."""
        while self.at < self.count and self.wanted[self.at].offset < below:
            self.places[self.wanted[self.at].number] = MISSED
            self.at += 1
        return 0

    cdef int take_table(self, RecordTable table) except -1:
        cdef Py_ssize_t row
        cdef int64_t number
        for row in range(table.count):
            self.miss(table.offset_column[row])
            while self.at < self.count and self.wanted[self.at].offset == table.offset_column[row]:
                number = self.wanted[self.at].number
                self.at += 1
                if self.is_key(number, table.data + table.places[row].key_at, table.places[row].key_size):
                    self.take_row(table, row, number)
                else:
                    self.places[number] = MISSED
        return 0

    cdef int make_room(self) except -1:
        """Make room for the copy that found none."""
        cdef int64_t expected = self.expected_room() if self.parts == NULL else 0
        cdef int64_t room
        if expected >= LEAST_IN_PARTS:
            return self.make_parts(expected)
        room = max(self.room + max(self.room - self.tail_at, <int64_t>FIRST_ROOM), self.wanted_room, expected)
        return self.grow(room)

    cdef int make_parts(self, int64_t expected) except -1:
        """Make room for the other copies, in parts that each have the copies for keys that follow each other.

        What is read in the order of the keys then comes from one part after the other, each of which fits into a cache.
        """
        cdef int64_t* parts
        cdef int64_t count = (self.keys.count >> PART_BITS) + 1
        cdef int64_t size = min(expected, (expected << PART_BITS) // self.keys.count)
        cdef int64_t first = self.room
        size = (size + LINE_BYTES) // LINE_BYTES * LINE_BYTES
        parts = <int64_t*>malloc(<size_t>count * sizeof(int64_t))
        if parts == NULL:
            raise MemoryError("no memory for copies of records")
        try:
            self.grow(first + count * size + FIRST_ROOM)
        except MemoryError:
            free(parts)
            raise
        self.parts, self.parts_at, self.part_bytes = parts, first, size
        self.tail_at = first + count * size
        self.empty_parts()
        return 0

    cdef void empty_parts(self) noexcept nogil:
        """Let copies begin again at the start of each part, and behind them."""
        cdef int64_t i
        self.tail = self.tail_at
        if self.parts != NULL:
            for i in range((self.keys.count >> PART_BITS) + 1):
                self.parts[i] = self.parts_at + i * self.part_bytes

    cdef int grow(self, int64_t room) except -1:
        cdef void* copies = realloc(self.copies, <size_t>room)
        if copies == NULL:
            raise MemoryError("no memory for copies of records")
        kl_want_huge(copies, <size_t>room)
        self.copies = <uint8_t*>copies
        self.room = room
        return 0

    cdef int64_t expected_room(self) noexcept nogil:
        """The room for all copies if the others are as large as those there are; 0 for too few to tell."""
        cdef double size
        if self.at < LEAST_TO_EXPECT:
            return 0
        size = 1.05 * <double>self.copied_bytes * <double>self.count / <double>self.at
        return <int64_t>min(size, <double>MOST_EXPECTED)

    cdef int take_row(self, RecordTable table, Py_ssize_t row, int64_t number) except -1:
        """Take a record of an old format."""
        raise NotImplementedError

    cdef int put(self, int64_t number, Record record) except -1:
        raise NotImplementedError

    @cython.critical_section
    def give(self, Py_ssize_t number, Record record) -> None:
        """Takes a record, or None, for a key that was missed or is absent."""
        if not 0 <= number < self.keys.count:
            raise IndexError(f"key {number} of {self.keys.count}")
        check_alone(self)
        self.places[number] = NOTHING_THERE
        if record is not None:
            self.put(number, record)

    @cython.critical_section
    def take_one(self, Record record) -> None:
        """Takes a record, or None, for the next offset wanted, whichever keys want it."""
        cdef int64_t offset = self.offset
        cdef int64_t number
        check_alone(self)
        while self.at < self.count and self.wanted[self.at].offset == offset:
            number = self.wanted[self.at].number
            self.at += 1
            if record is not None and record.key == self.keys.at(number):
                self.put(number, record)
            else:
                self.places[number] = MISSED

    @cython.critical_section
    def pass_over(self, int64_t stop) -> None:
        """Misses what is wanted below `stop` and was not found."""
        check_alone(self)
        self.miss(stop)

    def __len__(self) -> int:
        return self.keys.count
