"""The check of one segment file, chunk by chunk, in one pass over each byte: checksums, headers, offsets, index entries.

It keeps no row of a batch: what a report needs is a few numbers, and the fault at which it stops.
"""
cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, realloc

from kafkalog._core.batch cimport STOP_SIZE, BatchRow, peek_batch, read_row
from kafkalog._core.buffers cimport Held, hold
from kafkalog._core.crc cimport kl_crc32, kl_crc32c
from kafkalog._core.cursor cimport Cursor
from kafkalog._core.endian cimport load16, load32, load64
from kafkalog._core.fields cimport Fields, take_record
from kafkalog._core.layout cimport (
    CODEC_MASK, CONTROL_BIT, LEGACY_ATTRIBUTES_AT, LOG_OVERHEAD, MAGIC_AT, MIN_SIZE_FIELD, OK, SIZE_AT,
    TRANSACTIONAL_BIT, V2_ATTRIBUTES_AT, V2_COUNT_AT, V2_LAST_DELTA_AT, V2_RECORDS_AT,
)
from kafkalog._core.wrap cimport added, subtracted

# why `check` came back
MORE = CHECK_MORE
END = CHECK_END
PARTIAL = CHECK_PARTIAL
BAD_SIZE = CHECK_SIZE
BAD_CRC = CHECK_CRC
BAD_MAGIC = CHECK_MAGIC
BAD_HEADER = CHECK_HEADER
BAD_ORDER = CHECK_ORDER
BAD_RANGE = CHECK_RANGE

cdef enum:
    CHECK_MORE = 0                  # the chunk is used up: bytes from `position` on are wanted
    CHECK_END = 1                   # the file ends with a whole batch
    CHECK_PARTIAL = 2               # what is left of the file is no whole batch; `value` is the size it claims, or 0
    CHECK_SIZE = 3                  # a size field that no batch has: `value`; nobody knows where the next one begins
    CHECK_CRC = 4                   # this and what follows: the check has passed over the batch in `row`
    CHECK_MAGIC = 5
    CHECK_HEADER = 6
    CHECK_ORDER = 7                 # it begins below `value`, where the batches before it end
    CHECK_RANGE = 8
    CHECK_MEMORY = -1

    STREAMED = 4096                 # batches above this are taken piece by piece, those below are read again
    MOST_RUNS = 1 << 16
    OFFSET_ENTRY = 8
    TIME_ENTRY = 12
    ABORT = 0
    CODECS = 5

cdef int64_t MAX_RELATIVE_OFFSET = 0x7FFFFFFF


