"""The dump tool's text of `.log` files: batch lines and record lines, as the reference prints them.

The text is that of format.md section 12, rules A1 to A4 of section 13 and checklist DUMP-1, 2, 3, 9, 11 and 14.
"""
cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free

from kafkalog._core.batch.check cimport BatchRow, peek_batch, read_row
from kafkalog._core.batch.fields cimport Fields, take_record, take_small_record
from kafkalog._core.batch.layout cimport (
    CODEC_MASK, CONTROL_BIT, ERR_COUNT_HIGH, ERR_COUNT_LOW, ERR_COUNT_NEGATIVE, ERR_MEMORY, ERR_SHORT,
    ERR_VALUE_SIZE, ERR_WRAPPER_NESTED, HEADER_TO_MAGIC, OK, V2_RECORDS_AT,
)
from kafkalog._core.batch.legacy_message cimport Message, take_fields, take_frame
from kafkalog._core.batch.unpack cimport Unpacker
from kafkalog._core.bytes.buffers cimport Held, hold
from kafkalog._core.bytes.cursor cimport Cursor
from kafkalog._core.bytes.endian cimport load16, load32
from kafkalog._core.bytes.store cimport Store
from kafkalog._core.bytes.wrap cimport added
from kafkalog._core.text.jumps cimport Jumps, add_jump
from kafkalog._core.text.lines cimport (
    BODY_EXPANSION, LINE_SPACE, put_batch_rest, put_batch_start, put_data, put_message_fields, put_record_fields,
)
from kafkalog._core.text.text_buffer cimport Out, TextBuffer, kl_unlikely, put, put_number, reserve

cdef enum:
    RENDER_MORE = 100           # the buffer ends before the batch at `position` does; `needed` bytes would help
    RENDER_FULL                 # the text has reached its limit: write it out, clear it, call again
    RENDER_SIZE                 # a size field below the smallest legal one, in `stop_value`
    RENDER_CODEC                # an unknown compression id, in `stop_value`
    RENDER_TEXT                 # a record line waits for the caller's words: `give` them and call again
    RENDER_CONTROL_BAD          # a control record whose key or value is malformed
    RENDER_HEADER               # the batch's size field is smaller than the batch header
    RENDER_MAGIC                # a format below 0, in `stop_value`
    RENDER_RAISED               # an exception waits to be raised

    UNREAD = -2                 # a size that take_fields did not get to

    LAST_CODEC = 4              # zstd; the ids above it mean nothing
    FIRST_KRAFT = 2             # control types: ABORT and COMMIT come before, the last KRaft kind is KRAFT_VOTERS
    LAST_KRAFT = 6

NEEDS_BYTES = RENDER_MORE
IS_FULL = RENDER_FULL
BAD_SIZE = RENDER_SIZE
BAD_CODEC = RENDER_CODEC
NEEDS_TEXT = RENDER_TEXT
BAD_CONTROL = RENDER_CONTROL_BAD
BAD_HEADER = RENDER_HEADER
BAD_FORMAT = RENDER_MAGIC


cdef bytes bytes_of(const uint8_t* data, int32_t size):
    """A copy, None for null."""
    return None if size < 0 else PyBytes_FromStringAndSize(<const char*>data, size)


