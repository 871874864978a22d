"""The walk over the keys of batches, with one call for all batches of a chunk; no Python object for a record.

A derived class decides what becomes of a key: an index of a segment, a map in memory, a search. Keys are hashed with
SipHash and a secret, so that no one can choose keys of one hash; the caller compares the key of each record found.
"""
cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING
from libc.string cimport memcpy

from kafkalog._core.batch.batch_range cimport ERR_BATCH_RANGE, ends_below_base, is_misplaced
from kafkalog._core.batch.check cimport BatchRow, place_of
from kafkalog._core.batch.decode import STATUS_TEXT
from kafkalog._core.batch.fields cimport Fields
from kafkalog._core.batch.layout cimport CONTROL_BIT, ERR_COUNT_LOW, ERR_MEMORY, ERR_RECORD_OFFSET, OK, V2_RECORDS_AT
from kafkalog._core.batch.legacy_message cimport Message
from kafkalog._core.batch.record_walk cimport SET_ENDS, check_plain, check_rows, next_message, next_record
from kafkalog._core.batch.scan cimport BatchTable
from kafkalog._core.bytes.buffers cimport Held, hold
from kafkalog._core.bytes.cursor cimport Cursor
from kafkalog._core.bytes.siphash cimport (
    FOUR_WORDS, KL_HAS_EIGHT, KL_HAS_FOUR, SipKey, siphash_128, siphash_eight, siphash_four,
)
from kafkalog._core.bytes.wrap cimport added

cdef enum:
    HEADER_BYTES = V2_RECORDS_AT    # of a batch, which its digest takes


cdef int take_secret(object secret, SipKey* into) except -1:
    cdef bytes given = bytes(secret)
    if len(given) != SECRET_BYTES:
        raise ValueError(f"a secret has {SECRET_BYTES} bytes, not {len(given)}")
    memcpy(into, PyBytes_AS_STRING(given), SECRET_BYTES)
    return 0


cdef void hash_together(
    const SipKey* secret, const uint8_t** keys, const Py_ssize_t* sizes, Py_ssize_t count, uint64_t* hashes
) noexcept nogil:
    """The hashes of up to HASHED_TOGETHER keys, eight or four at a time where they are alike."""
    cdef Py_ssize_t i = 0
    while i < count:
        if KL_HAS_EIGHT() and i + 8 <= count and are_alike(sizes + i, 8):
            siphash_eight(secret, keys + i, sizes + i, hashes + i)
            i += 8
        elif KL_HAS_FOUR() and i + 4 <= count and are_alike(sizes + i, 4):
            siphash_four(secret, keys + i, sizes + i, hashes + i, NULL)
            i += 4
        else:
            hashes[i] = hash_of_key(secret, keys[i], sizes[i])
            i += 1


cdef inline bint are_alike(const Py_ssize_t* sizes, int lanes) noexcept nogil:
    """True for keys that `side_by_side` takes."""
    cdef Py_ssize_t words = sizes[0] >> 3
    cdef bint alike = words < FOUR_WORDS
    cdef int i
    for i in range(1, lanes):
        alike &= sizes[i] >> 3 == words
    return alike


