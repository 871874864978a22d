"""The recovery of one segment file, chunk by chunk, in one pass over each byte, without the GIL.

Checksums and offsets say where the segment ends; index entries, leader epochs and what producers did come from the
same headers. Nothing outside is touched or asked: the passes over several segments run side by side.
"""
cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc

from kafkalog._core.batch cimport STOP_SIZE, BatchRow, peek_batch, read_row
from kafkalog._core.crc cimport kl_crc32, kl_crc32c
from kafkalog._core.endian cimport load16, store32, store64
from kafkalog._core.layout cimport CONTROL_BIT, MAGIC_AT, V2_ATTRIBUTES_AT, V2_RECORDS_AT
from kafkalog._core.plan cimport SegmentTail, pass_batch
from kafkalog._core.trace cimport ProducerTrace
from kafkalog._core.wrap cimport subtracted

# why `check` came back
MORE = PASS_MORE
END = PASS_END
PARTIAL = PASS_PARTIAL
BAD_SIZE = PASS_SIZE
BAD_CRC = PASS_CRC
BAD_ORDER = PASS_ORDER
BAD_RANGE = PASS_RANGE

cdef enum:
    PASS_MORE = 0                   # the chunk is used up: bytes from `position` on are wanted
    PASS_END = 1                    # the file ends with a whole batch
    PASS_PARTIAL = 2                # what is left is no whole batch
    PASS_SIZE = 3                   # a size field that no batch has
    PASS_CRC = 4                    # a checksum that is wrong
    PASS_ORDER = 5                  # a batch that does not end above the one before it
    PASS_RANGE = 6                  # a batch whose offsets do not fit the segment: `bad_offset`
    PASS_MEMORY = -1

    STREAMED = 4096                 # batches above this are taken piece by piece, those below are read again
    MOST_MARKER_BYTES = 65536       # a control batch is looked into where it is not longer: a marker has 78 bytes
    OFFSET_ENTRY = 8
    TIME_ENTRY = 12

LEAST_CHUNK = MOST_MARKER_BYTES
"""Bytes a chunk must have at least, where the file has them: it holds a batch that is not taken piece by piece."""

cdef int64_t MAX_RELATIVE_OFFSET = 0x7FFFFFFF