@cython.final
cdef class DumpText:
    """Renders the batches of a `.log` file, a buffer at a time, into `text`.

    `render` writes whole lines and stops when the text reaches `limit` bytes, when the buffer ends inside a batch, or
    at damage; the text of everything before the stop is there. It goes on where it stopped, inside a batch too.

    deep: print record lines. data: with keys and values. skip_metadata: record lines hold nothing but those.
    ask: the caller gives the text of keys and values, a record at a time; it always does for KRaft's control records.
    unpacker: decompresses batches, each to at most `decoded_limit` bytes; a status of its own is one of `render` too.
    """

    cdef readonly TextBuffer text
    cdef readonly int64_t position      # in the buffer of the last call: the batch to go on with
    cdef readonly int64_t needed        # bytes from `position` on that the next step needs
    cdef readonly int64_t stop_value
    cdef readonly int64_t record_offset # of the last record line, -1 before the first
    cdef readonly bytes key             # of the record whose line waits for text; None is null
    cdef readonly bytes value
    cdef bint deep
    cdef bint data
    cdef bint skip_metadata
    cdef bint ask
    cdef bint asked                     # the last line waits for `give`
    cdef const uint8_t* key_at          # that line's, in the buffer of the call at hand
    cdef const uint8_t* value_at
    cdef int32_t key_size
    cdef int32_t value_size
    cdef readonly Unpacker unpacker
    cdef readonly bint is_refused       # the batch at hand is compressed, and its records cannot be had
    cdef int64_t decoded_limit
    cdef Store store                    # what it fills, a batch at a time
    cdef Held source                    # the buffer of the call at hand
    cdef object failure                 # the exception behind RENDER_RAISED
    cdef const uint8_t* plain           # the batch at hand as it would be uncompressed; NULL where it is not
    cdef int64_t plain_size
    cdef size_t limit
    cdef BatchRow row                   # the batch being rendered, where `inside`
    cdef bint inside
    cdef int64_t next_record
    cdef int64_t record_at              # from the start of the batch
    cdef int64_t after_record           # the same of the record behind the one that waits for text
    cdef Jumps jumps

    def __cinit__(
        self, *, bint deep=False, bint data=False, bint skip_metadata=False, bint ask=False, size_t limit=1 << 18,
        Unpacker unpacker not None, int64_t decoded_limit=1 << 28,
    ):
        self.text = TextBuffer()
        self.deep = deep or data
        self.data = data
        self.skip_metadata = skip_metadata
        self.ask = ask
        self.limit = limit
        self.unpacker = unpacker
        self.decoded_limit = decoded_limit
        self.store = Store()
        self.record_offset = -1

    def __dealloc__(self):
        free(self.jumps.pairs)

    @cython.critical_section
    def render(self, buffer, int64_t start, int64_t stop, int64_t base_position) -> int:
        """Why it stopped: one of this module's constants, or a status of layout.pxd for a malformed record.

        Renders the batches of `buffer[start:stop]`, where the file's byte `base_position` is the buffer's byte 0.
        After IS_FULL and NEEDS_BYTES call again, from `position` on, with at least `needed` bytes after the latter;
        after NEEDS_TEXT with the same bytes, once `give` has been called.
        """
        cdef Held held = hold(buffer)
        cdef int status
        if start < 0 or stop < start or stop > held.size:
            raise ValueError(f"range {start}..{stop} is outside a buffer of {held.size} bytes")
        if self.asked:
            raise ValueError("the last line waits for its text")
        self.text.begin()
        self.position = start
        self.source = held
        self.is_refused = False
        with nogil:
            status = self.render_batches(held.data, stop, base_position)
        self.source = None
        self.text.end()
        if status == RENDER_RAISED:
            failure, self.failure = self.failure, None
            raise failure
        if status == ERR_MEMORY:
            raise MemoryError
        if status == RENDER_TEXT:
            self.asked = True
            self.key = bytes_of(self.key_at, self.key_size)
            self.value = bytes_of(self.value_at, self.value_size)
        return status

    @cython.critical_section
    def give(self, bytes words not None) -> None:
        """Ends the line that waits after NEEDS_TEXT with these words, which begin with the blank before them."""
        cdef Py_ssize_t size = len(words)
        cdef const uint8_t* source = words
        cdef uint8_t* d
        if not self.asked:
            raise ValueError("no line waits for its text")
        self.text.check_free()
        if reserve(&self.text.out, <uint64_t>size + 1) != OK:
            raise MemoryError
        d = put(self.text.out.data + self.text.out.size, <const char*>source, <size_t>size)
        d[0] = 10
        self.text.out.size = d + 1 - self.text.out.data
        self.asked = False
        self.key = self.value = None
        self.next_record += 1
        self.record_at = self.after_record

    @property
    def is_control(self) -> bool:
        """True when the record whose line waits for text is a control record."""
        return self.row.attributes & CONTROL_BIT != 0

    @property
    def batch_offset(self) -> int:
        """Base offset of the batch where it stopped."""
        return self.row.base_offset

    @property
    def record_number(self) -> int:
        """The record where it stopped, from 0 in its batch."""
        return self.next_record

    @property
    def record_position(self) -> int:
        """Position of that record in the buffer of the last call; of its batch where that is compressed."""
        return self.position if self.plain != NULL else self.position + self.record_at

    @property
    @cython.critical_section
    def non_consecutive(self) -> list[tuple[int, int]]:
        """Pairs (offset, offset that followed it and is not the next one), from -1 on; filled by deep iteration."""
        self.text.check_free()
        pairs = self.jumps.pairs
        return [(pairs[2 * i], pairs[2 * i + 1]) for i in range(self.jumps.count)]

    cdef int render_batches(self, const uint8_t* data, int64_t stop, int64_t base_position) noexcept nogil:
        cdef int status
        while True:
            if not self.inside:
                status = self.begin_batch(data + self.position, stop - self.position, added(base_position, self.position))
                if status != OK:
                    return status
            if self.deep:
                if stop - self.position < self.row.size:
                    self.needed = self.row.size
                    return RENDER_MORE
                status = self.render_batch(data + self.position)
                if status != OK:
                    return status
                self.plain = NULL
            self.inside = False
            self.position += self.row.size
            if self.text.out.size >= self.limit:
                return RENDER_FULL

    cdef int begin_batch(self, const uint8_t* p, int64_t available, int64_t file_position) noexcept nogil:
        """Reads the batch at p and prints its line, or the start of it where its codec or format is unknown."""
        cdef uint8_t* d
        cdef int64_t size = 0
        cdef int magic = 0
        cdef int stop = peek_batch(p, available, True, &size, &magic)
        if available <= HEADER_TO_MAGIC:    # the reference wants a byte behind the format, or the file ends here
            self.needed = HEADER_TO_MAGIC + 1
            return RENDER_MORE
        if stop >= 0:
            self.stop_value = size
            return RENDER_SIZE
        self.needed = size
        if size > available:
            return RENDER_MORE
        if magic >= 2 and size < V2_RECORDS_AT:
            # the reference reads a whole header all the same, from what comes after the batch
            self.needed = V2_RECORDS_AT
            if available < V2_RECORDS_AT:
                return RENDER_MORE
            read_row(p, V2_RECORDS_AT, magic, False, &self.row)
            self.row.size = size
            self.row.valid = 0
        else:
            read_row(p, size, magic, True, &self.row)
        self.next_record = 0
        self.record_at = V2_RECORDS_AT if magic >= 2 else 0
        if reserve(&self.text.out, LINE_SPACE) != OK:
            return ERR_MEMORY
        d = put_batch_start(self.text.out.data + self.text.out.size, &self.row)
        if magic < 0:
            self.stop_value = magic
            stop = RENDER_MAGIC
        elif (self.row.attributes & CODEC_MASK) > LAST_CODEC:
            self.stop_value = self.row.attributes & CODEC_MASK
            stop = RENDER_CODEC
        else:
            d = put_batch_rest(d, &self.row, file_position)
            self.inside = True
            stop = OK
        self.text.out.size = d - self.text.out.data
        return stop

    cdef int render_batch(self, const uint8_t* batch) noexcept nogil:
        """Prints the records that are left of the batch being rendered."""
        cdef int status
        if self.row.magic < 2:
            if self.plain == NULL and self.row.attributes & CODEC_MASK:
                status = self.make_plain(batch)
                if status != OK:
                    return status
            if self.plain != NULL:
                return self.render_messages(self.plain, self.plain_size)
            return self.render_messages(batch, self.row.size)
        if self.row.size < V2_RECORDS_AT:
            self.stop_value = self.row.size
            return RENDER_HEADER
        if self.row.count == 0:
            return OK               # whatever follows the header, the reference looks for no record
        if self.row.count < 0:
            return ERR_COUNT_NEGATIVE
        if self.plain == NULL and self.row.attributes & CODEC_MASK:
            status = self.make_plain(batch)
            if status != OK:
                return status
        if self.plain == NULL:
            return self.render_records(batch, self.row.size)
        if self.next_record == 0:
            status = self.check_records(self.plain, self.plain_size)
            if status != OK:
                return status
        return self.render_records(self.plain, self.plain_size)

    cdef int make_plain(self, const uint8_t* batch) noexcept nogil:
        """Sets `plain` to the batch as it would be without compression; why it cannot be otherwise."""
        cdef int status
        with gil:
            try:
                self.store.cut(0)
                status = self.unpacker.run_batch(self.store, self.source, batch, &self.row, self.decoded_limit)
                self.is_refused = status != OK
            except BaseException as error:
                self.failure = error
                return RENDER_RAISED
        if status == OK:
            self.plain = self.store.data
            self.plain_size = self.store.size
        return status

    cdef int check_records(self, const uint8_t* batch, int64_t size) noexcept nogil:
        """OK if all records are sound: the reference reads those of a compressed batch before it prints the first."""
        cdef Fields r
        cdef Cursor c
        cdef int status = OK
        cdef int64_t n = 0
        c.p = batch + V2_RECORDS_AT
        c.end = batch + size
        while n < self.row.count:
            if c.p == c.end:
                status = ERR_COUNT_HIGH
            elif not take_small_record(&c, &r):
                status = take_record(&c, &r)
            if status != OK:
                self.next_record = n
                return status
            n += 1
        return OK if c.p == c.end else ERR_COUNT_LOW

    cdef int render_records(self, const uint8_t* batch, int64_t size) noexcept nogil:
        """Render an uncompressed v2 batch."""
        cdef Fields r
        cdef Cursor c
        cdef int status
        c.p = batch + self.record_at
        c.end = batch + size
        while self.next_record < self.row.count:
            if c.p == c.end:
                return ERR_COUNT_HIGH
            status = OK
            if not take_small_record(&c, &r):
                status = take_record(&c, &r)
            if status == OK and self.next_record + 1 == self.row.count and c.p != c.end:
                status = ERR_COUNT_LOW      # the reference looks before it hands out the last record
            if status == OK:
                status = self.render_record(&r, c.p - (batch + self.record_at))
            if status != OK:
                self.after_record = c.p - batch
                return status
            self.next_record += 1
            self.record_at = c.p - batch
            if self.text.out.size >= self.limit and self.next_record < self.row.count:
                return RENDER_FULL
        return OK if c.p == c.end else ERR_COUNT_LOW

    cdef int render_record(self, Fields* r, int64_t size) noexcept nogil:
        """Prints one record of `size` bytes; where its text is the caller's, or a control record is malformed, up to
        that text."""
        cdef Out* out = &self.text.out
        cdef uint8_t* d
        cdef int status = OK
        cdef bint is_control = (self.row.attributes & CONTROL_BIT) != 0
        if self.begin_line(added(self.row.base_offset, r.offset_delta), size) != OK:
            return ERR_MEMORY
        d = out.data + out.size
        if not self.skip_metadata:
            d = put_record_fields(d, r, &self.row)
            if is_control:
                status = self.put_control(&d, r)
        if self.data and not is_control:
            if self.ask:
                status = RENDER_TEXT
            else:
                d = put_data(d, r.key, r.key_size, r.value, r.value_size, self.skip_metadata)
        return self.end_line(d, status, r.key, r.key_size, r.value, r.value_size)

    cdef int render_messages(self, const uint8_t* data, int64_t size) noexcept nogil:
        """Prints the messages that are left of a v0 or v1 batch which is not compressed."""
        cdef Message m
        cdef Cursor c
        cdef int status
        c.p = data + self.record_at
        c.end = data + size
        while True:
            status = take_frame(&c, &m)
            if status == OK and m.attributes & CODEC_MASK:
                status = ERR_WRAPPER_NESTED
            if status == OK:
                status = self.render_message(&m)
            if status != OK:
                self.after_record = c.p - data
                return OK if status == ERR_SHORT else status
            self.next_record += 1
            self.record_at = c.p - data
            if self.text.out.size >= self.limit and c.p != c.end:
                return RENDER_FULL

    cdef int render_message(self, Message* m) noexcept nogil:
        """Prints one message; one whose value runs past its end is printed up to the value, as the reference does."""
        cdef Out* out = &self.text.out
        cdef uint8_t* d
        cdef int status
        m.value_size = UNREAD
        status = take_fields(m)
        if status != OK and (status != ERR_VALUE_SIZE or m.value_size == UNREAD):
            return status
        if self.begin_line(m.offset, m.size) != OK:
            return ERR_MEMORY
        d = out.data + out.size
        if not self.skip_metadata:
            d = put_message_fields(d, m, &self.row)
        if not self.data:
            status = OK
        elif status == OK:
            if self.ask:
                status = RENDER_TEXT
            else:
                d = put_data(d, m.key, m.key_size, m.value, m.value_size, self.skip_metadata)
        return self.end_line(d, status, m.key, m.key_size, m.value, m.value_size)

    cdef inline int begin_line(self, int64_t offset, int64_t size) noexcept nogil:
        """Notes the offset of the next record line, and makes room for that of a record of `size` bytes."""
        if kl_unlikely(offset != added(self.record_offset, 1)) and add_jump(&self.jumps, self.record_offset, offset) != OK:
            return ERR_MEMORY
        self.record_offset = offset
        return reserve(&self.text.out, LINE_SPACE + <uint64_t>BODY_EXPANSION * <uint64_t>size)

    cdef inline int end_line(
        self, uint8_t* d, int status, const uint8_t* key, int32_t key_size, const uint8_t* value, int32_t value_size
    ) noexcept nogil:
        """Ends the line at d; one that is not whole (`status`) stays open."""
        if status == OK:
            d[0] = 10
            d += 1
        elif status == RENDER_TEXT:
            self.key_at, self.key_size = key, key_size
            self.value_at, self.value_size = value, value_size
        self.text.out.size = d - self.text.out.data
        return status

    cdef int put_control(self, uint8_t** d, Fields* r) noexcept nogil:
        """The text of a transaction marker (format.md section 3) or of an unknown kind; KRaft's are left to the caller."""
        cdef int16_t kind
        if r.key_size < 4 or load16(r.key) < 0:
            return RENDER_CONTROL_BAD
        kind = load16(r.key + 2)
        if FIRST_KRAFT <= kind <= LAST_KRAFT:
            return RENDER_TEXT
        if kind < 0 or kind > LAST_KRAFT:
            d[0] = put_number(put(d[0], b" controlType: UNKNOWN(", 22), kind)
            d[0] = put(d[0], b")", 1)
            return OK
        if r.value_size < 6 or load16(r.value) < 0:
            return RENDER_CONTROL_BAD
        if kind == 0:
            d[0] = put(d[0], b" endTxnMarker: ABORT coordinatorEpoch: ", 39)
        else:
            d[0] = put(d[0], b" endTxnMarker: COMMIT coordinatorEpoch: ", 40)
        d[0] = put_number(d[0], load32(r.value + 2))
        return OK
