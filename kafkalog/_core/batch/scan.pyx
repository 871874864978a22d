"""One pass over a chunk of bytes: where each batch lies, what its header says, whether its checksum holds, and why it ended."""
cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from kafkalog._core.batch.check cimport (
    BAD_CONTROL, BAD_COUNT, BAD_SEQUENCE, STOP_END, STOP_LIMIT, STOP_MAGIC, STOP_PARTIAL, STOP_SIZE, BatchRow,
    header_fault_of, peek_batch, read_row,
)
from kafkalog._core.batch.layout cimport (
    CODEC_MASK, CONTROL_BIT, DELETE_HORIZON_BIT, TIMESTAMP_TYPE_BIT, TRANSACTIONAL_BIT, V1_KEY_AT, V1_TIMESTAMP_AT,
    V2_BASE_TIMESTAMP_AT, V2_LAST_DELTA_AT, V2_MAX_TIMESTAMP_AT, V2_PRODUCER_ID_AT, V2_RECORDS_AT,
)
from kafkalog._core.bytes.buffers cimport Column, column
from kafkalog._core.bytes.endian cimport load32, load64
from kafkalog._core.bytes.wrap cimport added, increment_sequence

REASON_END = STOP_END
REASON_PARTIAL = STOP_PARTIAL
REASON_SIZE = STOP_SIZE
REASON_MAGIC = STOP_MAGIC
REASON_LIMIT = STOP_LIMIT

FAULT_COUNT = BAD_COUNT
FAULT_CONTROL = BAD_CONTROL
FAULT_SEQUENCE = BAD_SEQUENCE

cdef enum:
    SMALL = 32 * 1024               # below this a scan is over before another thread could use the GIL


