# cython: language_level=3
"""The dump tool's text of `.log` files: batch lines and record lines, as the reference prints them.

The text is that of format.md section 12, rules A1 to A4 of section 13 and checklist DUMP-1, 2, 3, 9, 11 and 14.
"""
cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc

from kafkalog._core.batch cimport STOP_END, STOP_PARTIAL, BatchRow, peek_batch, read_row
from kafkalog._core.buffers cimport Held, hold
from kafkalog._core.cursor cimport Cursor
from kafkalog._core.endian cimport load16, load32
from kafkalog._core.fields cimport Fields, take_record
from kafkalog._core.headers cimport Header, headers_of, take_header
from kafkalog._core.layout cimport (
    CODEC_MASK, CONTROL_BIT, DELETE_HORIZON_BIT, ERR_COUNT_HIGH, ERR_COUNT_LOW, ERR_COUNT_NEGATIVE,
    ERR_MAGIC, ERR_MEMORY, HEADER_TO_MAGIC, OK, TIMESTAMP_TYPE_BIT, TRANSACTIONAL_BIT,
    V2_RECORDS_AT,
)
from kafkalog._core.text cimport Out, TextBuffer, added, kl_unlikely, put, put_java_text, put_number, put_unsigned, reserve

cdef enum:
    RENDER_MORE = 100           # the buffer ends before the batch at `position` does; `needed` bytes would help
    RENDER_FULL = 101           # the text has reached its limit: write it out, clear it, call again
    RENDER_SIZE = 102           # a size field below the smallest legal one, in `stop_value`
    RENDER_CODEC = 103          # an unknown compression id, in `stop_value`
    RENDER_TEXT = 104           # a record line waits for the caller's words: `give` them and call again
    RENDER_CONTROL_BAD = 105    # a control record whose key or value is malformed
    RENDER_HEADER = 106         # the batch's size field is smaller than the batch header
    RENDER_RECORDS = 107        # the batch's records are compressed: `give_records` and call again

    LAST_CODEC = 4              # zstd; the ids above it mean nothing
    FIRST_KRAFT = 2             # control types: ABORT and COMMIT come before, the last KRaft kind is KRAFT_VOTERS
    LAST_KRAFT = 6

    LINE_SPACE = 640            # more than the constant parts and numbers of any one line
    BODY_EXPANSION = 4          # bytes of text for a byte of record: U+FFFD takes three, a header's comma is a fourth

NEEDS_BYTES = RENDER_MORE
IS_FULL = RENDER_FULL
BAD_SIZE = RENDER_SIZE
BAD_CODEC = RENDER_CODEC
NEEDS_TEXT = RENDER_TEXT
BAD_CONTROL = RENDER_CONTROL_BAD
BAD_HEADER = RENDER_HEADER
NEEDS_RECORDS = RENDER_RECORDS


cdef bytes bytes_of(const uint8_t* data, int32_t size):
    """A copy, None for null."""
    return None if size < 0 else PyBytes_FromStringAndSize(<const char*>data, size)


cdef inline uint8_t* put_bool(uint8_t* d, bint value) noexcept nogil:
    return put(d, b"true", 4) if value else put(d, b"false", 5)


cdef inline int32_t increment_sequence(int32_t sequence, int32_t increment) noexcept nogil:
    """Sequence arithmetic of the reference: 0 follows 2147483647 (format.md section 1), 32-bit wrap elsewhere."""
    cdef uint32_t room = 0x7FFFFFFFU - <uint32_t>increment
    if sequence > <int32_t>room:
        return <int32_t>(<uint32_t>increment - (0x7FFFFFFFU - <uint32_t>sequence) - 1)
    return <int32_t>(<uint32_t>sequence + <uint32_t>increment)


cdef uint8_t* put_codec(uint8_t* d, int codec) noexcept nogil:
    if codec == 0:
        return put(d, b"none", 4)
    if codec == 1:
        return put(d, b"gzip", 4)
    if codec == 2:
        return put(d, b"snappy", 6)
    return put(d, b"lz4", 3) if codec == 3 else put(d, b"zstd", 4)


cdef uint8_t* put_timestamp_type(uint8_t* d, BatchRow* row) noexcept nogil:
    if row.magic == 0:
        return put(d, b"NoTimestampType", 15)
    if row.attributes & TIMESTAMP_TYPE_BIT:
        return put(d, b"LogAppendTime", 13)
    return put(d, b"CreateTime", 10)


