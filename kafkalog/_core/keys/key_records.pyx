"""The records of many keys as a list of objects, in the order of the keys."""
cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from kafkalog._core.batch.check cimport BatchRow
from kafkalog._core.batch.decode cimport RecordTable
from kafkalog._core.batch.fields cimport Fields, take_record
from kafkalog._core.batch.layout cimport OK
from kafkalog._core.batch.pick cimport copied_out
from kafkalog._core.batch.record cimport Record, lone_record, record_of
from kafkalog._core.bytes.cursor cimport Cursor
from kafkalog._core.keys.given_keys cimport GivenKeys
from kafkalog._core.keys.key_picker cimport (
    AHEAD, HAS_OBJECT, MISSED, Copied, KeyPicker, check_alone, fetch_copy, own_record,
)

cdef extern from "Python.h":
    int PyGC_Disable()
    int PyGC_Enable()

cdef enum:
    MOST_COPIES = 128 << 20         # bytes of copies, which are then made records


@cython.final
cdef class KeyRecords(KeyPicker):
    """`records`, one for each key, None where there is none; `finish` makes those that are copies.

    Copies take up to about `most_bytes`, then they become records before the end.
    """

    cdef readonly list records
    cdef int64_t most_bytes

    def __cinit__(self, GivenKeys keys not None, offsets, int64_t start_offset, int64_t most_bytes=MOST_COPIES):
        self.most_bytes = most_bytes
        self.records = [None] * keys.count

    cdef int make_room(self) except -1:
        if self.room >= self.most_bytes > 0 and self.copied_bytes > 0:
            return self.make_copied()
        return KeyPicker.make_room(self)

    cdef int64_t expected_room(self) noexcept nogil:
        return min(KeyPicker.expected_room(self), self.most_bytes)

    cdef int take_row(self, RecordTable table, Py_ssize_t row, int64_t number) except -1:
        return self.put(number, record_of(table, row))

    cdef int put(self, int64_t number, Record record) except -1:
        self.records[number] = own_record(record)
        self.places[number] = HAS_OBJECT
        return 0

    @cython.critical_section
    def finish(self) -> None:
        """Make the records of the copies."""
        check_alone(self)
        self.busy = True
        try:
            self.make_copied()
        finally:
            self.busy = False

    cdef int make_copied(self) except -1:
        """Make the records of `finish` without the garbage collector, which would look at all keys again and again."""
        cdef bint collects
        if self.copied_bytes == 0:
            return 0
        collects = PyGC_Disable()
        try:
            self.make_all()
        finally:
            if collects:
                PyGC_Enable()
        self.copied_bytes = 0
        self.empty_parts()
        return 0

    cdef int make_all(self) except -1:
        cdef Py_ssize_t i
        cdef Py_ssize_t count = self.keys.count
        cdef const Copied* copied
        for i in range(count):
            if i + AHEAD < count and self.places[i + AHEAD] > 0:
                fetch_copy(self.copies, self.places[i + AHEAD])
            if self.places[i] > 0:
                copied = <const Copied*>(self.copies + self.places[i] - 1)
                if self.has_key(i, copied):
                    self.records[i] = self.made_of(i, copied)
                    self.places[i] = HAS_OBJECT
                else:
                    self.places[i] = MISSED
        return 0

    cdef Record made_of(self, Py_ssize_t number, const Copied* copied):
        cdef const uint8_t* data = <const uint8_t*>(copied + 1)
        cdef bytes value = None
        cdef BatchRow row
        cdef Fields f
        cdef Cursor c
        if copied.whole:
            memcpy(&row, data, sizeof(BatchRow))
            data += sizeof(BatchRow)
            c.p = data
            c.end = data + copied.size
            if take_record(&c, &f) != OK:
                raise AssertionError("a record that was read is no longer sound")
            return copied_out(data, &row, &f, copied.offset)
        if copied.size >= 0:
            value = PyBytes_FromStringAndSize(<const char*>data, copied.size)
        return lone_record(
            self.keys.at(number), value, copied.offset, copied.timestamp, copied.kind == 1, copied.epoch
        )