@cython.final
cdef class BatchHeader:
    """Header of one batch. Times are ms; missing ids and sequences are -1.

    `position` and `size` are bytes: where the batch lies in what was scanned (plus the scan's `base_position`), and
    its length with the 12 bytes of offset and size field. v0 and v1 messages count as batches of one record.
    """

    @property
    def base_offset(self) -> int:
        return self.row.base_offset

    @property
    def last_offset(self) -> int:
        return self.row.last_offset

    @property
    def next_offset(self) -> int:
        """The first offset after this batch."""
        return added(self.row.last_offset, 1)

    @property
    def position(self) -> int:
        return self.row.position

    @property
    def size(self) -> int:
        return self.row.size

    @property
    def magic(self) -> int:
        return self.row.magic

    @property
    def attributes(self) -> int:
        return self.row.attributes

    @property
    def compression(self) -> int:
        """Codec id of the attribute bits: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5 to 7 are unknown."""
        return self.row.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """0 CreateTime, 1 LogAppendTime, -1 for v0, which has no timestamps."""
        if self.row.magic == 0:
            return -1
        return 1 if self.row.attributes & TIMESTAMP_TYPE_BIT else 0

    @property
    def leader_epoch(self) -> int:
        return self.row.leader_epoch

    @property
    def producer_id(self) -> int:
        return self.row.producer_id

    @property
    def producer_epoch(self) -> int:
        return self.row.producer_epoch

    @property
    def base_sequence(self) -> int:
        return self.row.base_sequence

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, with the wrap from 2147483647 to 0 (REC-11); -1 without a base sequence."""
        if self.row.base_sequence == -1:
            return -1
        return increment_sequence(self.row.base_sequence, self.row.last_delta)

    @property
    def base_timestamp(self) -> int:
        return self.row.base_timestamp

    @property
    def max_timestamp(self) -> int:
        return self.row.max_timestamp

    @property
    def count(self) -> int:
        """Records by the header; -1 for a compressed v0 or v1 message, which does not say."""
        return self.row.count

    @property
    def crc(self) -> int:
        """The stored checksum, unsigned."""
        return self.row.crc

    @property
    def computed_crc(self) -> int:
        """The checksum of the bytes, unsigned; 0 where the scan did not check."""
        return self.row.computed_crc

    @property
    def is_valid(self) -> bool:
        """True when size and checksum are right; a scan without checksums says True of every batch long enough."""
        return self.row.valid != 0

    @property
    def is_transactional(self) -> bool:
        return self.row.magic >= 2 and (self.row.attributes & TRANSACTIONAL_BIT) != 0

    @property
    def is_control(self) -> bool:
        return self.row.magic >= 2 and (self.row.attributes & CONTROL_BIT) != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """Wall-clock ms after which the cleaner may drop tombstones, or None where none is set."""
        if self.row.magic >= 2 and self.row.attributes & DELETE_HORIZON_BIT:
            return self.row.base_timestamp
        return None

    def __repr__(self):
        return (
            f"<BatchHeader v{self.row.magic} [{self.row.base_offset}, {self.next_offset}) "
            f"{self.row.size} B at {self.row.position}>"
        )


@cython.final
cdef class BatchTable:
    """One row for each whole batch of a chunk, in order, and why the scan stopped.

    `stop_position` is the byte after the last whole batch; `stop_reason` one of REASON_END, REASON_PARTIAL (the rest
    is a batch cut off), REASON_SIZE (`stop_value` is the illegal size field), REASON_MAGIC (`stop_value` is the
    unknown format) or REASON_LIMIT. `first_invalid` is the first row whose checksum is wrong, -1 where all hold.
    The sums over all rows follow the reference's analysis of an append: `monotonic` is False once a batch does not
    end above the one before it, `offset_of_max_timestamp` is the last offset of the batch with the largest one.
    """

    def __cinit__(self):
        self.rows = &self.only
        self.capacity = 1
        self.first_invalid = -1

    def __dealloc__(self):
        if self.rows != &self.only:
            free(self.rows)

    cdef int grow(self) noexcept nogil:
        cdef Py_ssize_t capacity = 64 if self.capacity < 64 else self.capacity * 2
        cdef BatchRow* fresh
        if self.rows == &self.only:
            fresh = <BatchRow*>realloc(NULL, capacity * sizeof(BatchRow))
            if fresh != NULL:
                memcpy(fresh, &self.only, sizeof(BatchRow))
        else:
            fresh = <BatchRow*>realloc(self.rows, capacity * sizeof(BatchRow))
        if fresh == NULL:
            return -1
        self.rows = fresh
        self.capacity = capacity
        return 0

    cdef void summarise(self) noexcept nogil:
        cdef Py_ssize_t i
        cdef BatchRow* row
        self.first_offset = self.last_offset = -1
        self.max_timestamp = self.offset_of_max_timestamp = -1
        self.last_leader_epoch = -1
        self.record_count = self.max_batch_size = 0
        self.monotonic = True
        self.has_producers = False
        self.codec = 0
        self.first_invalid = -1
        for i in range(self.count):
            row = &self.rows[i]
            if i == 0:
                self.first_offset = row.base_offset
            if i > 0 and self.last_offset >= row.last_offset:
                self.monotonic = False
            self.last_offset = row.last_offset
            self.last_leader_epoch = row.leader_epoch
            if row.max_timestamp > self.max_timestamp:
                self.max_timestamp = row.max_timestamp
                self.offset_of_max_timestamp = row.last_offset
            if row.count > 0:
                self.record_count += row.count
            if row.size > self.max_batch_size:
                self.max_batch_size = row.size
            if row.attributes & CODEC_MASK:
                self.codec = row.attributes & CODEC_MASK
            if row.producer_id >= 0:
                self.has_producers = True
            if row.valid == 0 and self.first_invalid < 0:
                self.first_invalid = i

    cdef BatchRow* row_at(self, Py_ssize_t i) except NULL:
        if i < 0:
            i += self.count
        if i < 0 or i >= self.count:
            raise IndexError(f"row {i} of a table of {self.count} batches")
        return &self.rows[i]

    def sound_rows(self, int64_t next_offset, int64_t bound) -> int:
        """Return how many rows from the first on are sound, with offsets in [next_offset, bound): storage/damage.py."""
        cdef Py_ssize_t i
        cdef BatchRow* row
        cdef bint has_gap = False           # of the row before, which should have begun at `earlier`
        cdef int64_t earlier = next_offset, expected = next_offset
        for i in range(self.count):
            row = &self.rows[i]
            if row.valid == 0 or not 0 <= row.magic <= 2 or not row.base_offset <= row.last_offset < bound:
                return i
            if row.base_offset < expected:
                return i - 1 if has_gap and row.base_offset >= earlier else i
            has_gap = row.base_offset > expected and (row.magic >= 2 or not row.attributes & CODEC_MASK)
            earlier, expected = expected, row.last_offset + 1
        return self.count

    def begins_behind_gap(self, Py_ssize_t i, int64_t next_offset) -> bool:
        """Return True if row i begins above the end of the row before it (`next_offset` before the first)."""
        return self.row_at(i).base_offset > (self.rows[i - 1].last_offset + 1 if i > 0 else next_offset)

    def row_of(self, int64_t offset, Py_ssize_t stop) -> int:
        """Return the first row that ends at or above an offset; `stop` where none before that row does."""
        cdef Py_ssize_t i = 0
        while i < stop and self.row_at(i).last_offset < offset:
            i += 1
        return i

    def alone(self, Py_ssize_t i) -> BatchTable:
        """Row i as the table of that batch's bytes by themselves: at position 0, its checksum as it was compared."""
        cdef BatchTable table = BatchTable.__new__(BatchTable)
        table.rows[0] = self.row_at(i)[0]
        table.rows[0].position = 0
        table.count = 1
        table.valid_bytes = table.stop_position = table.rows[0].size
        table.stop_reason = STOP_END
        table.summarise()
        return table

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, Py_ssize_t i) -> BatchHeader:
        cdef BatchHeader header = BatchHeader.__new__(BatchHeader)
        header.row = self.row_at(i)[0]
        return header

    def __iter__(self):
        cdef Py_ssize_t i
        for i in range(self.count):
            yield self[i]

    def base_offset(self, Py_ssize_t i) -> int:
        return self.row_at(i).base_offset

    def last_offset_of(self, Py_ssize_t i) -> int:
        return self.row_at(i).last_offset

    def position(self, Py_ssize_t i) -> int:
        return self.row_at(i).position

    def size(self, Py_ssize_t i) -> int:
        return self.row_at(i).size

    def magic(self, Py_ssize_t i) -> int:
        return self.row_at(i).magic

    def attributes(self, Py_ssize_t i) -> int:
        return self.row_at(i).attributes

    def max_timestamp_of(self, Py_ssize_t i) -> int:
        return self.row_at(i).max_timestamp

    def records_in(self, Py_ssize_t i) -> int:
        return self.row_at(i).count

    def leader_epoch(self, Py_ssize_t i) -> int:
        return self.row_at(i).leader_epoch

    def header_fault(self, Py_ssize_t i, bint from_client=True) -> int:
        """0 for a header that a leader takes, else one of the FAULT_ numbers (format.md section 11, stage C2).

        Formats v0 and v1 say nothing that could be wrong, and what does not come from a client is not looked at.
        """
        cdef BatchRow* row = self.row_at(i)
        return header_fault_of(row) if from_client else 0

    @property
    def base_offsets(self) -> Column:
        return column(self, &self.rows.base_offset, self.count, sizeof(BatchRow), c"q")

    @property
    def last_offsets(self) -> Column:
        return column(self, &self.rows.last_offset, self.count, sizeof(BatchRow), c"q")

    @property
    def positions(self) -> Column:
        return column(self, &self.rows.position, self.count, sizeof(BatchRow), c"q")

    @property
    def sizes(self) -> Column:
        return column(self, &self.rows.size, self.count, sizeof(BatchRow), c"q")

    @property
    def max_timestamps(self) -> Column:
        return column(self, &self.rows.max_timestamp, self.count, sizeof(BatchRow), c"q")

    @property
    def counts(self) -> Column:
        return column(self, &self.rows.count, self.count, sizeof(BatchRow), c"i")

    def __repr__(self):
        return f"<BatchTable of {self.count} batches, {self.valid_bytes} B, stop {self.stop_reason} at {self.stop_position}>"