@cython.final
cdef class BatchCheck:
    """The state of the check of one file whose `end` is known; `check` takes the next chunk.

    `position` is the byte to go on at, `next_offset` the lowest offset the batch there may begin with, `last_good` the
    byte after the last batch that was accepted. `gaps` counts the places where offsets jump (`gap_position`,
    `gap_from` and `gap_to` of the last one), `thinned` the batches that hold fewer records than offsets; `first_offset`
    is that of the first batch, -1 for none. `value` explains the last fault.
    """

    def __cinit__(self, int64_t base_offset, int64_t end, *, bint check_crc=True):
        self.base_offset = self.next_offset = base_offset
        self.end = end
        self.check_crc = check_crc
        self.fault_from = self.gap_position = self.max_timestamp = self.first_offset = self.pending = -1

    def __dealloc__(self):
        free(self.runs)
        free(self.aborts)
        free(self.producers)

    def expect_entries(self, offset_entries, time_entries) -> None:
        """Compares the batches from here on with these index entries: whole ones, which grow (`_core.index`)."""
        cdef Held offsets = hold(offset_entries)
        cdef Held times = hold(time_entries)
        self.refuse_a_second()
        self.index_bytes, self.index.data, self.index.count = offsets, offsets.data, offsets.size // OFFSET_ENTRY
        self.time_bytes, self.times.data, self.times.count = times, times.data, times.size // TIME_ENTRY
        self.index.at = self.times.at = 0

    cdef int refuse_a_second(self) except -1:
        """RuntimeError for a second thread: the first may be moving the tables."""
        if self.busy:
            raise RuntimeError("another thread uses this check")
        return 0

    def check(self, buf, int64_t start, int64_t length) -> int:
        """Checks on with `buf[start:start + length]`, the file's bytes from `position` on; says why it came back.

        After a fault the same chunk goes on behind the batch, `position` says where. ValueError for a chunk that the
        buffer does not hold, RuntimeError while another thread checks, MemoryError.
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
        if status == CHECK_MEMORY:
            raise MemoryError
        return status

    def skip_to(self, int64_t position) -> None:
        """Goes on at `position`; what lies between was reported."""
        if self.fault_from < 0:
            self.fault_from = self.position
        self.position = position
        self.stream_left = 0

    def set_end(self, int64_t end) -> None:
        """The file has another length now."""
        self.end = end

    @property
    def batch(self) -> tuple[int, int, int, int, int, int]:
        """(position, size, base offset, last offset, magic, attributes) of the batch last looked at."""
        cdef BatchRow* row = &self.row
        return row.position, row.size, row.base_offset, row.last_offset, row.magic, row.attributes

    @property
    def counts(self) -> tuple[int, int]:
        """(records by the header, last offset delta) of the batch last looked at."""
        return self.row.count, self.row.last_delta

    @property
    def checksums(self) -> tuple[int, int]:
        """(stored, computed) of the batch last looked at."""
        return self.row.crc, self.row.computed_crc

    @property
    def index_result(self) -> tuple[int, int, int, int, int, int]:
        """(entries met, wrong, odd, number of the first wrong, what it says, what is there) of the offset index.

        What is there is an offset, -1 where no batch begins at the entry's position.
        """
        cdef Entries done = self.index
        if self.pending >= 0 and self.fault_from < 0:
            note_wrong(&done, done.at - 1, self.pending, subtracted(self.next_offset, 1))
        return _result(&done)

    @property
    def time_result(self) -> tuple[int, int, int, int, int, int]:
        """As `index_result`, for the time index; it says and finds timestamps, -1 where no batch ends at the offset."""
        return _result(&self.times)

    @property
    def epoch_runs(self) -> list[tuple[int, int, int, int]]:
        """(leader epoch, position, first last offset, last offset) of each run of batches of one epoch, the first 65536."""
        cdef Py_ssize_t i
        self.refuse_a_second()
        return [
            (self.runs[i].epoch, self.runs[i].position, self.runs[i].first_offset, self.runs[i].last_offset)
            for i in range(self.run_count)
        ]

    @property
    def abort_markers(self) -> list[tuple[int, int, int]]:
        """(producer id, offset, first offset) of each ABORT marker; the first of the data in this file, -1 for none."""
        cdef Py_ssize_t i
        self.refuse_a_second()
        return [
            (self.aborts[i].producer_id, self.aborts[i].offset, self.aborts[i].first_offset)
            for i in range(self.abort_count)
        ]

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
                    return CHECK_MORE
                self.row.computed_crc = self.stream_crc
                self.row.valid = not self.check_crc or self.stream_crc == self.row.crc
                reason = self.judge(NULL)
                if reason != CHECK_MORE:
                    return reason
                continue
            reason = peek_batch(data + at, length - at, True, &size, &magic)
            if reason == STOP_SIZE:
                self.value = size
                return CHECK_SIZE
            if reason == -1 and size <= length - at:
                read_row(data + at, size, magic, self.check_crc, &self.row)
                self.row.position = self.position
                self.position += size
                reason = self.judge(data + at)
                if reason != CHECK_MORE:
                    return reason
                at += size
                continue
            if reason == -1 and size > self.end - self.position:
                self.value = size
                return CHECK_PARTIAL
            if reason != -1 and self.position + (length - at) >= self.end:
                self.value = 0
                return CHECK_END if self.position == self.end else CHECK_PARTIAL
            if reason == -1 and size > STREAMED and length - at >= V2_RECORDS_AT:
                self.begin_stream(data + at, size, magic)
                piece = V2_ATTRIBUTES_AT if magic >= 2 else MAGIC_AT
                self.position += piece
                at += piece
                continue
            return CHECK_MORE

    cdef void begin_stream(self, const uint8_t* batch, int64_t size, int magic) noexcept nogil:
        read_row(batch, size, magic, False, &self.row)
        self.row.position = self.position
        self.stream_crc = 0
        self.stream_left = size - (V2_ATTRIBUTES_AT if magic >= 2 else MAGIC_AT)

    cdef int judge(self, const uint8_t* batch) noexcept nogil:
        """Takes the batch in `row`, over which `position` has moved already; `batch` is NULL for a streamed one."""
        cdef BatchRow* row = &self.row
        cdef int fault
        if row.valid == 0:
            if self.fault_from < 0:
                self.fault_from = row.position
            return CHECK_CRC
        fault = self.header_fault()
        if fault == CHECK_MORE and row.base_offset < self.next_offset:
            fault = CHECK_RANGE if row.base_offset < self.base_offset else CHECK_ORDER
            self.value = self.next_offset
        if fault == CHECK_MORE and subtracted(row.last_offset, self.base_offset) > MAX_RELATIVE_OFFSET:
            fault = CHECK_RANGE
        if fault == CHECK_RANGE or (fault == CHECK_HEADER and row.last_offset < row.base_offset):
            if self.fault_from < 0:
                self.fault_from = row.position
            return fault
        if self.accept(batch) < 0:
            return CHECK_MEMORY
        return fault

    cdef int header_fault(self) noexcept nogil:
        cdef BatchRow* row = &self.row
        if row.magic > 2 or row.magic < 0:
            return CHECK_MAGIC
        if (row.attributes & CODEC_MASK) >= CODECS:
            return CHECK_HEADER
        if row.magic == 2 and (row.last_delta < 0 or row.count < 0 or row.count > <int64_t>row.last_delta + 1):
            return CHECK_HEADER
        return CHECK_HEADER if row.last_offset < row.base_offset else CHECK_MORE

    cdef int accept(self, const uint8_t* batch) noexcept nogil:
        """Notes what the batch says; the next one is compared with it."""
        cdef BatchRow* row = &self.row
        cdef bint wrapped = row.magic < 2 and row.count < 0
        if self.first_offset < 0:
            # what a wrapper begins with is known only inside it
            self.first_offset = self.next_offset if wrapped else row.base_offset
        elif row.base_offset > self.next_offset and self.fault_from < 0 and not wrapped:
            self.gaps += 1
            self.gap_position, self.gap_from, self.gap_to = row.position, self.next_offset, row.base_offset
        if row.magic == 2 and row.count <= row.last_delta:
            self.thinned += 1
        self.batches += 1
        self.records += row.count if row.count > 0 else 0
        if self.index.at < self.index.count or self.pending >= 0:
            self.meet_index()
        if self.times.at < self.times.count:
            self.meet_times()
        if row.max_timestamp > self.max_timestamp:
            self.max_timestamp = row.max_timestamp
        self.next_offset = added(row.last_offset, 1)
        self.last_good = self.position
        self.fault_from = -1
        if (self.run_count == 0 or self.runs[self.run_count - 1].epoch != row.leader_epoch) and self.note_epoch() < 0:
            return -1
        self.runs[self.run_count - 1].last_offset = row.last_offset
        if row.magic == 2 and row.attributes & TRANSACTIONAL_BIT and row.producer_id >= 0:
            return self.note_transaction(batch)
        return 0

    # --- index entries

    cdef void meet_index(self) noexcept nogil:
        """Entries that point before this batch point to none; one that points to it names its last offset.

        An older release wrote one entry for an append of many batches: the position of the first, the last offset of
        the last. Look-ups are right with it, so it is odd and not wrong.
        """
        cdef BatchRow* row = &self.row
        cdef const uint8_t* entry
        cdef int64_t offset, at
        while self.index.at < self.index.count:
            entry = self.index.data + OFFSET_ENTRY * self.index.at
            offset, at = added(self.base_offset, load32(entry)), load32(entry + 4)
            if at > row.position:
                break
            if self.pending >= 0:
                note_wrong(&self.index, self.index.at - 1, self.pending, subtracted(self.next_offset, 1))
                self.pending = -1
            if at < row.position:
                if self.fault_from < 0 or at < self.fault_from:
                    note_wrong(&self.index, self.index.at, offset, -1)
            elif offset > row.last_offset:
                self.pending = offset
            elif offset < row.last_offset:
                note_wrong(&self.index, self.index.at, offset, row.last_offset)
            self.index.at += 1
        if self.pending >= 0 and row.last_offset >= self.pending:
            if row.last_offset == self.pending:
                self.index.odd += 1
            else:
                note_wrong(&self.index, self.index.at - 1, self.pending, row.last_offset)
            self.pending = -1

    cdef void meet_times(self) noexcept nogil:
        """An entry names a batch by its last offset, and the first time in the file that was as large as its time."""
        cdef BatchRow* row = &self.row
        cdef const uint8_t* entry
        cdef int64_t timestamp, offset
        while self.times.at < self.times.count:
            entry = self.times.data + TIME_ENTRY * self.times.at
            timestamp, offset = load64(entry), added(self.base_offset, load32(entry + 8))
            if offset > row.last_offset:
                return
            if offset < row.base_offset:
                if self.fault_from < 0:
                    note_wrong(&self.times, self.times.at, timestamp, -1)
            elif timestamp != row.max_timestamp or self.max_timestamp >= timestamp:
                note_wrong(&self.times, self.times.at, timestamp, row.max_timestamp)
            elif offset != row.last_offset:
                self.times.odd += 1
            self.times.at += 1

    # --- epochs and transactions

    cdef int note_epoch(self) noexcept nogil:
        cdef EpochRun* run
        if self.run_count == MOST_RUNS:
            return 0
        if self.run_count == self.run_room:
            self.run_room = 16 if self.run_room == 0 else self.run_room * 2
            run = <EpochRun*>realloc(self.runs, self.run_room * sizeof(EpochRun))
            if run == NULL:
                return -1
            self.runs = run
        run = &self.runs[self.run_count]
        run.position, run.epoch = self.row.position, self.row.leader_epoch
        run.first_offset = self.row.last_offset
        self.run_count += 1
        return 0

    cdef int note_transaction(self, const uint8_t* batch) noexcept nogil:
        cdef Producer* producer = self.producer_of(self.row.producer_id)
        cdef Cursor c
        cdef Fields f
        if producer == NULL:
            return -1
        if not self.row.attributes & CONTROL_BIT:
            if producer.first_offset < 0:
                producer.first_offset = self.row.base_offset
            return 0
        if batch != NULL and self.row.count > 0:
            c.p, c.end = batch + V2_RECORDS_AT, batch + self.row.size
            if take_record(&c, &f) == OK and f.key_size >= 4 and load16(f.key + 2) == ABORT:
                if self.note_abort(producer) < 0:
                    return -1
        producer.first_offset = -1
        return 0

    cdef int note_abort(self, Producer* producer) noexcept nogil:
        cdef AbortMarker* marker
        if self.abort_count == self.abort_room:
            self.abort_room = 64 if self.abort_room == 0 else self.abort_room * 2
            marker = <AbortMarker*>realloc(self.aborts, self.abort_room * sizeof(AbortMarker))
            if marker == NULL:
                return -1
            self.aborts = marker
        marker = &self.aborts[self.abort_count]
        marker.producer_id, marker.offset = ~producer.producer_id, self.row.last_offset
        marker.first_offset = producer.first_offset
        self.abort_count += 1
        return 0

    cdef Producer* producer_of(self, int64_t producer_id) noexcept nogil:
        """The producer's place in a table by its id, made at its first transaction; NULL without memory."""
        cdef uint64_t at
        if 2 * (self.producer_count + 1) > self.producer_room and self.more_producers() < 0:
            return NULL
        at = <uint64_t>producer_id * 0x9E3779B97F4A7C15ULL
        while True:
            at &= self.producer_room - 1
            if self.producers[at].producer_id == ~producer_id:
                return &self.producers[at]
            if self.producers[at].producer_id == 0:
                # ids are kept inverted, so that fresh zeros are free places
                self.producers[at].producer_id = ~producer_id
                self.producers[at].first_offset = -1
                self.producer_count += 1
                return &self.producers[at]
            at += 1

    cdef int more_producers(self) noexcept nogil:
        cdef Producer* old = self.producers
        cdef Py_ssize_t room = self.producer_room
        cdef Py_ssize_t i
        cdef Producer* fresh = <Producer*>calloc(64 if room == 0 else room * 2, sizeof(Producer))
        if fresh == NULL:
            return -1
        self.producers, self.producer_room, self.producer_count = fresh, 64 if room == 0 else room * 2, 0
        for i in range(room):
            if old[i].producer_id != 0:
                self.producer_of(~old[i].producer_id).first_offset = old[i].first_offset
        free(old)
        return 0


