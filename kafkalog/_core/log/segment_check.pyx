"""The check of one segment file, chunk by chunk, in one pass over each byte: checksums, headers, offsets, index entries.

It keeps no row of a batch: what a report needs is a few numbers, and the fault at which it stops.
"""
cimport cython
from libc.stdlib cimport free

from kafkalog._core.batch.check cimport BatchRow
from kafkalog._core.batch.fields cimport Fields, take_record
from kafkalog._core.batch.layout cimport (
    CODEC_MASK, CONTROL_BIT, LEGACY_ATTRIBUTES_AT, LOG_OVERHEAD, MAGIC_AT, MIN_SIZE_FIELD, OK, SIZE_AT,
    TRANSACTIONAL_BIT, V2_ATTRIBUTES_AT, V2_COUNT_AT, V2_LAST_DELTA_AT, V2_LEADER_EPOCH_AT, V2_MAX_TIMESTAMP_AT,
    V2_RECORDS_AT,
)
from kafkalog._core.batch.marker cimport ABORT
from kafkalog._core.batch.walk cimport (
    CODECS, WALK_CRC, WALK_END, WALK_HEADER, WALK_MAGIC, WALK_MEMORY, WALK_MORE, WALK_ORDER, WALK_PARTIAL, WALK_RANGE,
    WALK_SIZE, BatchWalk, checksum_holds, plain_size,
)
from kafkalog._core.bytes.buffers cimport Held, hold
from kafkalog._core.bytes.cursor cimport Cursor
from kafkalog._core.bytes.endian cimport load16, load32, load64
from kafkalog._core.bytes.room cimport room_for_one
from kafkalog._core.bytes.wrap cimport added, subtracted
from kafkalog._core.log.ids cimport drop_ids, make_ids, number_of

# why `check` came back
MORE = WALK_MORE
END = WALK_END
PARTIAL = WALK_PARTIAL
BAD_SIZE = WALK_SIZE
BAD_CRC = WALK_CRC
BAD_MAGIC = WALK_MAGIC
BAD_HEADER = WALK_HEADER
BAD_ORDER = WALK_ORDER              # it begins below `value`, where the batches before it end
BAD_RANGE = WALK_RANGE

cdef enum:
    MOST_RUNS = 1 << 16
    OFFSET_ENTRY = 8
    TIME_ENTRY = 12

cdef int64_t MAX_RELATIVE_OFFSET = 0x7FFFFFFF
cdef int64_t LARGEST = 0x7FFFFFFFFFFFFFFF