cdef int scan_worker(
    BatchTable table, const uint8_t* data, int64_t start, int64_t stop, int64_t base_position, bint check,
    bint file_mode, int64_t limit, bint headers_only,
) noexcept nogil:
    cdef int64_t at = start
    cdef int64_t size = 0
    cdef int magic = 0
    cdef int reason
    cdef BatchRow* row
    while True:
        if limit > 0 and table.count >= limit:
            reason = STOP_LIMIT
            break
        reason = peek_batch(data + at, stop - at, file_mode, &size, &magic)
        if reason == -1 and size > stop - at and not (headers_only and magic >= 2 and stop - at >= V2_RECORDS_AT):
            reason = STOP_PARTIAL
        if reason != -1:
            break
        if table.count == table.capacity and table.grow() < 0:
            return -1
        row = &table.rows[table.count]
        read_row(data + at, size, magic, check, row)
        row.position = added(at, base_position)
        table.count += 1
        at += size
    table.stop_reason = reason
    table.stop_value = size if reason == STOP_SIZE else magic if reason == STOP_MAGIC else 0
    table.stop_position = added(at, base_position)
    table.valid_bytes = at - start
    table.summarise()
    return 0


def scan(
    buf, int64_t start=0, int64_t stop=-1, *, bint check_crc=True, bint file_mode=False, int64_t base_position=0,
    int64_t max_batches=0, bint headers_only=False,
) -> BatchTable:
    """The table of the whole batches in `buf[start:stop]`.

    `file_mode` applies the rules of a segment file (any magic is taken, fewer than 17 bytes end it), otherwise those
    of a buffer in memory (format.md section 5). `base_position` is added to every position, so that they can name
    bytes of the file the chunk came from. Damage never raises: it is in the table. With `headers_only`, and without
    `check_crc`, a last v2 batch whose header is there counts although `buf` ends within its records.
    """
    cdef Py_buffer view
    cdef BatchTable table = BatchTable.__new__(BatchTable)
    cdef int status
    if headers_only and check_crc:
        raise ValueError("a checksum needs the whole batch, not its header")
    PyObject_GetBuffer(buf, &view, PyBUF_SIMPLE)
    cdef const uint8_t* data = <const uint8_t*>view.buf
    try:
        if stop < 0 or stop > view.len:
            stop = view.len
        if start < 0 or start > stop:
            raise ValueError(f"start {start} lies outside the {view.len} bytes given")
        if stop - start < SMALL:
            status = scan_worker(table, data, start, stop, base_position, check_crc, file_mode, max_batches, headers_only)
        else:
            with nogil:
                status = scan_worker(table, data, start, stop, base_position, check_crc, file_mode, max_batches, headers_only)
    finally:
        PyBuffer_Release(&view)
    if status < 0:
        raise MemoryError
    return table