cdef uint8_t* put_batch_fields(uint8_t* d, BatchRow* row) noexcept nogil:
    """The part of a v2 batch line before its position."""
    cdef int32_t last_sequence = -1
    if row.base_sequence != -1:
        last_sequence = increment_sequence(row.base_sequence, row.last_delta)
    d = put_number(put(d, b"baseOffset: ", 12), row.base_offset)
    d = put_number(put(d, b" lastOffset: ", 13), row.last_offset)
    d = put_number(put(d, b" count: ", 8), row.count)
    d = put_number(put(d, b" baseSequence: ", 15), row.base_sequence)
    d = put_number(put(d, b" lastSequence: ", 15), last_sequence)
    d = put_number(put(d, b" producerId: ", 13), row.producer_id)
    d = put_number(put(d, b" producerEpoch: ", 16), row.producer_epoch)
    d = put_number(put(d, b" partitionLeaderEpoch: ", 23), row.leader_epoch)
    d = put_bool(put(d, b" isTransactional: ", 18), row.attributes & TRANSACTIONAL_BIT)
    d = put_bool(put(d, b" isControl: ", 12), row.attributes & CONTROL_BIT)
    if not row.attributes & DELETE_HORIZON_BIT:
        return put(d, b" deleteHorizonMs: OptionalLong.empty", 36)
    d = put_number(put(d, b" deleteHorizonMs: OptionalLong[", 31), row.base_timestamp)
    return put(d, b"]", 1)


cdef uint8_t* put_batch_line(uint8_t* d, BatchRow* row, int64_t position) noexcept nogil:
    if row.magic >= 2:
        d = put_batch_fields(d, row)
    else:
        d = put_number(put(d, b"offset: ", 8), row.last_offset)
    d = put_number(put(d, b" position: ", 11), position)
    d = put_timestamp_type(put(d, b" ", 1), row)
    d = put_number(put(d, b": ", 2), row.max_timestamp)
    d = put_number(put(d, b" size: ", 7), row.size)
    d = put_number(put(d, b" magic: ", 8), row.magic)
    d = put_codec(put(d, b" compresscodec: ", 16), row.attributes & CODEC_MASK)
    d = put_unsigned(put(d, b" crc: ", 6), row.crc)
    d = put_bool(put(d, b" isvalid: ", 10), row.valid)
    return put(d, b"\n", 1)


cdef uint8_t* put_header_keys(uint8_t* d, Fields* r) noexcept nogil:
    """The names of headers that take_record has checked, between brackets, with commas."""
    cdef Cursor c = headers_of(r)
    cdef Header h
    cdef int32_t i
    for i in range(r.header_count):
        if take_header(&c, &h) != OK:
            break
        if i > 0:
            d = put(d, b",", 1)
        d = put_java_text(d, h.key, h.key_size)
    return d


cdef uint8_t* put_record_fields(uint8_t* d, Fields* r, BatchRow* row) noexcept nogil:
    """`| offset: ...` up to the header keys and their bracket."""
    cdef int64_t timestamp = added(row.base_timestamp, r.timestamp_delta)
    d = put_number(put(d, b"| offset: ", 10), added(row.base_offset, r.offset_delta))
    if row.attributes & TIMESTAMP_TYPE_BIT:
        timestamp = row.max_timestamp
        d = put(d, b" LogAppendTime: ", 16)
    else:
        d = put(d, b" CreateTime: ", 13)
    d = put_number(d, timestamp)
    if r.key_size < 0:
        d = put(d, b" keySize: -1 valueSize: ", 24)
    else:
        d = put_number(put(d, b" keySize: ", 10), r.key_size)
        d = put(d, b" valueSize: ", 12)
    d = put_number(d, r.value_size)
    if row.base_sequence < 0:
        d = put(d, b" sequence: -1 headerKeys: [", 27)
    else:
        d = put_number(put(d, b" sequence: ", 11), increment_sequence(row.base_sequence, r.offset_delta))
        d = put(d, b" headerKeys: [", 14)
    if r.header_count > 0:
        d = put_header_keys(d, r)
    return put(d, b"]", 1)


