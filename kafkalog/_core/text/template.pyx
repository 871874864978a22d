"""Records as text by a template: what `consume` writes.

A template is a list of pieces, each a kind and its bytes: literal text, key, value, offset, time, headers, as kcat's
`-f`, `-K`, `-D` and `-J` ask for them. `kafkalog/tools/consume/templates.py` makes them; this module only follows them.
"""
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free

from kafkalog._core.batch.check cimport STOP_END, STOP_MAGIC, STOP_PARTIAL, STOP_SIZE, BatchRow, peek_batch, read_row
from kafkalog._core.batch.decode cimport RecordPlace, RecordTable
from kafkalog._core.batch.fields cimport Fields, take_record
from kafkalog._core.batch.headers cimport Header, headers_of, take_header
from kafkalog._core.batch.layout cimport (
    CODEC_MASK, CONTROL_BIT, ERR_COMPRESSED, ERR_COUNT_HIGH, ERR_COUNT_LOW, ERR_COUNT_NEGATIVE, ERR_MAGIC, ERR_MEMORY,
    HEADER_TO_MAGIC, MAGIC_AT, OK, TIMESTAMP_TYPE_BIT, V2_RECORDS_AT,
)
from kafkalog._core.bytes.buffers cimport Held, hold
from kafkalog._core.bytes.cursor cimport Cursor
from kafkalog._core.bytes.endian cimport store32
from kafkalog._core.bytes.wrap cimport added, subtracted
from kafkalog._core.text.escape cimport JSON_EXPANSION, PLAIN_EXPANSION, put_base64, put_hex, put_json_string
from kafkalog._core.text.text_buffer cimport Out, TextBuffer, is_utf8, put, put_bytes, put_number, reserve

cdef enum:
    TEMPLATE_MORE = 100         # the buffer ends before the batch at `position` does; `needed` bytes would help
    TEMPLATE_FULL               # the text has reached its limit: write it out, clear it, call again
    TEMPLATE_SIZE               # a size field below the smallest legal one, in `stop_value`
    # beyond the statuses of render.pyx, since one place makes the errors of both
    TEMPLATE_DONE = 120         # the end offset or the number of records is reached
    TEMPLATE_CRC                # the batch at `position` does not match its checksum
    TEMPLATE_MAGIC              # an unknown format, in `stop_value`

NEEDS_BYTES = TEMPLATE_MORE
IS_FULL = TEMPLATE_FULL
BAD_SIZE = TEMPLATE_SIZE
IS_DONE = TEMPLATE_DONE
BAD_CRC = TEMPLATE_CRC
BAD_MAGIC = TEMPLATE_MAGIC

cdef enum Kind:
    K_LITERAL, K_VALUE, K_KEY, K_OFFSET, K_TIMESTAMP, K_TIMESTAMP_TYPE, K_VALUE_SIZE, K_KEY_SIZE, K_VALUE_SIZE_32,
    K_HEADERS, K_VALUE_BASE64, K_KEY_BASE64, K_VALUE_HEX, K_KEY_HEX, K_JSON_VALUE, K_JSON_KEY, K_JSON_HEADERS, K_END

LITERAL = K_LITERAL
VALUE = K_VALUE
KEY = K_KEY
OFFSET = K_OFFSET
TIMESTAMP = K_TIMESTAMP
TIMESTAMP_TYPE = K_TIMESTAMP_TYPE
VALUE_SIZE = K_VALUE_SIZE
KEY_SIZE = K_KEY_SIZE
VALUE_SIZE_32 = K_VALUE_SIZE_32
HEADERS = K_HEADERS
VALUE_BASE64 = K_VALUE_BASE64
KEY_BASE64 = K_KEY_BASE64
VALUE_HEX = K_VALUE_HEX
KEY_HEX = K_KEY_HEX
JSON_VALUE = K_JSON_VALUE
JSON_KEY = K_JSON_KEY
JSON_HEADERS = K_JSON_HEADERS

cdef enum:
    PIECE_SPACE = 64            # more than the constant text and numbers of any one piece


cdef struct Piece:
    int kind
    const char* data            # the text of a literal, the text of null, or the encoding asked for in JSON
    size_t size