@cython.final
cdef class BatchCheck(BatchWalk):
    """The state of the check of one file whose `end` is known; `check` takes the next chunk.

    `next_offset` is the lowest offset that the batch at `position` may begin with, `last_good` the byte after the last
    batch that was accepted. `gaps` counts the places where offsets jump (`gap_position`,
    `gap_from` and `gap_to` of the last one), `thinned` the batches that hold fewer records than offsets; `first_offset`
    is that of the first batch, -1 for none. `value` explains the last fault of order or size. Of
    transactions only the data that ends at `log_start_offset` or above counts: no reader goes below it.
    """

    def __cinit__(self, int64_t base_offset, int64_t end, *, bint check_crc=True, int64_t log_start_offset=0):
        self.base_offset = self.next_offset = base_offset
        self.end = end
        self.check_crc = check_crc
        self.log_start_offset = log_start_offset
        make_ids(&self.ids)
        self.fault_from = self.gap_position = self.max_timestamp = self.first_offset = self.pending = -1

    def __dealloc__(self):
        free(self.runs)
        free(self.aborts)
        free(self.open_from)
        drop_ids(&self.ids)

    @cython.critical_section
    def expect_entries(self, offset_entries, time_entries) -> None:
        """Compares the batches from here on with these index entries: whole ones, which grow (`_core.log.index`)."""
        cdef Held offsets = hold(offset_entries)
        cdef Held times = hold(time_entries)
        self.refuse_a_second()
        self.index_bytes, self.index.data, self.index.count = offsets, offsets.data, offsets.size // OFFSET_ENTRY
        self.time_bytes, self.times.data, self.times.count = times, times.data, times.size // TIME_ENTRY
        self.index.at = self.times.at = 0

    @cython.critical_section
    def skip_to(self, int64_t position) -> None:
        """Goes on at `position`; what lies between was reported."""
        self.refuse_a_second()
        if self.fault_from < 0:
            self.fault_from = self.position
        self.position = position
        self.stream_left = 0

    @cython.critical_section
    def set_end(self, int64_t end) -> None:
        """The file has another length now, but what was walked over counts; a batch it cuts in two is met again."""
        self.refuse_a_second()
        if self.stream_left > end - self.position:
            self.position, self.stream_left = self.row.position, 0
        self.end = max(end, self.position)

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
        """Compare the time index as `index_result` does, with timestamps; -1 where no batch ends at the offset."""
        return _result(&self.times)

    @property
    @cython.critical_section
    def epoch_runs(self) -> list[tuple[int, int, int, int]]:
        """(leader epoch, position, first last offset, last offset) of each run of batches of one epoch, the first 65536."""
        cdef Py_ssize_t i
        self.refuse_a_second()
        return [
            (self.runs[i].epoch, self.runs[i].position, self.runs[i].first_offset, self.runs[i].last_offset)
            for i in range(self.run_count)
        ]

    @property
    @cython.critical_section
    def abort_markers(self) -> list[tuple[int, int, int]]:
        """(producer id, offset, first offset) of each ABORT marker; the first of the data that counts, -1 for none."""
        cdef Py_ssize_t i
        self.refuse_a_second()
        return [
            (self.aborts[i].producer_id, self.aborts[i].offset, self.aborts[i].first_offset)
            for i in range(self.abort_count)
        ]

    # --- the pass

    cdef int64_t take_plain(self, const uint8_t* data, int64_t length) noexcept nogil:
        cdef const uint8_t* p = data
        cdef int64_t begin = self.position
        cdef int64_t next_offset = self.next_offset
        cdef int64_t largest = self.max_timestamp
        cdef int64_t entry_position = LARGEST
        cdef int64_t entry_offset = LARGEST
        cdef int64_t base_offset, last_offset, size
        cdef int32_t epoch
        if self.run_count == 0 or self.first_offset < 0 or not self.check_crc or self.fault_from >= 0 or self.pending >= 0:
            return 0
        epoch = self.runs[self.run_count - 1].epoch
        if self.index.at < self.index.count:
            entry_position = load32(self.index.data + OFFSET_ENTRY * self.index.at + 4)
        if self.times.at < self.times.count:
            entry_offset = added(self.base_offset, load32(self.times.data + TIME_ENTRY * self.times.at + 8))
        while True:
            size = plain_size(p, length - (p - data))
            if size == 0:
                break
            base_offset = load64(p)
            if base_offset < next_offset or load32(p + V2_LEADER_EPOCH_AT) != epoch:
                break
            last_offset = added(base_offset, load32(p + V2_LAST_DELTA_AT))
            if last_offset < base_offset or subtracted(last_offset, self.base_offset) > MAX_RELATIVE_OFFSET:
                break
            if begin + (p - data) >= entry_position or last_offset >= entry_offset or not checksum_holds(p, size):
                break
            if base_offset > next_offset:
                self.gaps += 1
                self.gap_position, self.gap_from, self.gap_to = begin + (p - data), next_offset, base_offset
            self.thinned += load32(p + V2_COUNT_AT) <= load32(p + V2_LAST_DELTA_AT)
            self.batches += 1
            self.records += load32(p + V2_COUNT_AT)
            largest = max(largest, load64(p + V2_MAX_TIMESTAMP_AT))
            next_offset = added(last_offset, 1)
            p += size
        if p > data:
            self.max_timestamp, self.next_offset = largest, next_offset
            self.position = self.last_good = begin + (p - data)
            self.runs[self.run_count - 1].last_offset = subtracted(next_offset, 1)
        return p - data

    cdef int judge(self, const uint8_t* batch) noexcept nogil:
        cdef BatchRow* row = &self.row
        cdef int fault
        if row.valid == 0:
            if self.fault_from < 0:
                self.fault_from = row.position
            return WALK_CRC
        fault = self.header_fault()
        if fault == WALK_MORE and row.base_offset < self.next_offset:
            fault = WALK_RANGE if row.base_offset < self.base_offset else WALK_ORDER
            self.value = self.next_offset
        if fault == WALK_MORE and subtracted(row.last_offset, self.base_offset) > MAX_RELATIVE_OFFSET:
            fault = WALK_RANGE
        if fault == WALK_RANGE or (fault == WALK_HEADER and row.last_offset < row.base_offset):
            if self.fault_from < 0:
                self.fault_from = row.position
            return fault
        if self.accept(batch) < 0:
            return WALK_MEMORY
        return fault

    cdef int header_fault(self) noexcept nogil:
        cdef BatchRow* row = &self.row
        if row.magic > 2 or row.magic < 0:
            return WALK_MAGIC
        if (row.attributes & CODEC_MASK) >= CODECS:
            return WALK_HEADER
        if row.magic == 2 and (row.last_delta < 0 or row.count < 0 or row.count > <int64_t>row.last_delta + 1):
            return WALK_HEADER
        return WALK_HEADER if row.last_offset < row.base_offset else WALK_MORE

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
        run = <EpochRun*>room_for_one(self.runs, self.run_count, &self.run_room, sizeof(EpochRun))
        if run == NULL:
            return -1
        self.runs = run
        run = &self.runs[self.run_count]
        run.position, run.epoch = self.row.position, self.row.leader_epoch
        run.first_offset = self.row.last_offset
        self.run_count += 1
        return 0

    cdef int note_transaction(self, const uint8_t* batch) noexcept nogil:
        cdef int64_t* open_from = self.transaction_of(self.row.producer_id)
        cdef Cursor c
        cdef Fields f
        if open_from == NULL:
            return -1
        if not self.row.attributes & CONTROL_BIT:
            if open_from[0] < 0 and self.row.last_offset >= self.log_start_offset:
                open_from[0] = self.row.base_offset
            return 0
        if batch != NULL and self.row.count > 0:
            c.p, c.end = batch + V2_RECORDS_AT, batch + self.row.size
            if take_record(&c, &f) == OK and f.key_size >= 4 and load16(f.key + 2) == ABORT:
                if self.note_abort(open_from[0]) < 0:
                    return -1
        open_from[0] = -1
        return 0

    cdef int note_abort(self, int64_t first_offset) noexcept nogil:
        cdef AbortMarker* marker = <AbortMarker*>room_for_one(
            self.aborts, self.abort_count, &self.abort_room, sizeof(AbortMarker)
        )
        if marker == NULL:
            return -1
        self.aborts = marker
        marker = &self.aborts[self.abort_count]
        marker.producer_id, marker.offset = self.row.producer_id, self.row.last_offset
        marker.first_offset = first_offset
        self.abort_count += 1
        return 0

    cdef int64_t* transaction_of(self, int64_t producer_id) noexcept nogil:
        """Return the place of the first offset of a producer's open transaction (-1: none); NULL without memory."""
        cdef Py_ssize_t known = self.ids.count
        cdef Py_ssize_t number
        cdef int64_t* grown = <int64_t*>room_for_one(self.open_from, known, &self.open_room, sizeof(int64_t))
        if grown == NULL:
            return NULL
        self.open_from = grown
        number = number_of(&self.ids, producer_id)
        if number < 0:
            return NULL
        if number == known:
            self.open_from[number] = -1
        return &self.open_from[number]


cdef inline void note_wrong(Entries* entries, int64_t number, int64_t indexed, int64_t found) noexcept nogil:
    if entries.wrong == 0:
        entries.first_wrong, entries.indexed, entries.found = number, indexed, found
    entries.wrong += 1


cdef tuple _result(Entries* entries):
    return entries.at, entries.wrong, entries.odd, entries.first_wrong, entries.indexed, entries.found


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
    """Return the position of the first bytes in `buf[start:start + length]` that read as a batch header, or -1.

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
