"""The recovery of one segment file, chunk by chunk, in one pass over each byte, without the GIL.

Checksums and offsets say where the segment ends; index entries, leader epochs and what producers did come from the
same headers. Nothing outside is touched or asked: the passes over several segments run side by side.
"""
cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdlib cimport free

from kafkalog._core.batch.check cimport BatchRow
from kafkalog._core.batch.layout cimport V2_LAST_DELTA_AT, V2_LEADER_EPOCH_AT, V2_MAX_TIMESTAMP_AT, V2_PRODUCER_ID_AT
from kafkalog._core.batch.walk cimport (
    MOST_MARKER_BYTES, WALK_CRC, WALK_END, WALK_MEMORY, WALK_MORE, WALK_ORDER, WALK_PARTIAL, WALK_RANGE, WALK_SIZE, BatchWalk,
    checksum_holds, plain_size,
)
from kafkalog._core.bytes.endian cimport load32, load64, store32, store64
from kafkalog._core.bytes.room cimport room_for_one
from kafkalog._core.bytes.wrap cimport added
from kafkalog._core.log.plan cimport pass_batch

# why `check` came back
MORE = WALK_MORE
END = WALK_END
PARTIAL = WALK_PARTIAL
BAD_SIZE = WALK_SIZE
BAD_CRC = WALK_CRC
BAD_ORDER = WALK_ORDER              # a batch that does not end above the one before it
BAD_RANGE = WALK_RANGE              # a batch whose offsets do not fit the segment: `bad_offset`

cdef enum:
    OFFSET_ENTRY = 8
    TIME_ENTRY = 12

LEAST_CHUNK = MOST_MARKER_BYTES
"""Bytes a chunk must have at least, where the file has them, so that each marker is looked into."""

cdef int64_t MAX_RELATIVE_OFFSET = 0x7FFFFFFF
cdef int64_t LARGEST_OFFSET = 0x7FFFFFFFFFFFFFFF