cdef inline uint8_t* put_blob(
    uint8_t* d, int kind, const uint8_t* s, int32_t n, Piece* piece, const uint8_t* readable
) noexcept nogil:
    """A key or a value, null as the piece's own text."""
    if n < 0:
        return put(d, piece.data, piece.size)
    if kind == K_VALUE or kind == K_KEY:
        return put_bytes(d, s, n, readable)
    if kind == K_VALUE_BASE64 or kind == K_KEY_BASE64:
        return put_base64(d, s, n)
    return put_hex(d, s, n)


cdef uint8_t* put_json_blob(
    uint8_t* d, const char* name, size_t name_size, const uint8_t* s, int32_t n, Piece* piece
) noexcept nogil:
    """`"key":...` or `"payload":...`, and its encoding where the bytes are not text or one was asked for."""
    cdef bint as_hex = piece.size == 3
    cdef bint as_base64 = piece.size == 6 or (not as_hex and n >= 0 and not is_utf8(s, n))
    d = put(put(put(d, b'"', 1), name, name_size), b'":', 2)
    if n < 0:
        return put(d, b"null", 4)
    if not as_hex and not as_base64:
        return put_json_string(d, s, n)
    d = put(d, b'"', 1)
    d = put_hex(d, s, n) if as_hex else put_base64(d, s, n)
    d = put(put(put(d, b'","', 3), name, name_size), b'_encoding":"', 12)
    return put(d, b'hex"', 4) if as_hex else put(d, b'base64"', 7)


cdef bint headers_are_utf8(Fields* f) noexcept nogil:
    cdef Cursor c = headers_of(f)
    cdef Header h
    cdef int32_t i
    for i in range(f.header_count):
        if take_header(&c, &h) != OK or not is_utf8(h.key, h.key_size):
            return False
        if h.value_size >= 0 and not is_utf8(h.value, h.value_size):
            return False
    return True


cdef uint8_t* put_json_text(uint8_t* d, const uint8_t* s, int32_t n, bint as_text) noexcept nogil:
    """A JSON string, plain or in base64, or null."""
    if n < 0:
        return put(d, b"null", 4)
    if as_text:
        return put_json_string(d, s, n)
    return put(put_base64(put(d, b'"', 1), s, n), b'"', 1)


cdef uint8_t* put_json_headers(uint8_t* d, Fields* f) noexcept nogil:
    """`,"headers":[name,value,...]`, nothing without headers; all of it base64 where any of it is not text."""
    cdef Cursor c = headers_of(f)
    cdef Header h
    cdef int32_t i
    cdef bint as_text
    if f.header_count == 0:
        return d
    as_text = headers_are_utf8(f)
    d = put(d, b',"headers":[', 12)
    for i in range(f.header_count):
        if take_header(&c, &h) != OK:
            break
        if i > 0:
            d = put(d, b",", 1)
        d = put_json_text(d, h.key, h.key_size, as_text)
        d = put_json_text(put(d, b",", 1), h.value, h.value_size, as_text)
    d = put(d, b"]", 1)
    return d if as_text else put(d, b',"headers_encoding":"base64"', 28)


cdef uint8_t* put_plain_headers(uint8_t* d, Fields* f) noexcept nogil:
    """kcat's `%h`: name=value, with commas; a null value is NULL."""
    cdef Cursor c = headers_of(f)
    cdef Header h
    cdef int32_t i
    for i in range(f.header_count):
        if take_header(&c, &h) != OK:
            break
        if i > 0:
            d = put(d, b",", 1)
        d = put(put(d, <const char*>h.key, h.key_size), b"=", 1)
        d = put(d, b"NULL", 4) if h.value_size < 0 else put(d, <const char*>h.value, h.value_size)
    return d


cdef inline uint64_t expansion_of(int kind) noexcept nogil:
    """Bytes of text for a byte of record; a null header of two bytes may become `=NULL,`."""
    return JSON_EXPANSION if kind >= K_JSON_VALUE or kind == K_HEADERS else PLAIN_EXPANSION


