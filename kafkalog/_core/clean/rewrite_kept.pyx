"""The part of a chunk of batches that a cleaner keeps: whole runs where nothing changes, else record by record."""
cimport cython
from cpython.memoryview cimport PyMemoryView_FromObject, PyMemoryView_GET_BUFFER
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from kafkalog._core.batch.check cimport BatchRow, place_of, read_row
from kafkalog._core.batch.emit cimport HeaderFields, put_header
from kafkalog._core.batch.layout cimport CODEC_MASK, DELETE_HORIZON_BIT, ERR_MEMORY, OK, TIMESTAMP_TYPE_BIT, V2_RECORDS_AT
from kafkalog._core.batch.scan cimport BatchTable
from kafkalog._core.bytes.store cimport Store
from kafkalog._core.bytes.wrap cimport added
from kafkalog._core.clean.clean_rules cimport RETAIN_EMPTY, Choice, Retention
from kafkalog._core.clean.kept_batch cimport (
    OFFSETS_FALL, TOO_LONG, Kept, header_of_kept, header_without_records, put_kept, room_for_kept,
)

cdef enum:
    NEED_ROOM = 110                 # statuses beside those of layout.pxd
    NEED_CODEC
    BAD_ROW
    BAD_CHECKSUM
    MOST = 0x7FFFFFFF

STEP_DONE = OK
STEP_COMPRESS = NEED_CODEC
STATUS_CHECKSUM = BAD_CHECKSUM
STATUS_OFFSETS = OFFSETS_FALL
STATUS_TOO_LONG = TOO_LONG


cdef struct Piece:
    # bytes that somebody holds
    const uint8_t* data
    int64_t size