@cython.final
cdef class RecoveryPass:
    """The state of the recovery of one file of `end` bytes; `check` takes the next chunk, until it says why it stops.

    `tail` is that of an append to what is sound, `tail.size` the byte where that ends, with the slots that are left of
    the indexes; `position` is the byte to go on at, `batches` counts sound ones, `producers` says who wrote them.
    """

    def __cinit__(
        self, int64_t base_offset, int64_t end, int64_t index_interval_bytes, int64_t offset_slots, int64_t time_slots,
        *, bint check_crc=True,
    ):
        """`offset_slots` and `time_slots` are what the index files have room for; one time slot is the final entry's."""
        self.base_offset = base_offset
        self.end = end
        self.index_interval_bytes = index_interval_bytes
        self.check_crc = check_crc
        self.tail = SegmentTail(offset_slots=offset_slots, time_slots=time_slots - 1)
        self.producers = ProducerTrace()
        self.bad_offset = -1

    def __dealloc__(self):
        free(self.offset_entries.data)
        free(self.time_entries.data)
        free(self.epochs.data)

    def check(self, buf, int64_t start, int64_t length) -> int:
        """Goes on with `buf[start:start + length]`, the file's bytes from `position` on; says why it came back.

        A chunk has LEAST_CHUNK bytes or reaches to `end`. ValueError for one that the buffer does not hold,
        RuntimeError while another thread is here, MemoryError.
        """
        cdef Py_buffer view
        cdef int status
        PyObject_GetBuffer(buf, &view, PyBUF_SIMPLE)
        try:
            if start < 0 or length < 0 or length > view.len - start:
                raise ValueError(f"{length} bytes from {start} on of a buffer of {view.len}")
            self.refuse_a_second()
            self.busy = True
            with nogil:
                status = self.step(<const uint8_t*>view.buf + start, length)
            self.busy = False
        finally:
            PyBuffer_Release(&view)
        if status == PASS_MEMORY:
            raise MemoryError
        return status

    def refuse_a_second(self) -> None:
        """RuntimeError for a second thread: the first may be moving what is gathered."""
        if self.busy:
            raise RuntimeError("another thread uses this pass")

    @property
    def offset_index(self) -> bytes:
        """The content of the offset index file."""
        self.refuse_a_second()
        return PyBytes_FromStringAndSize(<char*>self.offset_entries.data, self.offset_entries.used)

    @property
    def time_index(self) -> bytes:
        """The content of the time index file, the final entry with it where the largest time is not there yet."""
        cdef SegmentTail tail = self.tail
        self.refuse_a_second()
        cdef Py_ssize_t used = self.time_entries.used
        if tail.max_timestamp > tail.last_time_entry and tail.max_timestamp >= 0 and tail.time_slots >= 0:
            if self.add_time(tail.max_timestamp, tail.offset_of_max_timestamp) < 0:
                raise MemoryError
        made = PyBytes_FromStringAndSize(<char*>self.time_entries.data, self.time_entries.used)
        self.time_entries.used = used
        return made

    @property
    def leader_epochs(self) -> list[tuple[int, int]]:
        """(epoch, first offset) of each leader epoch above those before it, oldest first."""
        cdef const Epoch* known = <const Epoch*>self.epochs.data
        cdef Py_ssize_t i
        self.refuse_a_second()
        return [(known[i].epoch, known[i].start_offset) for i in range(self.epochs.used // <Py_ssize_t>sizeof(Epoch))]

    def __repr__(self):
        return f"<RecoveryPass of {self.base_offset}: {self.batches} batches, {self.tail.size} of {self.end} bytes sound>"

    # --- the pass

    cdef int step(self, const uint8_t* data, int64_t length) noexcept nogil:
        cdef int64_t at = 0
        cdef int64_t size = 0
        cdef int64_t piece
        cdef int magic = 0
        cdef int reason
        while True:
            if self.stream_left > 0:
                piece = min(self.stream_left, length - at)
                if self.check_crc:
                    if self.row.magic >= 2:
                        self.stream_crc = kl_crc32c(self.stream_crc, data + at, <size_t>piece)
                    else:
                        self.stream_crc = kl_crc32(self.stream_crc, data + at, <size_t>piece)
                self.stream_left -= piece
                self.position += piece
                at += piece
                if self.stream_left > 0:
                    return PASS_MORE
                self.row.valid = not self.check_crc or self.stream_crc == self.row.crc
                reason = self.judge(NULL)
                if reason != PASS_MORE:
                    return reason
                continue
            reason = peek_batch(data + at, length - at, True, &size, &magic)
            if reason == STOP_SIZE:
                return PASS_SIZE
            if reason == -1 and size <= length - at:
                read_row(data + at, size, magic, self.check_crc, &self.row)
                self.row.position = self.position
                self.position += size
                reason = self.judge(data + at)
                if reason != PASS_MORE:
                    return reason
                at += size
                continue
            if reason == -1 and size > self.end - self.position:
                return PASS_PARTIAL
            if reason != -1 and self.position + (length - at) >= self.end:
                return PASS_END if self.position == self.end else PASS_PARTIAL
            if reason == -1 and length - at >= V2_RECORDS_AT and size > (
                MOST_MARKER_BYTES if magic >= 2 and load16(data + at + V2_ATTRIBUTES_AT) & CONTROL_BIT else STREAMED
            ):
                read_row(data + at, size, magic, False, &self.row)
                self.row.position = self.position
                self.stream_crc = 0
                piece = V2_ATTRIBUTES_AT if magic >= 2 else MAGIC_AT
                self.stream_left = size - piece
                self.position += piece
                at += piece
                continue
            return PASS_MORE

    cdef int judge(self, const uint8_t* batch) noexcept nogil:
        """Takes the batch in `row`, over which `position` has moved already; `batch` is NULL for a streamed one."""
        cdef BatchRow* row = &self.row
        cdef int64_t position = self.tail.size
        cdef int64_t timestamp = -1
        cdef int64_t relative
        if row.valid == 0:
            return PASS_CRC
        if row.last_offset <= self.tail.last_offset:
            return PASS_ORDER
        relative = subtracted(row.last_offset, self.base_offset)
        if relative < 0 or relative > MAX_RELATIVE_OFFSET:
            self.bad_offset = row.last_offset
            return PASS_RANGE
        if pass_batch(self.tail, self.index_interval_bytes, row, &timestamp) and self.add_entries(position, timestamp) < 0:
            return PASS_MEMORY
        if row.producer_id >= 0 and row.magic >= 2 and self.producers.note(row, batch) < 0:
            return PASS_MEMORY
        self.batches += 1
        return self.add_epoch(row.base_offset, row.leader_epoch)

    cdef int add_entries(self, int64_t position, int64_t timestamp) noexcept nogil:
        """The entry of the batch in `row`, which begins at `position`, and one of the time index where there is a time."""
        cdef uint8_t* entry = room_for(&self.offset_entries, OFFSET_ENTRY)
        if entry == NULL:
            return -1
        store32(entry, <int32_t>(self.row.last_offset - self.base_offset))
        store32(entry + 4, <int32_t>position)
        return 0 if timestamp < 0 else self.add_time(timestamp, self.tail.offset_of_max_timestamp)

    cdef int add_time(self, int64_t timestamp, int64_t offset) noexcept nogil:
        cdef uint8_t* entry = room_for(&self.time_entries, TIME_ENTRY)
        if entry == NULL:
            return -1
        store64(entry, timestamp)
        store32(entry + 8, <int32_t>(offset - self.base_offset))
        return 0

    cdef int add_epoch(self, int64_t offset, int32_t epoch) noexcept nogil:
        """Notes an epoch above those before it (SEG-25); PASS_MORE, or PASS_MEMORY."""
        cdef Epoch* last
        cdef int32_t before = -1
        if self.epochs.used > 0:
            last = <Epoch*>(self.epochs.data + self.epochs.used) - 1
            before = last.epoch
        if epoch <= before:
            return PASS_MORE
        last = <Epoch*>room_for(&self.epochs, sizeof(Epoch))
        if last == NULL:
            return PASS_MEMORY
        last.start_offset, last.epoch = offset, epoch
        return PASS_MORE


cdef uint8_t* room_for(Growing* g, Py_ssize_t size) noexcept nogil:
    """`size` more bytes at the end, which are used now; NULL without memory."""
    cdef Py_ssize_t room
    cdef uint8_t* data
    if g.used + size > g.room:
        room = 4096 if g.room == 0 else 2 * g.room
        data = <uint8_t*>realloc(g.data, room)
        if data == NULL:
            return NULL
        g.data, g.room = data, room
    data = g.data + g.used
    g.used += size
    return data