cdef inline void note_wrong(Entries* entries, int64_t number, int64_t said, int64_t found) noexcept nogil:
    if entries.wrong == 0:
        entries.first_wrong, entries.said, entries.found = number, said, found
    entries.wrong += 1


cdef tuple _result(Entries* entries):
    return entries.at, entries.wrong, entries.odd, entries.first_wrong, entries.said, entries.found


cdef bint could_begin(const uint8_t* p, int64_t left, int64_t base_offset) noexcept nogil:
    """True where the bytes at p read as the header of a batch that ends within `left` bytes; 61 bytes, or all of the file, are there."""
    cdef int64_t size = <int64_t>load32(p + SIZE_AT) + LOG_OVERHEAD
    cdef int64_t offset = load64(p)
    cdef int32_t delta, count
    if size < MIN_SIZE_FIELD + LOG_OVERHEAD or size > left:
        return False
    if offset < base_offset or subtracted(offset, base_offset) > MAX_RELATIVE_OFFSET:
        return False
    if p[MAGIC_AT] < 2:
        return p[LEGACY_ATTRIBUTES_AT] < 16 and (p[LEGACY_ATTRIBUTES_AT] & CODEC_MASK) < CODECS
    if size < V2_RECORDS_AT:
        return False
    delta, count = load32(p + V2_LAST_DELTA_AT), load32(p + V2_COUNT_AT)
    return (
        p[V2_ATTRIBUTES_AT] == 0 and (p[V2_ATTRIBUTES_AT + 1] & CODEC_MASK) < CODECS
        and delta >= 0 and 0 <= count <= <int64_t>delta + 1
    )


def find_header(buf, int64_t start, int64_t length, int64_t left, int64_t base_offset) -> int:
    """Where in `buf[start:start + length]` the first bytes lie that read as a batch's header, -1 for nowhere.

    `left` is how many bytes the file has from `start` on, `base_offset` the lowest offset a batch may have there. Only
    the checksum says whether it is one. The last 60 bytes are looked at only where the file ends: give them again else.
    """
    cdef Held held = hold(buf)
    cdef int64_t i = start
    cdef int64_t stop = min(start + length, <int64_t>held.size)
    cdef int64_t last = stop - (MIN_SIZE_FIELD + LOG_OVERHEAD if left <= stop - start else V2_RECORDS_AT)
    cdef int64_t found = -1
    if start < 0:
        raise ValueError(f"start {start} is negative")
    with nogil:
        while i <= last:
            if held.data[i + MAGIC_AT] <= 2 and could_begin(held.data + i, left - (i - start), base_offset):
                found = i
                break
            i += 1
    return found