@cython.final
@cython.no_gc_clear                 # clearing would leave nothing where methods expect something
cdef class RecordFilter:
    """One chunk of whole batches, all of which `batches` has, and what `retention` leaves of it.

    For each plain run of the chunk `begin_run`, and `step` until STEP_DONE; then `finish`. At STEP_COMPRESS the
    caller appends `payload`, compressed with `codec`, to `store` and calls `seal`. Any other status is damage, at
    record `error_record` of row `error_row`: one of decode.STATUS_TEXT, of this module or of `retention`; the chunk
    has no result then. Counters are those of the reference's filterTo. Threads: belongs to one.
    """
    cdef Retention retention
    cdef object chunk
    cdef BatchTable batches
    cdef Piece source
    # the run of plain rows that it is at
    cdef object plain
    cdef BatchTable table
    cdef Piece data
    cdef Py_ssize_t row_before      # row i of `table` is row `row_before` + i of `batches`
    cdef Py_ssize_t row             # the next to be written
    cdef Py_ssize_t last
    cdef Py_ssize_t window_first    # the row of the first choice
    cdef Py_ssize_t window_last
    cdef bint busy
    cdef int64_t copy_start         # bytes of the chunk that stay as they are and were not written yet
    cdef int64_t copy_end
    cdef int64_t need
    cdef HeaderFields header        # of the batch that is rewritten
    cdef Kept kept
    cdef Py_ssize_t start           # where the batch that is being compressed begins in the store; -1 without one
    cdef readonly Store store
    cdef readonly int codec
    cdef readonly object payload
    cdef readonly Py_ssize_t error_row
    cdef readonly int64_t error_record
    cdef readonly int64_t bytes_read
    cdef readonly int64_t messages_read
    cdef readonly int64_t bytes_retained
    cdef readonly int64_t messages_retained
    cdef readonly int64_t invalid_messages
    cdef readonly int64_t max_offset
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t shallow_offset_of_max_timestamp

    def __cinit__(self, Retention retention not None, chunk, BatchTable batches not None):
        self.retention = retention
        self.chunk = view_of(chunk, &self.source)
        self.batches = batches
        self.store = Store()
        self.start = -1
        self.max_offset = self.max_timestamp = self.shallow_offset_of_max_timestamp = -1

    cdef int expect_end(self) except -1:
        if self.busy or self.start >= 0 or self.row != self.last:
            raise ValueError("the last run is not at its end")
        return 0

    @cython.critical_section
    def begin_run(self, data, BatchTable table not None, Py_ssize_t row_before, Py_ssize_t first, Py_ssize_t last) -> None:
        """Rows `first` up to `last` of `table`: plain in `data`, and in the chunk those behind its first `row_before`."""
        self.expect_end()
        if first < 0 or last < first or last > table.count or row_before < 0 or row_before + last > self.batches.count:
            raise ValueError(f"rows {first} to {last} of a table of {table.count} batches")
        self.plain = view_of(data, &self.data)
        self.table = table
        self.row_before = row_before
        self.row = self.window_first = self.window_last = first
        self.last = last

    def step(self) -> int:
        """Goes on to the next batch that has to be compressed, or to the end of the run."""
        with cython.critical_section(self, self.retention):
            return self._step()

    cdef int _step(self) except -1:
        cdef int status
        if self.busy or self.retention.busy or self.start >= 0 or self.table is None:
            raise ValueError("there is no run, or it is in use")
        if self.row < self.window_last and self.retention.chooser != <void*>self:
            raise ValueError("the retention was used for another chunk meanwhile")
        self.busy = self.retention.busy = True
        self.retention.chooser = <void*>self
        try:
            while True:
                with nogil:
                    status = self.work()
                if status != NEED_ROOM:
                    break
                # the result is mostly no longer than the chunk: room for all of it at once
                self.store.reserve(<Py_ssize_t>max(self.need, self.source.size - self.store.size))
            if status == NEED_CODEC:
                status = self.begin_payload()
        finally:
            self.busy = self.retention.busy = False
        if status == ERR_MEMORY:
            raise MemoryError
        if status == BAD_ROW:
            raise ValueError(f"batch {self.error_row} of the table lies outside the {self.source.size} bytes given")
        return status

    cdef int work(self) noexcept nogil:
        cdef int64_t invalid
        cdef int status
        while True:
            while self.row < self.window_last:
                status = self.write_row(self.row)
                if status != OK:
                    self.error_row = self.row_before + self.row
                    return status
                self.row += 1
            if self.row == self.last:
                return OK
            invalid = self.retention.invalid_messages
            status = self.retention.decide(
                self.data.data, self.data.size, &self.table.rows[self.row], self.last - self.row
            )
            if status != OK:
                self.error_row = self.row_before + self.row + self.retention.decided
                self.error_record = self.retention.error_record
                return status
            self.invalid_messages += self.retention.invalid_messages - invalid
            self.window_first = self.row
            self.window_last = self.row + self.retention.decided

    cdef int write_row(self, Py_ssize_t i) noexcept nogil:
        """Writes one batch, or takes note of bytes to be copied. After NEED_ROOM or NEED_CODEC nothing has changed."""
        cdef const BatchRow* row = &self.table.rows[i]
        cdef const BatchRow* source = &self.batches.rows[self.row_before + i]
        cdef const Choice* choice = &self.retention.window.choices[i - self.window_first]
        cdef bint has_horizon = row.magic >= 2 and row.attributes & DELETE_HORIZON_BIT
        cdef bint sets_horizon = choice.kept > 0 and not has_horizon and (choice.no_values or choice.ends_empty_txn)
        cdef int status = OK
        if place_of(source, 0, self.source.size) < 0:
            return BAD_ROW
        if choice.kept > 0 and choice.kept == choice.total and row.magic == 2 and not sets_horizon:
            status = self.copy(source)
            if status == OK:
                self.count_kept(row.max_timestamp, row.last_offset, row.last_offset, choice.kept, source.size)
        elif not self.is_sound(source):     # nothing goes, or gets another checksum, by what may be damage
            return BAD_CHECKSUM
        elif choice.kept > 0:
            self.kept.batch = self.data.data + row.position
            self.kept.row = row
            self.kept.flags = self.retention.flags + choice.first_flag
            self.kept.total = choice.total
            self.kept.delete_horizon = row.base_timestamp if has_horizon else -1
            if sets_horizon:
                self.kept.delete_horizon = self.retention.new_horizon()
            status = self.copy_now()
            if status == OK:
                self.need = room_for_kept(row, choice.kept)
                status = NEED_CODEC if source.attributes & CODEC_MASK else self.rewrite()
        elif choice.outcome == RETAIN_EMPTY:
            status = self.write_empty(row, source)
        if status == OK:
            self.bytes_read += source.size
            self.messages_read += choice.total
        return status

    cdef bint is_sound(self, const BatchRow* source) noexcept nogil:
        """True for a batch that matches its checksum."""
        cdef BatchRow row
        if source.valid >= 0:
            return source.valid
        read_row(self.source.data + source.position, source.size, source.magic, True, &row)
        return row.valid

    cdef uint8_t* room(self, int64_t size) noexcept nogil:
        """Return the address for `size` bytes, or NULL with the room needed in `need`."""
        if self.store.data == NULL or <int64_t>self.store.block.capacity - self.store.size < size:
            self.need = size
            return NULL
        return self.store.data + self.store.size

    cdef int copy(self, const BatchRow* source) noexcept nogil:
        """Takes a batch into the bytes to be copied as they are."""
        if source.position != self.copy_end:
            if self.copy_now() != OK:
                return NEED_ROOM
            self.copy_start = source.position
        self.copy_end = source.position + source.size
        return OK

    cdef int copy_now(self) noexcept nogil:
        """Copies what is to be copied."""
        cdef int64_t size = self.copy_end - self.copy_start
        cdef uint8_t* p
        if size == 0:
            return OK
        p = self.room(size)
        if p == NULL:
            return NEED_ROOM
        memcpy(p, self.source.data + self.copy_start, <size_t>size)
        self.store.size += size
        self.copy_start = self.copy_end
        return OK

    cdef int rewrite(self) noexcept nogil:
        """Writes a plain batch with the records that are kept."""
        cdef uint8_t* p = self.room(self.need)
        cdef int status
        if p == NULL:
            return NEED_ROOM
        status = put_kept(&self.kept, p + V2_RECORDS_AT)
        if status == OK:
            self.close_batch(p, self.kept.end - p, 0)
            self.store.size += self.kept.end - p
        return status

    cdef int write_empty(self, const BatchRow* row, const BatchRow* source) noexcept nogil:
        """Writes the header of a batch without records; one that is such a header stays as it is."""
        cdef uint8_t* p
        if (
            source.magic == 2 and source.size == V2_RECORDS_AT and row.base_timestamp == -1
            and not source.attributes & (CODEC_MASK | DELETE_HORIZON_BIT)
        ):
            if self.copy(source) != OK:
                return NEED_ROOM
        else:
            if self.copy_now() != OK:
                return NEED_ROOM
            p = self.room(V2_RECORDS_AT)
            if p == NULL:
                return NEED_ROOM
            header_without_records(&self.header, row)
            put_header(p, V2_RECORDS_AT, &self.header)
            self.store.size += V2_RECORDS_AT
        self.count_kept(row.max_timestamp, row.last_offset, row.last_offset, 0, V2_RECORDS_AT)
        return OK

    cdef void close_batch(self, uint8_t* p, int64_t size, int codec) noexcept nogil:
        """Write the header of a batch whose records were rewritten, and update the counters."""
        cdef int64_t last_offset
        header_of_kept(&self.header, &self.kept, codec)
        put_header(p, size, &self.header)
        last_offset = added(self.header.base_offset, self.header.last_delta)
        if self.header.max_timestamp == -1 and not self.header.attributes & TIMESTAMP_TYPE_BIT:
            last_offset = -1
        self.count_kept(self.header.max_timestamp, last_offset, self.kept.last_offset, self.kept.count, size)

    cdef void count_kept(
        self, int64_t max_timestamp, int64_t shallow_offset, int64_t max_offset, int64_t messages, int64_t size
    ) noexcept nogil:
        """Takes a written batch into the counters."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.shallow_offset_of_max_timestamp = shallow_offset
        if max_offset > self.max_offset:
            self.max_offset = max_offset
        self.messages_retained += messages
        self.bytes_retained += size

    cdef int begin_payload(self) except -1:
        """Writes the records that are kept of the next row, to be compressed."""
        cdef Store plain = Store()
        cdef int status
        plain.reserve(<Py_ssize_t>self.need)
        with nogil:
            status = put_kept(&self.kept, plain.data)
        if status != OK:
            return status
        plain.size = self.kept.end - plain.data
        self.payload = PyMemoryView_FromObject(plain.take())
        self.codec = self.batches.rows[self.row_before + self.row].attributes & CODEC_MASK
        self.store.reserve(V2_RECORDS_AT)
        self.start = self.store.size
        self.store.size += V2_RECORDS_AT
        return NEED_CODEC

    @cython.critical_section
    def seal(self) -> None:
        """Makes a batch of what was appended to the store."""
        if self.busy or self.start < 0:
            raise ValueError("no batch is being compressed")
        if self.store.size < self.start + V2_RECORDS_AT or self.store.data == NULL:
            raise ValueError("the store was taken")
        self.close_batch(self.store.data + self.start, self.store.size - self.start, self.codec)
        self.bytes_read += self.batches.rows[self.row_before + self.row].size
        self.messages_read += self.kept.total
        self.row += 1
        self.start = -1
        self.payload = None

    @cython.critical_section
    def finish(self) -> memoryview:
        """Return the rest of the chunk: a part of it where that has all, else new bytes."""
        self.expect_end()
        if self.store.size == 0:
            return self.chunk[self.copy_start:self.copy_end]
        self.store.put(self.source.data + self.copy_start, <Py_ssize_t>(self.copy_end - self.copy_start))
        self.copy_start = self.copy_end
        return PyMemoryView_FromObject(self.store.take())


cdef object view_of(object source, Piece* piece):
    """A memoryview of our own, without a buffer taken of it (see buffers.take_view), and the bytes behind it."""
    view = memoryview(source).cast("B")
    piece.data = <const uint8_t*>PyMemoryView_GET_BUFFER(view).buf
    piece.size = PyMemoryView_GET_BUFFER(view).len
    return view
