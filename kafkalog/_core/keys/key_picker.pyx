"""The records of many keys taken from tables of records, in the order of their offsets."""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.ref cimport PyObject
from cpython.sequence cimport PySequence_Fast_ITEMS
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memcmp

from kafkalog._core.batch.copied cimport copied_rows
from kafkalog._core.batch.decode cimport RecordPlace, RecordTable
from kafkalog._core.batch.record cimport Record, record_of
from kafkalog._core.bytes.buffers cimport Held, hold
from kafkalog._core.keys.key_walk import are_bytes

cdef extern from *:
    """
    #define kl_prefetch_wanted(p) __builtin_prefetch(p)
    """
    void kl_prefetch_wanted(const void* p) noexcept nogil

cdef enum:
    FAR_AHEAD = 24                  # keys whose places in the list are asked for so early
    AHEAD = 12                      # ... and their bytes
    SMALL_VALUE = 256               # bytes, at most, of a value that is made with its record
    TOGETHER = 256                  # records that are copied at once

cdef struct Wanted:
    int64_t offset
    int64_t number                  # of the key


cdef int by_offset(const void* a, const void* b) noexcept nogil:
    cdef const Wanted* first = <const Wanted*>a
    cdef const Wanted* second = <const Wanted*>b
    if first.offset != second.offset:
        return (first.offset > second.offset) - (first.offset < second.offset)
    return (first.number > second.number) - (first.number < second.number)


@cython.final
cdef class KeyPicker:
    """Fills `records` with those at the offsets (int64, below `start_offset`: none) of the `keys`, bytes objects.

    Tables are given with rising offsets. A record with another key than the one wanted is not taken: `missed` has the
    numbers of such keys, and of those that no table had. One thread. MemoryError.
    """

    cdef list keys
    cdef Wanted* wanted
    cdef Py_ssize_t count
    cdef Py_ssize_t at
    cdef readonly list records
    cdef readonly list missed
    cdef int64_t rows[TOGETHER]     # of the table being taken, that wait to be copied
    cdef int64_t numbers[TOGETHER]  # of their keys
    cdef Py_ssize_t waiting

    def __cinit__(self, list keys not None, offsets, int64_t start_offset):
        cdef Held given = hold(offsets)
        cdef const int64_t* found = <const int64_t*>given.data
        cdef Py_ssize_t i
        if given.size != 8 * len(keys):
            raise ValueError(f"{given.size} bytes of offsets for {len(keys)} keys")
        self.keys = keys[:]             # nobody else changes this one
        if not are_bytes(self.keys) or len(self.keys) * 8 != given.size:
            raise TypeError("a key is no bytes object")
        self.records = [None] * len(keys)
        self.missed = []
        self.wanted = <Wanted*>malloc(<size_t>max(len(keys), 1) * sizeof(Wanted))
        if self.wanted == NULL:
            raise MemoryError("no memory for the keys to read")
        for i in range(len(keys)):
            if found[i] >= 0 and found[i] >= start_offset:
                self.wanted[self.count] = Wanted(found[i], i)
                self.count += 1
        with nogil:
            qsort(self.wanted, <size_t>self.count, sizeof(Wanted), by_offset)

    def __dealloc__(self):
        free(self.wanted)

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
            self.fetch_ahead()
            if table.offset_column[row] == wanted.offset and self.has_key(table, row, self.keys[wanted.number]):
                self.rows[self.waiting], self.numbers[self.waiting] = row, wanted.number
                self.waiting += 1
                if self.waiting == TOGETHER:
                    self.copy_waiting(table)
            else:
                self.missed.append(wanted.number)
        self.copy_waiting(table)

    cdef int copy_waiting(self, RecordTable table) except -1:
        """Make the records that wait: copies, lest a few records keep all chunks of the log in memory."""
        cdef Py_ssize_t i
        cdef Py_ssize_t count = self.waiting
        cdef RecordTable copies
        cdef Record record
        self.waiting = 0
        if count == 0:
            return 0
        copies = copied_rows(table, self.rows, count)
        for i in range(count):
            record = record_of(table, self.rows[i]) if copies is None else record_of(copies, i)
            record.own_key = self.keys[self.numbers[i]]
            if record.table.places[record.row].value_size <= SMALL_VALUE:   # its bytes are in the cache now, not later
                record.own_value = record.table.value_at(record.row)
            self.records[self.numbers[i]] = record
        return 0

    cdef void fetch_ahead(self):
        """Asks for the keys that come next: they lie anywhere in memory."""
        if self.at + FAR_AHEAD < self.count:
            kl_prefetch_wanted(&PySequence_Fast_ITEMS(self.keys)[self.wanted[self.at + FAR_AHEAD].number])
            kl_prefetch_wanted(&PySequence_Fast_ITEMS(self.records)[self.wanted[self.at + FAR_AHEAD].number])
            kl_prefetch_wanted(PySequence_Fast_ITEMS(self.keys)[self.wanted[self.at + AHEAD].number])

    cdef bint has_key(self, RecordTable table, Py_ssize_t row, bytes key):
        cdef RecordPlace* place = &table.places[row]
        return place.key_size == PyBytes_GET_SIZE(key) and memcmp(
            table.data + place.key_at, PyBytes_AS_STRING(key), <size_t>place.key_size
        ) == 0

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