cdef class KeyWalk:
    """The state of a walk over the records with offsets in a range; `records` counts those with a key that it met.

    Control records and records without a key are left out. Damage ends a `take` with `status` and the place of it, as
    in a RecordTable. One thread.
    """

    cdef int begin(self, object secret, int64_t start_offset, int64_t stop_offset) except -1:
        take_secret(secret, &self.secret)
        self.next_offset = start_offset
        self.stop_offset = stop_offset
        self.error_batch = -1
        self.error_position = -1
        self.error_record = -1
        return 0

    @property
    def error_text(self) -> str:
        return STATUS_TEXT[self.status]

    @cython.critical_section
    def take(self, buf, BatchTable batches not None, Py_ssize_t first, Py_ssize_t last, int64_t base_position=0) -> bool:
        """Takes the keys of rows `first` up to `last` (exclusive) of a batch table made from this very buffer.

        False where `status` says what is damaged. The batches are plain ones (arena.pyx makes them so), `base_position`
        is the one that the scan was given. MemoryError.
        """
        cdef Held held = hold(buf)
        cdef Py_ssize_t i
        cdef BatchRow* row
        cdef int status = OK
        cdef int settled
        check_unused(self)
        check_rows(batches, first, last, base_position, held.size)
        self.busy = True
        with nogil:
            for i in range(first, last):
                row = &batches.rows[i]
                status = self.take_batch(held.data + place_of(row, base_position, held.size), row)
                if status != OK:
                    break
            settled = self.settle()
        self.busy = False
        if status == ERR_MEMORY or settled == ERR_MEMORY:
            raise MemoryError("no memory for the keys")
        if status != OK:
            self.status = status
            self.error_batch = i
            self.error_position += place_of(row, base_position, held.size)
        return status == OK

    cdef int take_batch(self, const uint8_t* batch, const BatchRow* row) noexcept nogil:
        """OK, or what is wrong with the batch."""
        if row.base_offset >= self.stop_offset and row.magic >= 2:
            return OK
        if ends_below_base(row):
            return self.damaged(ERR_BATCH_RANGE, 0, -1)
        if row.magic >= 2 and row.attributes & CONTROL_BIT:
            return OK
        cdef int status = check_plain(row)
        if status != OK:
            return self.damaged(status, 0, 0)
        return self.take_records(batch, row) if row.magic == 2 else self.take_messages(batch, row)

    cdef int take_records(self, const uint8_t* batch, const BatchRow* row) noexcept nogil:
        cdef Cursor c
        cdef Fields f
        cdef int64_t i
        cdef int64_t lowest_delta = 0
        cdef int64_t offset
        cdef int status
        cdef const uint8_t* start
        c.p = batch + V2_RECORDS_AT
        c.end = batch + row.size
        for i in range(row.count):
            start = c.p
            status = next_record(&c, &f)
            if status != OK:
                return self.damaged(status, start - batch, i)
            if f.offset_delta < lowest_delta or f.offset_delta > row.last_delta:
                return self.damaged(ERR_RECORD_OFFSET, start - batch, i)
            lowest_delta = <int64_t>f.offset_delta + 1
            offset = added(row.base_offset, f.offset_delta)
            if offset >= self.next_offset and offset < self.stop_offset:
                self.next_offset = offset + 1
                if f.key_size >= 0:
                    status = self.wait(f.key, f.key_size, offset)
                    if status != OK:
                        return status
        return OK if c.p == c.end else self.damaged(ERR_COUNT_LOW, c.p - batch, row.count)

    cdef int take_messages(self, const uint8_t* batch, const BatchRow* row) noexcept nogil:
        """The messages of a v0 or v1 set."""
        cdef Cursor c
        cdef Message m
        cdef int status
        cdef int64_t lowest = 0
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
            if is_misplaced(row, m.offset, i > 0, lowest):
                return self.damaged(ERR_RECORD_OFFSET, start - batch, i)
            lowest = added(m.offset, 1)
            if m.offset >= self.next_offset and m.offset < self.stop_offset:
                self.next_offset = m.offset + 1
                if m.key_size >= 0:
                    status = self.wait(m.key, m.key_size, m.offset)
                    if status != OK:
                        return status
            i += 1

    cdef int damaged(self, int status, int64_t position, int64_t record) noexcept nogil:
        """Notes where in its batch a record is not sound; the position is made one of the chunk later."""
        self.error_position = position
        self.error_record = record
        return status

    cdef int wait(self, const uint8_t* key, Py_ssize_t size, int64_t offset) noexcept nogil:
        """Lets a key wait for its group."""
        self.keys[self.waits] = key
        self.sizes[self.waits] = size
        self.offsets[self.waits] = offset
        self.waits += 1
        return OK if self.waits < HASHED_TOGETHER else self.settle()

    cdef int settle(self) noexcept nogil:
        """Puts the keys that wait, since their bytes go."""
        cdef uint64_t hashes[HASHED_TOGETHER]
        cdef Py_ssize_t count = self.waits
        hash_together(&self.secret, self.keys, self.sizes, count, hashes)
        self.waits = 0
        self.records += count
        return self.put(hashes, self.offsets, count)

    cdef int put(self, const uint64_t* hashes, const int64_t* offsets, Py_ssize_t count) noexcept nogil:
        """Takes hashes and offsets of keys, in rising order of the offsets; OK or ERR_MEMORY."""
        return OK


def hash_key(secret, key) -> int:
    """The hash of one key, as an unsigned number of 64 bits."""
    cdef SipKey own
    cdef Py_buffer view
    take_secret(secret, &own)
    PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
    cdef uint64_t hashed = hash_of_key(&own, <const uint8_t*>view.buf, view.len)
    PyBuffer_Release(&view)
    return hashed


@cython.final
cdef class SegmentDigest:
    """The digest of the headers of a segment's batches, checksums included: another segment has another one."""

    cdef SipKey secret
    cdef uint64_t words[2]
    cdef readonly int64_t batches

    def __cinit__(self, secret):
        take_secret(secret, &self.secret)

    @cython.critical_section
    def take(self, buf, BatchTable batches not None, Py_ssize_t first, Py_ssize_t last, int64_t base_position=0) -> None:
        """Takes the headers of rows `first` up to `last` of a batch table made from this very buffer."""
        cdef Held held = hold(buf)
        cdef uint8_t hashed[SECRET_BYTES + HEADER_BYTES]
        cdef Py_ssize_t i
        cdef int64_t at, size
        check_rows(batches, first, last, base_position, held.size)
        for i in range(first, last):
            at = place_of(&batches.rows[i], base_position, held.size)
            size = min(batches.rows[i].size, <int64_t>HEADER_BYTES)
            memcpy(hashed, self.words, SECRET_BYTES)
            memcpy(hashed + SECRET_BYTES, held.data + at, <size_t>size)
            siphash_128(&self.secret, hashed, SECRET_BYTES + size, self.words)
            self.batches += 1

    @property
    @cython.critical_section
    def value(self) -> bytes:
        """The 16 bytes of the digest of what was taken so far."""
        return (<const char*>self.words)[:SECRET_BYTES]