@cython.final
cdef class RecoveryPass(BatchWalk):
    """The state of the recovery of one file of `end` bytes; `check` takes the next chunk, until it says why it stops.

    `tail` is that of an append to what is sound, `tail.size` the byte where that ends, with the slots that are left of
    the indexes; `batches` counts sound batches, `producers` says who wrote them. `ends_below` is True where the last of
    them begins at or below the end of the one before it, and ends above.
    """

    def __cinit__(
        self, int64_t base_offset, int64_t end, int64_t index_interval_bytes, int64_t offset_slots, int64_t time_slots
    ):
        """`offset_slots` and `time_slots` are what the index files have room for; one time slot is the final entry's."""
        self.base_offset = base_offset
        # the largest offset fits none: a log ends with the offset after its last batch
        self.most_offset = min(min(base_offset, LARGEST_OFFSET - MAX_RELATIVE_OFFSET) + MAX_RELATIVE_OFFSET, LARGEST_OFFSET - 1)
        self.end = end
        self.check_crc = True
        self.index_interval_bytes = index_interval_bytes
        self.tail = SegmentTail(offset_slots=offset_slots, time_slots=time_slots - 1)
        self.producers = ProducerTrace()
        self.bad_offset = self.last_epoch = -1

    def __dealloc__(self):
        free(self.offset_entries.data)
        free(self.time_entries.data)
        free(self.epochs.data)

    @property
    @cython.critical_section
    def offset_index(self) -> bytes:
        """The content of the offset index file."""
        self.refuse_a_second()
        return content_of(&self.offset_entries, OFFSET_ENTRY)

    @property
    @cython.critical_section
    def time_index(self) -> bytes:
        """The content of the time index file, with a final entry if the largest time has none yet."""
        cdef SegmentTail tail = self.tail
        cdef Py_ssize_t count
        self.refuse_a_second()
        count = self.time_entries.count
        if tail.max_timestamp > tail.last_time_entry and tail.max_timestamp >= 0 and tail.time_slots >= 0:
            if self.add_time(tail.max_timestamp, tail.offset_of_max_timestamp) < 0:
                raise MemoryError
        made = content_of(&self.time_entries, TIME_ENTRY)
        self.time_entries.count = count
        return made

    @property
    @cython.critical_section
    def leader_epochs(self) -> list[tuple[int, int]]:
        """(epoch, first offset) of each leader epoch above those before it, oldest first."""
        cdef const Epoch* known = <const Epoch*>self.epochs.data
        cdef Py_ssize_t i
        self.refuse_a_second()
        return [(known[i].epoch, known[i].start_offset) for i in range(self.epochs.count)]

    def __repr__(self):
        return f"<RecoveryPass of {self.base_offset}: {self.batches} batches, {self.tail.size} of {self.end} bytes sound>"

    # --- the pass

    cdef int64_t take_plain(self, const uint8_t* data, int64_t length) noexcept nogil:
        cdef const uint8_t* p = data
        cdef int64_t before = self.tail.last_offset
        cdef int64_t base_offset, last_offset, size, timestamp
        if self.tail.size == 0:
            return 0
        while self.tail.bytes_since_index_entry <= self.index_interval_bytes:
            size = plain_size(p, length - (p - data))
            if size == 0:
                break
            base_offset = load64(p)
            if base_offset <= before or load64(p + V2_PRODUCER_ID_AT) >= 0:
                break
            if load32(p + V2_LEADER_EPOCH_AT) > self.last_epoch:
                break
            last_offset = added(base_offset, load32(p + V2_LAST_DELTA_AT))
            if last_offset < base_offset or last_offset > self.most_offset or not checksum_holds(p, size):
                break
            timestamp = load64(p + V2_MAX_TIMESTAMP_AT)
            if timestamp > self.tail.max_timestamp:
                self.tail.max_timestamp, self.tail.offset_of_max_timestamp = timestamp, last_offset
            self.tail.size = added(self.tail.size, size)
            self.tail.bytes_since_index_entry = added(self.tail.bytes_since_index_entry, size)
            self.tail.last_offset = before = last_offset
            self.batches += 1
            p += size
        if p > data:
            self.ends_below = False
            self.position += p - data
        return p - data

    cdef int judge(self, const uint8_t* batch) noexcept nogil:
        cdef BatchRow* row = &self.row
        cdef int64_t position = self.tail.size
        cdef int64_t before = self.tail.last_offset
        cdef int64_t timestamp = -1
        if row.valid == 0:
            return WALK_CRC
        if row.last_offset <= before:
            return WALK_ORDER
        if row.last_offset < self.base_offset or row.last_offset > self.most_offset:
            self.bad_offset = row.last_offset
            return WALK_RANGE
        self.ends_below = row.base_offset <= before
        if pass_batch(self.tail, self.index_interval_bytes, row, &timestamp) and self.add_entries(position, timestamp) < 0:
            return WALK_MEMORY
        if row.producer_id >= 0 and row.magic >= 2 and self.producers.note(row, batch) < 0:
            return WALK_MEMORY
        self.batches += 1
        return self.add_epoch(row.base_offset, row.leader_epoch)

    cdef int add_entries(self, int64_t position, int64_t timestamp) noexcept nogil:
        """The entry of the batch in `row`, which begins at `position`, and one of the time index where there is a time."""
        cdef uint8_t* entry = <uint8_t*>next_of(&self.offset_entries, OFFSET_ENTRY)
        if entry == NULL:
            return -1
        store32(entry, <int32_t>(self.row.last_offset - self.base_offset))
        store32(entry + 4, <int32_t>position)
        return 0 if timestamp < 0 else self.add_time(timestamp, self.tail.offset_of_max_timestamp)

    cdef int add_time(self, int64_t timestamp, int64_t offset) noexcept nogil:
        cdef uint8_t* entry = <uint8_t*>next_of(&self.time_entries, TIME_ENTRY)
        if entry == NULL:
            return -1
        store64(entry, timestamp)
        store32(entry + 8, <int32_t>(offset - self.base_offset))
        return 0

    cdef int add_epoch(self, int64_t offset, int32_t epoch) noexcept nogil:
        """Notes an epoch above those before it (SEG-25); WALK_MORE, or WALK_MEMORY."""
        cdef Epoch* fresh
        if epoch <= self.last_epoch:
            return WALK_MORE
        fresh = <Epoch*>next_of(&self.epochs, sizeof(Epoch))
        if fresh == NULL:
            return WALK_MEMORY
        fresh.start_offset, fresh.epoch = offset, epoch
        self.last_epoch = epoch
        return WALK_MORE


cdef void* next_of(Growing* g, Py_ssize_t size) noexcept nogil:
    """A place for one more value of `size` bytes, which counts from now on; NULL without memory."""
    cdef void* data = room_for_one(g.data, g.count, &g.room, size)
    if data == NULL:
        return NULL
    g.data = <uint8_t*>data
    g.count += 1
    return g.data + (g.count - 1) * size


cdef bytes content_of(const Growing* g, Py_ssize_t size):
    return PyBytes_FromStringAndSize(<const char*>g.data, g.count * size)
