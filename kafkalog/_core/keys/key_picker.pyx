"""The records of many keys taken from tables of records, in the order of their offsets.

Records are copied as their tables pass by, and become objects in the order of the keys: a loop over the list then
goes over memory in its order.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from kafkalog._core.batch.check cimport BatchRow
from kafkalog._core.batch.copied cimport copied_rows
from kafkalog._core.batch.decode cimport RecordPlace, RecordTable
from kafkalog._core.batch.layout cimport TIMESTAMP_TYPE_BIT
from kafkalog._core.batch.record cimport Record, lone_record, record_of
from kafkalog._core.bytes.buffers cimport Held, hold
from kafkalog._core.keys.key_walk import are_bytes

cdef extern from *:
    """
    #define kl_prefetch_wanted(p) __builtin_prefetch(p)
    """
    void kl_prefetch_wanted(const void* p) noexcept nogil

cdef extern from "Python.h":
    int PyGC_Disable()
    int PyGC_Enable()

cdef enum:
    AHEAD = 16                      # keys whose copies are asked for so early
    LINE_BYTES = 64
    DIGIT_BITS = 11
    DIGITS = 1 << DIGIT_BITS
    SMALL_RECORD = 1024             # bytes, at most, of key and value that are copied
    FIRST_ROOM = 64 << 10
    MOST_COPIES = 128 << 20         # bytes of copies, which are then made records

cdef struct Wanted:
    int64_t offset
    int64_t number                  # of the key

cdef struct Copied:                 # the bytes of key and value follow, up to a multiple of eight
    int64_t offset
    int64_t timestamp
    int32_t key_size
    int32_t value_size              # -1 is null
    int32_t epoch
    int32_t appended


cdef bint sort_by_offset(Wanted** wanted, Py_ssize_t count, int64_t least, int64_t most) noexcept nogil:
    """Sort by offset, of which `least` and `most` are the limits; what has one offset stays in order. False: no memory."""
    cdef Wanted* from_ = wanted[0]
    cdef Wanted* into = <Wanted*>malloc(<size_t>count * sizeof(Wanted))
    cdef Py_ssize_t starts[DIGITS]
    cdef Py_ssize_t i, before, own
    cdef int shift = 0
    if into == NULL:
        return False
    while most > least and (most - least) >> shift > 0 and shift < 64:
        memset(starts, 0, sizeof(starts))
        for i in range(count):
            starts[((from_[i].offset - least) >> shift) & (DIGITS - 1)] += 1
        before = 0
        for i in range(DIGITS):
            own = starts[i]
            starts[i] = before
            before += own
        for i in range(count):
            own = ((from_[i].offset - least) >> shift) & (DIGITS - 1)
            into[starts[own]] = from_[i]
            starts[own] += 1
        from_, into = into, from_
        shift += DIGIT_BITS
    free(into)
    wanted[0] = from_
    return True


@cython.final
cdef class KeyPicker:
    """Fills `records` with those at the offsets (int64, below `start_offset`: none) of the `keys`, bytes objects.

    Tables are given with rising offsets; `finish` comes last. A record with another key than the one wanted is not
    taken: `missed` has the numbers of such keys, and of those that no table had; `absent` counts the keys without an
    offset. Copies take up to about `most_bytes`, then they become records before the end. One thread. MemoryError.
    """

    cdef list keys
    cdef Wanted* wanted
    cdef Py_ssize_t count
    cdef Py_ssize_t at
    cdef readonly list records
    cdef readonly list missed
    cdef readonly Py_ssize_t absent
    cdef uint8_t* copies
    cdef int64_t copied_bytes
    cdef int64_t room
    cdef int64_t most_bytes
    cdef int64_t* places            # of the copy for each key, counted from one

    def __cinit__(self, list keys not None, offsets, int64_t start_offset, int64_t most_bytes=MOST_COPIES):
        cdef Held given = hold(offsets)
        cdef const int64_t* found = <const int64_t*>given.data
        cdef int64_t most = -1
        cdef int64_t least = 0x7FFFFFFFFFFFFFFF
        cdef Py_ssize_t i
        if given.size != 8 * len(keys):
            raise ValueError(f"{given.size} bytes of offsets for {len(keys)} keys")
        self.keys = keys[:]             # nobody else changes this one
        if not are_bytes(self.keys) or len(self.keys) * 8 != given.size:
            raise TypeError("a key is no bytes object")
        self.most_bytes = most_bytes
        self.records = [None] * len(keys)
        self.missed = []
        self.wanted = <Wanted*>malloc(<size_t>max(len(keys), 1) * sizeof(Wanted))
        self.places = <int64_t*>malloc(<size_t>max(len(keys), 1) * sizeof(int64_t))
        if self.wanted == NULL or self.places == NULL:
            raise MemoryError("no memory for the keys to read")
        memset(self.places, 0, <size_t>len(keys) * sizeof(int64_t))
        for i in range(len(keys)):
            if found[i] >= 0 and found[i] >= start_offset:
                self.wanted[self.count] = Wanted(found[i], i)
                self.count += 1
                least, most = min(least, found[i]), max(most, found[i])
        self.absent = len(keys) - self.count
        if not sort_by_offset(&self.wanted, self.count, least, most):
            raise MemoryError("no memory for the keys to read")

    def __dealloc__(self):
        free(self.wanted)
        free(self.places)
        free(self.copies)

    @property
    def offset(self) -> int:
        """The next offset wanted; -1 at the end."""
        return self.wanted[self.at].offset if self.at < self.count else -1

    def is_near(self, int64_t distance) -> bool:
        """True if another offset is wanted within `distance` of the next one."""
        cdef Py_ssize_t i = self.at + 1
        while i < self.count and self.wanted[i].offset == self.wanted[self.at].offset:
            i += 1
        return i < self.count and self.wanted[i].offset - self.wanted[self.at].offset <= distance

    def run_end(self, int64_t distance) -> int:
        """The offset after the last one wanted of those that each lie within `distance` of the one before."""
        cdef Py_ssize_t i = self.at
        if i >= self.count:
            return -1
        while i + 1 < self.count and self.wanted[i + 1].offset - self.wanted[i].offset <= distance:
            i += 1
        return self.wanted[i].offset + 1

    def take(self, RecordTable table not None) -> None:
        """Takes what is wanted of a table; offsets below its last one that it does not have are missed."""
        cdef Py_ssize_t row = 0
        cdef Py_ssize_t low, high, middle
        cdef Wanted* wanted
        while self.at < self.count:
            wanted = &self.wanted[self.at]
            low, high = row, table.count
            middle = row + 64
            if middle < high and table.offset_column[middle] >= wanted.offset:
                high = middle
            while low < high:
                middle = (low + high) >> 1
                if table.offset_column[middle] < wanted.offset:
                    low = middle + 1
                else:
                    high = middle
            row = low
            if row == table.count:
                break
            self.at += 1
            if table.offset_column[row] != wanted.offset:
                self.missed.append(wanted.number)
            elif not self.copy(table, row, wanted.number):
                self.take_row(table, row, wanted.number)

    cdef bint copy(self, RecordTable table, Py_ssize_t row, int64_t number) except -1:
        """Copy a record; False for one that is large, has headers or is of an old format."""
        cdef const RecordPlace* place = &table.places[row]
        cdef const BatchRow* batch = table.batch_row(row)
        cdef int64_t size = place.key_size + max(place.value_size, 0)
        cdef Copied* made
        if place.header_count or place.key_size < 0 or place.value_size < -1 or size > SMALL_RECORD or batch.magic < 2:
            return False
        size = (size + sizeof(Copied) + 7) & ~7
        if self.copied_bytes + size > self.room:
            self.make_room()
        made = <Copied*>(self.copies + self.copied_bytes)
        made.offset, made.timestamp = table.offset_column[row], table.timestamp_column[row]
        made.key_size, made.value_size = place.key_size, place.value_size
        made.epoch, made.appended = batch.leader_epoch, batch.attributes & TIMESTAMP_TYPE_BIT != 0
        memcpy(made + 1, table.data + place.key_at, <size_t>place.key_size)
        if place.value_size > 0:
            memcpy(<uint8_t*>(made + 1) + place.key_size, table.data + place.value_at, <size_t>place.value_size)
        self.places[number] = self.copied_bytes + 1
        self.copied_bytes += size
        return True

    cdef int make_room(self) except -1:
        cdef int64_t wanted = max(2 * self.room, <int64_t>FIRST_ROOM)
        cdef void* copies
        if self.room >= self.most_bytes > 0 and self.copied_bytes > 0:
            self.finish()
            return 0
        copies = realloc(self.copies, <size_t>wanted)
        if copies == NULL:
            raise MemoryError("no memory for copies of records")
        self.copies = <uint8_t*>copies
        self.room = wanted
        return 0

    cdef int take_row(self, RecordTable table, Py_ssize_t row, int64_t number) except -1:
        """Take a record with a table of its own, lest a few records keep all chunks of the log in memory."""
        cdef RecordPlace* place = &table.places[row]
        cdef bytes key = self.keys[number]
        cdef RecordTable own
        cdef int64_t at = row
        if place.key_size != PyBytes_GET_SIZE(key) or memcmp(
            table.data + place.key_at, PyBytes_AS_STRING(key), <size_t>place.key_size
        ) != 0:
            self.missed.append(number)
            return 0
        own = copied_rows(table, &at, 1)
        self.records[number] = record_of(table, row) if own is None else record_of(own, 0)
        return 0

    def finish(self) -> None:
        """Make the records of the copies, without the garbage collector, which would look at all keys again and again."""
        cdef bint collects
        if self.copied_bytes == 0:
            return
        collects = PyGC_Disable()
        try:
            self.make_all()
        finally:
            if collects:
                PyGC_Enable()
        self.copied_bytes = 0

    cdef int make_all(self) except -1:
        cdef Py_ssize_t i
        cdef Py_ssize_t count = len(self.keys)
        for i in range(count):
            if i + AHEAD < count and self.places[i + AHEAD] != 0:
                kl_prefetch_wanted(self.copies + self.places[i + AHEAD] - 1)
                kl_prefetch_wanted(self.copies + self.places[i + AHEAD] - 1 + LINE_BYTES)
            if self.places[i] != 0:
                self.make(i, <const Copied*>(self.copies + self.places[i] - 1))
                self.places[i] = 0
        return 0

    cdef int make(self, Py_ssize_t number, const Copied* copied) except -1:
        cdef bytes key = self.keys[number]
        cdef const char* data = <const char*>(copied + 1)
        cdef bytes value = None
        if copied.key_size != PyBytes_GET_SIZE(key) or memcmp(data, PyBytes_AS_STRING(key), copied.key_size) != 0:
            self.missed.append(number)
            return 0
        if copied.value_size >= 0:
            value = PyBytes_FromStringAndSize(data + copied.key_size, copied.value_size)
        self.records[number] = lone_record(
            key, value, copied.offset, copied.timestamp, copied.appended, copied.epoch
        )
        return 0

    def take_one(self, record) -> None:
        """Takes a record, or None, for the next offset wanted, whichever keys want it."""
        cdef int64_t offset = self.offset
        cdef Wanted* wanted
        while self.at < self.count and self.wanted[self.at].offset == offset:
            wanted = &self.wanted[self.at]
            self.at += 1
            if record is not None and record.key == self.keys[wanted.number]:
                self.records[wanted.number] = record
            else:
                self.missed.append(wanted.number)

    def pass_over(self, int64_t stop) -> None:
        """Misses what is wanted below `stop` and was not found."""
        while self.at < self.count and self.wanted[self.at].offset < stop:
            self.missed.append(self.wanted[self.at].number)
            self.at += 1