@cython.final
cdef class DumpText:
    """Renders the batches of a `.log` file, a buffer at a time, into `text`.

    `render` writes whole lines and stops when the text reaches `limit` bytes, when the buffer ends inside a batch, or
    at damage; the text of everything before the stop is there. It goes on where it stopped, inside a batch too.

    deep: print record lines. data: with keys and values. skip_metadata: record lines hold nothing but those.
    ask: the caller gives the text of keys and values, a record at a time; it always does for KRaft's control records.
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
    cdef Fields record                  # that line's, in the buffer of the call at hand
    cdef Held inner                     # owner of `plain`
    cdef const uint8_t* plain           # the batch at hand as it would be uncompressed; NULL where it is not
    cdef int64_t plain_size
    cdef size_t limit
    cdef BatchRow row                   # the batch being rendered, where `inside`
    cdef bint inside
    cdef int64_t next_record
    cdef int64_t record_at              # from the start of the batch
    cdef int64_t after_record           # the same of the record behind the one that waits for text
    cdef int64_t* jumps                 # pairs of offsets that do not follow each other
    cdef int64_t jump_count
    cdef int64_t jump_space

    def __cinit__(
        self, *, bint deep=False, bint data=False, bint skip_metadata=False, bint ask=False, size_t limit=1 << 18
    ):
        self.text = TextBuffer()
        self.deep = deep or data
        self.data = data
        self.skip_metadata = skip_metadata
        self.ask = ask
        self.limit = limit
        self.record_offset = -1

    def __dealloc__(self):
        free(self.jumps)

    def render(self, buffer, int64_t start, int64_t stop, int64_t base_position) -> int:
        """Why it stopped: one of this module's constants, or a status of layout.pxd for a malformed record.

        Renders the batches of `buffer[start:stop]`, where the file's byte `base_position` is the buffer's byte 0.
        After IS_FULL and NEEDS_BYTES call again, from `position` on, with at least `needed` bytes after the latter;
        after NEEDS_TEXT and NEEDS_RECORDS with the same bytes, once `give` or `give_records` has been called.
        """
        cdef Held held = hold(buffer)
        cdef int status
        if start < 0 or stop < start or stop > held.size:
            raise ValueError(f"range {start}..{stop} is outside a buffer of {held.size} bytes")
        if self.asked:
            raise ValueError("the last line waits for its text")
        self.text.begin()
        self.position = start
        with nogil:
            status = self.render_batches(held.data, stop, base_position)
        self.text.end()
        if status == ERR_MEMORY:
            raise MemoryError
        if status == RENDER_TEXT:
            self.asked = True
            self.key = bytes_of(self.record.key, self.record.key_size)
            self.value = bytes_of(self.record.value, self.record.value_size)
        return status

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

    def give_records(self, plain) -> None:
        """After NEEDS_RECORDS: the batch at `position` as it would be without compression, header included.

        Its size fields, attributes and checksum have no meaning, the batch line has been printed by then. The buffer
        is held until the batch's last record is printed.
        """
        cdef Held held = hold(plain)
        if not self.inside or self.plain != NULL:
            raise ValueError("no batch waits for its records")
        if held.size < V2_RECORDS_AT:
            raise ValueError(f"{held.size} bytes are no batch")
        self.inner = held
        self.plain = held.data
        self.plain_size = held.size

    @property
    def is_control(self) -> bool:
        """True when the record whose line waits for text is a control record."""
        return self.row.attributes & CONTROL_BIT != 0

    @property
    def batch_offset(self) -> int:
        """Base offset of the batch where it stopped."""
        return self.row.base_offset

    @property
    def batch_size(self) -> int:
        """Bytes of the batch where it stopped."""
        return self.row.size

    @property
    def batch_magic(self) -> int:
        """Format of the batch where it stopped."""
        return self.row.magic

    @property
    def batch_codec(self) -> int:
        """Compression id of the batch where it stopped."""
        return self.row.attributes & CODEC_MASK

    @property
    def record_number(self) -> int:
        """The record where it stopped, from 0 in its batch."""
        return self.next_record

    @property
    def record_position(self) -> int:
        """Where that record begins, in the buffer of the last call; for a compressed one its batch."""
        return self.position if self.plain != NULL else self.position + self.record_at

    @property
    def non_consecutive(self) -> list[tuple[int, int]]:
        """Pairs (offset, offset that followed it and is not the next one), from -1 on; filled by deep iteration."""
        self.text.check_free()
        return [(self.jumps[2 * i], self.jumps[2 * i + 1]) for i in range(self.jump_count)]

    cdef int render_batches(self, const uint8_t* data, int64_t stop, int64_t base_position) noexcept nogil:
        cdef int status
        while True:
            if not self.inside:
                status = self.begin_batch(data + self.position, stop - self.position, base_position + self.position)
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
        """Reads the batch at p and prints its line."""
        cdef int64_t size = 0
        cdef int magic = 0
        cdef int stop = peek_batch(p, available, True, &size, &magic)
        if stop == STOP_END or stop == STOP_PARTIAL:
            self.needed = HEADER_TO_MAGIC
            return RENDER_MORE
        if stop >= 0:
            self.stop_value = size
            return RENDER_SIZE
        self.needed = size
        if size > available:
            return RENDER_MORE
        if magic >= 2 and size < V2_RECORDS_AT:
            self.stop_value = size
            return RENDER_HEADER
        read_row(p, size, magic, True, &self.row)
        self.next_record = 0
        self.record_at = V2_RECORDS_AT
        if (self.row.attributes & CODEC_MASK) > LAST_CODEC:
            self.stop_value = self.row.attributes & CODEC_MASK
            return RENDER_CODEC
        if reserve(&self.text.out, LINE_SPACE) != OK:
            return ERR_MEMORY
        self.text.out.size = (
            put_batch_line(self.text.out.data + self.text.out.size, &self.row, file_position) - self.text.out.data
        )
        self.inside = True
        return OK

    cdef int render_batch(self, const uint8_t* batch) noexcept nogil:
        """Prints the records that are left of the batch being rendered."""
        if self.row.magic < 2:
            return ERR_MAGIC
        if self.row.count == 0:
            return OK               # whatever follows the header, the reference looks for no record
        if self.row.count < 0:
            return ERR_COUNT_NEGATIVE
        if self.plain != NULL:
            return self.render_records(self.plain, self.plain_size)
        if self.row.attributes & CODEC_MASK:
            return RENDER_RECORDS
        return self.render_records(batch, self.row.size)

    cdef int render_records(self, const uint8_t* batch, int64_t size) noexcept nogil:
        """The same for a v2 batch that is not compressed."""
        cdef Fields r
        cdef Cursor c
        cdef int status
        c.p = batch + self.record_at
        c.end = batch + size
        while self.next_record < self.row.count:
            if c.p == c.end:
                return ERR_COUNT_HIGH
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
        cdef int64_t offset = added(self.row.base_offset, r.offset_delta)
        if kl_unlikely(offset != added(self.record_offset, 1)) and self.add_jump(self.record_offset, offset) != OK:
            return ERR_MEMORY
        self.record_offset = offset
        if reserve(out, LINE_SPACE + <uint64_t>BODY_EXPANSION * <uint64_t>size) != OK:
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
                d = self.put_data(d, r)
        if status == OK:
            d[0] = 10
            d += 1
        elif status == RENDER_TEXT:
            self.record = r[0]
        out.size = d - out.data
        return status

    cdef inline uint8_t* put_data(self, uint8_t* d, Fields* r) noexcept nogil:
        """Key and value; a line that holds nothing else begins with the bar of a record line."""
        cdef bint first = self.skip_metadata
        if r.key_size >= 0:
            d = put(d, b"| key: ", 7) if first else put(d, b" key: ", 6)
            d = put_java_text(d, r.key, r.key_size)
            first = False
        if r.value_size >= 0:
            d = put(d, b"| payload: ", 11) if first else put(d, b" payload: ", 10)
            d = put_java_text(d, r.value, r.value_size)
        return d

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

    cdef int add_jump(self, int64_t before, int64_t after) noexcept nogil:
        cdef int64_t* grown
        if self.jump_count == self.jump_space:
            self.jump_space = 16 + 2 * self.jump_space
            grown = <int64_t*>realloc(self.jumps, <size_t>self.jump_space * 2 * sizeof(int64_t))
            if grown == NULL:
                return ERR_MEMORY
            self.jumps = grown
        self.jumps[2 * self.jump_count] = before
        self.jumps[2 * self.jump_count + 1] = after
        self.jump_count += 1
        return OK