@cython.final
cdef class HeaderWalk:
    """End of a walk over batch headers.

    Found: `position` is the byte in the buffer where the batch begins, with `base_offset`, `last_offset` and `size`.
    Not found: `position` is -1, `resume_position` the byte where the next header begins (it may lie beyond the
    buffer) and `stop_reason` why the walk ended: REASON_END or REASON_PARTIAL mean that more bytes are needed.
    """

    def __repr__(self):
        return (
            f"<HeaderWalk position={self.position} base_offset={self.base_offset} size={self.size} "
            f"resume={self.resume_position} stop={self.stop_reason}>"
        )


cdef int walk_headers(
    HeaderWalk out, const uint8_t* data, int64_t start, int64_t length, int64_t target, bint by_time
) noexcept nogil:
    cdef int64_t at = start, size = 0, last, seen, need
    cdef int magic = 0
    cdef int reason
    while True:
        if at >= length:
            reason = STOP_END
            break
        reason = peek_batch(data + at, length - at, True, &size, &magic)
        if reason != -1:
            break
        if magic >= 2:
            need = V2_PRODUCER_ID_AT if by_time else V2_BASE_TIMESTAMP_AT
            if length - at < need or size < need:
                reason = STOP_PARTIAL if length - at < need else STOP_SIZE
                break
            last = added(load64(data + at), load32(data + at + V2_LAST_DELTA_AT))
            seen = load64(data + at + V2_MAX_TIMESTAMP_AT) if by_time else last
        else:
            last = load64(data + at)
            seen = last
            if by_time:
                if magic < 1:
                    seen = -1
                elif length - at < V1_KEY_AT:
                    reason = STOP_PARTIAL
                    break
                else:
                    seen = load64(data + at + V1_TIMESTAMP_AT)
        if seen >= target:
            out.base_offset = load64(data + at)
            out.last_offset = last
            out.position = at
            out.size = size
            out.resume_position = at
            out.stop_reason = STOP_LIMIT
            return 0
        at += size
    out.position = -1
    out.resume_position = at
    out.stop_reason = reason
    out.stop_value = size if reason == STOP_SIZE else 0
    return 0


def find_offset(buf, int64_t target, int64_t start=0) -> HeaderWalk:
    """The first batch from byte `start` on whose last offset is at or above `target`.

    Only headers are read, so the last batch may be cut off in `buf`; for v0 and v1 the message's own offset counts.
    """
    return _walk(buf, target, start, False)


def find_max_timestamp(buf, int64_t target, int64_t start=0) -> HeaderWalk:
    """The first batch from byte `start` on whose max timestamp (ms) is at or above `target`; headers only."""
    return _walk(buf, target, start, True)


cdef HeaderWalk _walk(object buf, int64_t target, int64_t start, bint by_time):
    cdef Py_buffer view
    cdef HeaderWalk out = HeaderWalk.__new__(HeaderWalk)
    PyObject_GetBuffer(buf, &view, PyBUF_SIMPLE)
    if start < 0:
        PyBuffer_Release(&view)
        raise ValueError(f"start {start} is negative")
    walk_headers(out, <const uint8_t*>view.buf, start, view.len, target, by_time)
    PyBuffer_Release(&view)
    return out