cdef inline Py_ssize_t batch_of(RecordTable table, Py_ssize_t batch, RecordPlace* place) noexcept nogil:
    """The row of the batch that holds a record, from `batch` on: the last one that begins at or before its value."""
    cdef Py_ssize_t following = batch + 1
    while following < table.last_batch and (
        subtracted(table.batches.rows[following].position, table.base_position) <= place.value_at
    ):
        batch = following
        following += 1
    return batch


cdef inline int timestamp_type(const BatchRow* row, const uint8_t* message) noexcept nogil:
    """0 CreateTime, 1 LogAppendTime; -1 for a v0 message, also one inside a v1 wrapper."""
    if row.magic == 0 or (row.magic == 1 and message[MAGIC_AT] == 0):
        return -1
    return (row.attributes & TIMESTAMP_TYPE_BIT) != 0


@cython.final
cdef class TemplateText:
    """Renders records into `text` by a template: those of uncompressed v2 batches as they lie, others from a table.

    pieces: (kind, bytes) pairs, the kinds being this module's constants; the bytes are the text of a LITERAL, of a
    null key or value, or the forced encoding (b"base64", b"hex") of JSON_KEY and JSON_VALUE.
    first_offset, end_offset: records outside [first_offset, end_offset) are left out. max_records: at most so many,
    -1 for all. `render` never shows control batches. check_crc: a batch that does not match its checksum stops it.
    limit: bytes of text after which the work returns, at the next record.
    """

    cdef readonly TextBuffer text
    cdef readonly int64_t position      # in the buffer of the last call: the batch to go on with
    cdef readonly int64_t needed        # bytes from `position` on that the next step needs
    cdef readonly int64_t stop_value
    cdef readonly int64_t next_offset   # the first offset not yet dealt with
    cdef readonly int64_t records       # rendered so far
    cdef int64_t end_offset
    cdef int64_t max_records
    cdef bint check_crc
    cdef size_t limit
    cdef Piece* pieces
    cdef int piece_count
    cdef list kept                      # the bytes that the pieces point into
    cdef uint64_t fixed_space           # of one line, its keys, values and headers left out
    cdef uint64_t expansion             # bytes of text for a byte of record
    cdef BatchRow row                   # the batch being rendered, where `inside`
    cdef bint inside
    cdef int64_t next_record
    cdef int64_t record_at              # from the start of the batch
    cdef int64_t timestamp              # of the record being rendered
    cdef int timestamp_type             # 0 create, 1 append, -1 for a v0 message
    cdef readonly Py_ssize_t next_row   # in the table of the last call: the record to go on with

    def __cinit__(
        self, pieces, *, int64_t first_offset=0, int64_t end_offset=0x7FFFFFFFFFFFFFFF, int64_t max_records=-1,
        bint check_crc=True, size_t limit=1 << 18,
    ):
        cdef bytes text
        cdef int kind
        self.kept = [(int(kind), bytes(memoryview(text))) for kind, text in pieces]
        self.pieces = <Piece*>calloc(len(self.kept) + 1, sizeof(Piece))
        if self.pieces == NULL:
            raise MemoryError
        for kind, text in self.kept:
            if kind < 0 or kind >= K_END:
                raise ValueError(f"no kind of piece: {kind}")
            self.pieces[self.piece_count] = Piece(kind, text, len(text))
            self.piece_count += 1
            self.fixed_space += len(text) + PIECE_SPACE
            self.expansion += expansion_of(kind)
        self.text = TextBuffer()
        self.next_offset = first_offset
        self.end_offset = end_offset
        self.max_records = max_records
        self.check_crc = check_crc
        self.limit = limit

    def __dealloc__(self):
        free(self.pieces)

    @cython.critical_section
    def render(self, buffer, int64_t start, int64_t stop) -> int:
        """Why it stopped: one of this module's constants, or a status of layout.pxd for a malformed record.

        Renders the batches of `buffer[start:stop]`. After IS_FULL and NEEDS_BYTES call again, from `position` on,
        with at least `needed` bytes after the latter.
        """
        cdef Held held = hold(buffer)
        cdef int status
        if start < 0 or stop < start or stop > held.size:
            raise ValueError(f"range {start}..{stop} is outside a buffer of {held.size} bytes")
        self.text.begin()
        self.position = start
        with nogil:
            status = self.render_batches(held.data, stop, held.data + held.size)
        self.text.end()
        if status == ERR_MEMORY:
            raise MemoryError
        return status

    @cython.critical_section
    def render_table(self, RecordTable table not None, Py_ssize_t row=0) -> int:
        """0 once all records from `row` on are rendered, else why it stopped: IS_FULL or IS_DONE.

        After IS_FULL call again, from `next_row` on.
        """
        cdef int status
        if row < 0 or row > table.count:
            raise IndexError(f"record {row} of a table of {table.count}")
        self.text.begin()
        self.next_row = row
        with nogil:
            status = self.render_rows(table)
        self.text.end()
        if status == ERR_MEMORY:
            raise MemoryError
        return status

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
        """Position of that record in the buffer of the last call."""
        return self.position + self.record_at

    cdef int render_batches(self, const uint8_t* data, int64_t stop, const uint8_t* readable) noexcept nogil:
        cdef int status
        while True:
            if self.records == self.max_records or self.next_offset >= self.end_offset:
                return TEMPLATE_DONE
            if not self.inside:
                status = self.begin_batch(data + self.position, stop - self.position)
                if status != OK:
                    return status
            if self.inside:
                if stop - self.position < self.row.size:
                    self.needed = self.row.size
                    return TEMPLATE_MORE
                status = self.render_records(data + self.position, readable)
                if status != OK:
                    return status
                self.inside = False
            if self.row.last_offset >= self.next_offset:
                self.next_offset = added(self.row.last_offset, 1)
            self.position += self.row.size
            if self.text.out.size >= self.limit:
                return TEMPLATE_FULL

    cdef int begin_batch(self, const uint8_t* p, int64_t available) noexcept nogil:
        """Read the batch at p; `inside` is set where it has records to show."""
        cdef int64_t size = 0
        cdef int magic = 0
        cdef int stop = peek_batch(p, available, False, &size, &magic)
        if stop == STOP_SIZE or stop == STOP_MAGIC:
            self.stop_value = size if stop == STOP_SIZE else magic
            return TEMPLATE_SIZE if stop == STOP_SIZE else TEMPLATE_MAGIC
        self.needed = HEADER_TO_MAGIC if stop == STOP_END or stop == STOP_PARTIAL else size
        if self.needed > available:
            return TEMPLATE_MORE
        read_row(p, size, magic, False, &self.row)
        self.next_record = 0
        self.record_at = V2_RECORDS_AT
        if self.row.base_offset >= self.end_offset:
            return TEMPLATE_DONE
        if magic < 2:
            return ERR_MAGIC
        if self.row.last_offset < self.next_offset and size >= V2_RECORDS_AT:
            return OK
        if self.check_crc or size < V2_RECORDS_AT:
            read_row(p, size, magic, True, &self.row)
            if not self.row.valid:
                return TEMPLATE_CRC
        if self.row.attributes & CONTROL_BIT:
            return OK
        if self.row.attributes & CODEC_MASK:
            return ERR_COMPRESSED
        if self.row.count < 0:
            return ERR_COUNT_NEGATIVE
        self.inside = True
        return OK

    cdef int render_records(self, const uint8_t* batch, const uint8_t* readable) noexcept nogil:
        """Renders the records that are left of the batch being rendered."""
        cdef Fields f
        cdef Cursor c
        cdef int64_t offset
        cdef int status
        c.p = batch + self.record_at
        c.end = batch + self.row.size
        self.timestamp_type = (self.row.attributes & TIMESTAMP_TYPE_BIT) != 0
        while self.next_record < self.row.count:
            if c.p == c.end:
                return ERR_COUNT_HIGH
            status = take_record(&c, &f)
            if status != OK:
                return status
            offset = added(self.row.base_offset, f.offset_delta)
            if offset >= self.next_offset:
                if offset >= self.end_offset or self.records == self.max_records:
                    return TEMPLATE_DONE
                if self.row.attributes & TIMESTAMP_TYPE_BIT:
                    self.timestamp = self.row.max_timestamp
                else:
                    self.timestamp = added(self.row.base_timestamp, f.timestamp_delta)
                if self.render_record(&f, offset, readable) != OK:
                    return ERR_MEMORY
                self.next_offset = added(offset, 1)
                self.records += 1
            self.next_record += 1
            self.record_at = c.p - batch
            if self.text.out.size >= self.limit and self.next_record < self.row.count:
                return TEMPLATE_FULL
        return OK if c.p == c.end else ERR_COUNT_LOW

    cdef int render_rows(self, RecordTable table) noexcept nogil:
        """Renders the records of a table from `next_row` on."""
        cdef const uint8_t* data = table.data
        cdef Py_ssize_t batch = table.first_batch
        cdef RecordPlace* place
        cdef Fields f
        cdef int64_t offset
        f.timestamp_delta = f.offset_delta = 0
        f.end = data + table.view.len
        while self.next_row < table.count:
            offset = table.offset_column[self.next_row]
            if self.records == self.max_records or offset >= self.end_offset:
                return TEMPLATE_DONE
            place = &table.places[self.next_row]
            if offset >= self.next_offset:
                batch = batch_of(table, batch, place)
                self.timestamp = table.timestamp_column[self.next_row]
                self.timestamp_type = timestamp_type(&table.batches.rows[batch], data + place.headers_at)
                f.key, f.key_size = data + place.key_at, place.key_size
                f.value, f.value_size = data + place.value_at, place.value_size
                f.headers, f.header_count = data + place.headers_at, place.header_count
                f.body_size = place.record_size
                if self.render_record(&f, offset, f.end) != OK:
                    return ERR_MEMORY
                self.next_offset = added(offset, 1)
                self.records += 1
            self.next_row += 1
            if self.text.out.size >= self.limit and self.next_row < table.count:
                return TEMPLATE_FULL
        return OK

    cdef inline int render_record(self, Fields* f, int64_t offset, const uint8_t* readable) noexcept nogil:
        cdef Out* out = &self.text.out
        cdef uint8_t* d
        cdef Piece* piece
        cdef int i
        if reserve(out, self.fixed_space + self.expansion * <uint64_t>f.body_size) != OK:
            return ERR_MEMORY
        d = out.data + out.size
        for i in range(self.piece_count):
            piece = self.pieces + i
            if piece.kind == K_LITERAL:
                d = put(d, piece.data, piece.size)
            elif piece.kind == K_VALUE:
                d = put_blob(d, K_VALUE, f.value, f.value_size, piece, readable)
            elif piece.kind == K_KEY:
                d = put_blob(d, K_KEY, f.key, f.key_size, piece, readable)
            else:
                d = self.put_piece(d, f, offset, piece)
        out.size = d - out.data
        return OK

    cdef uint8_t* put_piece(self, uint8_t* d, Fields* f, int64_t offset, Piece* piece) noexcept nogil:
        """The pieces that a plain `consume` does not use."""
        cdef int kind = piece.kind
        if kind == K_OFFSET:
            return put_number(d, offset)
        if kind == K_TIMESTAMP:
            return put_number(d, self.timestamp)
        if kind == K_TIMESTAMP_TYPE:
            if self.timestamp_type < 0:
                return put(d, b"unknown", 7)
            return put(d, b"logappend", 9) if self.timestamp_type else put(d, b"create", 6)
        if kind == K_VALUE_SIZE:
            return put_number(d, f.value_size)
        if kind == K_KEY_SIZE:
            return put_number(d, f.key_size)
        if kind == K_VALUE_SIZE_32:
            store32(d, f.value_size)
            return d + 4
        if kind == K_HEADERS:
            return put_plain_headers(d, f)
        if kind == K_VALUE_BASE64 or kind == K_VALUE_HEX:
            return put_blob(d, kind, f.value, f.value_size, piece, f.end)
        if kind == K_KEY_BASE64 or kind == K_KEY_HEX:
            return put_blob(d, kind, f.key, f.key_size, piece, f.end)
        if kind == K_JSON_VALUE:
            return put_json_blob(d, b"payload", 7, f.value, f.value_size, piece)
        if kind == K_JSON_KEY:
            return put_json_blob(d, b"key", 3, f.key, f.key_size, piece)
        return put_json_headers(d, f)
