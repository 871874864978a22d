"""Records of uncompressed batches as columns: 28 bytes of places and two int64 columns a record, no Python object.

Compressed batches are made into uncompressed ones first: see arena.pyx.
"""
cimport cython
from cpython.buffer cimport PyBuffer_Release
from cpython.bytearray cimport PyByteArray_CheckExact
from cpython.bytes cimport PyBytes_CheckExact, PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_Check, PyMemoryView_GET_BUFFER
from cpython.unicode cimport PyUnicode_DecodeUTF8

from kafkalog._core.batch.batch_range cimport ERR_BATCH_RANGE, is_misplaced
from kafkalog._core.batch.check cimport BatchRow, place_of
from kafkalog._core.batch.fields cimport Fields, take_record, take_small_record
from kafkalog._core.batch.headers cimport Header, take_header
from kafkalog._core.batch.layout cimport (
    CODEC_MASK, CONTROL_BIT, ERR_COMPRESSED, ERR_COUNT_HIGH, ERR_COUNT_LOW, ERR_COUNT_NEGATIVE, ERR_HEADER_COUNT,
    ERR_HEADER_KEY, ERR_HEADER_VALUE, ERR_KEY_SIZE, ERR_MAGIC, ERR_MESSAGE_SIZE, ERR_RECORD_BODY, ERR_RECORD_OFFSET,
    ERR_RECORD_SIZE, ERR_SHORT, ERR_VALUE_SIZE, ERR_VARINT, ERR_WRAPPER_CODEC, ERR_WRAPPER_EMPTY, ERR_WRAPPER_NESTED, ERR_WRAPPER_NULL,
    ERR_WRAPPER_OFFSET, MAGIC_AT, MIN_RECORD_BYTES, OK, TIMESTAMP_TYPE_BIT, V0_MIN_MESSAGE, V2_RECORDS_AT,
)
from kafkalog._core.batch.legacy_message cimport Message, take_fields, take_frame
from kafkalog._core.batch.record cimport Record, record_of
from kafkalog._core.bytes.buffers cimport column, take_view
from kafkalog._core.bytes.cursor cimport Cursor
from kafkalog._core.bytes.prefetch cimport kl_prefetch
from kafkalog._core.bytes.spare cimport give_memory, take_memory
from kafkalog._core.bytes.wrap cimport added, subtracted

STATUS_OK = OK
STATUS_COMPRESSED = ERR_COMPRESSED
STATUS_MAGIC = ERR_MAGIC
STATUS_MESSAGE_SIZE = ERR_MESSAGE_SIZE
STATUS_BATCH_RANGE = ERR_BATCH_RANGE

STATUS_TEXT = {
    OK: "ok",
    ERR_SHORT: "a field runs past the end of its record",
    ERR_VARINT: "a variable-length integer is longer than its type allows",
    ERR_RECORD_SIZE: "a record's length is negative or runs past the end of its batch",
    ERR_RECORD_BODY: "a record's fields do not fill its length",
    ERR_KEY_SIZE: "a key runs past the end of its record",
    ERR_VALUE_SIZE: "a value runs past the end of its record",
    ERR_HEADER_COUNT: "a header count is negative or larger than the bytes left",
    ERR_HEADER_KEY: "a header key is null or runs past the end of its record",
    ERR_HEADER_VALUE: "a header value runs past the end of its record",
    ERR_COUNT_LOW: "bytes are left after the number of records that the batch declares",
    ERR_COUNT_HIGH: "the batch declares more records than it holds",
    ERR_COUNT_NEGATIVE: "the batch declares a negative number of records",
    ERR_COMPRESSED: "the batch is compressed",
    ERR_MAGIC: "the format is none of v0, v1 and v2",
    ERR_MESSAGE_SIZE: "a message is shorter than its own header",
    ERR_WRAPPER_NULL: "a compressed message has no value",
    ERR_WRAPPER_EMPTY: "a compressed message holds no inner messages",
    ERR_WRAPPER_NESTED: "a compressed message holds another compressed one",
    ERR_WRAPPER_OFFSET: "the offset of a compressed message lies below that of its last inner message",
    ERR_WRAPPER_CODEC: "a message of format v0 or v1 is compressed with zstd",
    ERR_BATCH_RANGE: "the batch ends below its base offset",
    ERR_RECORD_OFFSET: "a record's offset is outside its batch or not above that of the record before",
}


class DamagedField(ValueError):
    """A key or value whose length runs past its message; only a lenient table has such records."""


cdef RecordPlace no_place           # where the columns of a table without records point


@cython.final
@cython.no_gc_clear                 # the collector would drop the chunk without releasing it, and `data` would dangle
cdef class RecordTable:
    """The records of one or more batches of a chunk, in order; it keeps the chunk alive.

    `offsets` and `timestamps` (ms) are contiguous int64 columns; `table[i]` is a Record, `key(i)` and `value(i)` are
    bytes or None. Where decoding stopped early, `status` is not 0: `error_batch` is the row in the batch table,
    `error_position` the byte in the chunk where the bad record begins, `error_record` its number in the batch, and
    `error_text` says what is wrong. All records before it are in the table.
    """

    def __cinit__(self):
        self.places = &no_place
        self.error_batch = -1
        self.error_position = -1
        self.error_record = -1

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)
        give_memory(<char*>self.offset_column, self.capacity)

    cdef int allocate(self, Py_ssize_t rows) except -1:
        # one block, three parts
        cdef size_t each = 2 * sizeof(int64_t) + sizeof(RecordPlace)
        cdef char* block = take_memory(each * <size_t>rows, &self.capacity)
        if block == NULL:
            raise MemoryError
        self.offset_column = <int64_t*>block
        self.timestamp_column = self.offset_column + rows
        self.places = <RecordPlace*>(self.timestamp_column + rows)
        return 0

    cdef Py_ssize_t check(self, Py_ssize_t i) except -1:
        if i < 0:
            i += self.count
        if i < 0 or i >= self.count:
            raise IndexError(f"record {i} of a table of {self.count}")
        return i

    cdef object key_at(self, Py_ssize_t i):
        cdef RecordPlace* p = &self.places[i]
        if p.key_size < 0:
            return null(p.key_size, "key")
        return PyBytes_FromStringAndSize(<char*>self.data + p.key_at, p.key_size)

    cdef object value_at(self, Py_ssize_t i):
        cdef RecordPlace* p = &self.places[i]
        if p.value_size < 0:
            return null(p.value_size, "value")
        return PyBytes_FromStringAndSize(<char*>self.data + p.value_at, p.value_size)

    cdef tuple headers_at(self, Py_ssize_t i):
        cdef RecordPlace* p = &self.places[i]
        cdef Cursor c
        cdef Header h
        cdef int32_t n
        cdef list out
        if p.header_count == 0:
            return ()
        out = []
        c.p = self.data + p.headers_at
        c.end = self.data + self.view.len
        for n in range(p.header_count):
            # lengths were checked when the record was decoded, but somebody may have written to the chunk since
            if take_header(&c, &h) != OK:
                raise ValueError(f"the bytes of record {i} were overwritten after it was decoded")
            name = PyUnicode_DecodeUTF8(<char*>h.key, h.key_size, "replace")
            out.append((name, None if h.value_size < 0 else PyBytes_FromStringAndSize(<char*>h.value, h.value_size)))
        return tuple(out)

    @property
    def offsets(self):
        return column(self, self.offset_column, self.count, 8, c"q")

    @property
    def timestamps(self):
        return column(self, self.timestamp_column, self.count, 8, c"q")

    @property
    def key_sizes(self):
        return column(self, &self.places.key_size, self.count, sizeof(RecordPlace), c"i")

    @property
    def value_sizes(self):
        return column(self, &self.places.value_size, self.count, sizeof(RecordPlace), c"i")

    @property
    def record_sizes(self):
        """Bytes of each record in its batch, the length field counted."""
        return column(self, &self.places.record_size, self.count, sizeof(RecordPlace), c"i")

    @property
    def key_positions(self):
        return column(self, &self.places.key_at, self.count, sizeof(RecordPlace), c"i")

    @property
    def error_text(self) -> str:
        return STATUS_TEXT[self.status]

    def key(self, Py_ssize_t i):
        return self.key_at(self.check(i))

    def value(self, Py_ssize_t i):
        return self.value_at(self.check(i))

    def headers(self, Py_ssize_t i):
        return self.headers_at(self.check(i))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, Py_ssize_t i) -> Record:
        return record_of(self, self.check(i))

    def __iter__(self):
        cdef Py_ssize_t i
        for i in range(self.count):
            yield record_of(self, i)

    def find(self, int64_t offset) -> int:
        """The row of the first record at or above `offset`; the number of rows where there is none."""
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = self.count
        cdef Py_ssize_t middle
        while low < high:
            middle = (low + high) >> 1
            if self.offset_column[middle] < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def find_timestamp(self, int64_t timestamp, int64_t start_offset) -> int:
        """The row of the first record at or above `start_offset` whose timestamp (ms) is at or above; -1 for none."""
        cdef Py_ssize_t i
        for i in range(self.count):
            if self.timestamp_column[i] >= timestamp and self.offset_column[i] >= start_offset:
                return i
        return -1

    cdef BatchRow* batch_row(self, Py_ssize_t i) noexcept nogil:
        """The batch of an existing record.

        By place, not by offset: a damaged batch may hold offsets outside its own range; the value's place is always
        inside the record, since a header count follows, or inside the message.
        """
        cdef int64_t place = self.places[i].value_at
        cdef Py_ssize_t low = self.first_batch
        cdef Py_ssize_t high = self.last_batch
        cdef Py_ssize_t middle
        while high - low > 1:
            middle = (low + high) >> 1
            if subtracted(self.batches.rows[middle].position, self.base_position) <= place:
                low = middle
            else:
                high = middle
        return &self.batches.rows[low]

    def batch_of(self, Py_ssize_t i) -> int:
        """The row in `batches` of the batch that holds record `i`."""
        return self.batch_row(self.check(i)) - self.batches.rows

    def timestamp_type(self, Py_ssize_t i) -> int:
        """0 CreateTime or 1 LogAppendTime of the batch that holds record `i`; -1 for a v0 message, which has no time."""
        cdef Py_ssize_t at = self.check(i)
        cdef BatchRow* row = self.batch_row(at)
        if row.magic == 0 or (row.magic == 1 and self.data[self.places[at].headers_at + MAGIC_AT] == 0):
            return -1
        return 1 if row.attributes & TIMESTAMP_TYPE_BIT else 0

    def is_control(self, Py_ssize_t i) -> bool:
        """True for a record of a control batch."""
        return (self.batch_row(self.check(i)).attributes & CONTROL_BIT) != 0

    def leader_epoch(self, Py_ssize_t i) -> int:
        """The leader epoch of the batch that holds record `i`; -1 for a v0 or v1 message."""
        return self.batch_row(self.check(i)).leader_epoch

    def message(self, Py_ssize_t i) -> tuple[int, int]:
        """Return the position and the size of the v0 or v1 message of record `i`; ValueError for a v2 record."""
        cdef Py_ssize_t at = self.check(i)
        if self.batch_row(at).magic >= 2:
            raise ValueError(f"record {i} is no message of format v0 or v1")
        return self.places[at].headers_at, self.places[at].record_size

    def __repr__(self):
        return f"<RecordTable of {self.count} records>"


cdef object null(int32_t size, str what):
    """None for a null field; DamagedField for one that a lenient decoding passed over."""
    if size == DAMAGED:
        raise DamagedField(f"the {what} runs past the end of its message")
    return None


cdef int decode_records(
    RecordTable table, BatchRow* row, int64_t* position, Py_ssize_t capacity, int64_t* done, bint ordered
) noexcept nogil:
    """Appends the records of a v2 batch; `position` and `done` say where it stopped."""
    cdef Cursor c
    cdef Fields f
    cdef int status
    cdef int64_t i = 0
    cdef Py_ssize_t n = table.count
    # at hand: for all the compiler knows, what is stored may lie in the table or the row
    cdef int64_t count = row.count
    cdef int64_t base_offset = row.base_offset
    cdef bint own_time = (row.attributes & TIMESTAMP_TYPE_BIT) == 0
    cdef int64_t base_timestamp = row.base_timestamp if own_time else row.max_timestamp
    cdef int64_t unlike = 0                     # whether a delta is not that of a batch from which none was removed
    cdef Py_ssize_t first = n
    cdef int64_t* offsets = table.offset_column
    cdef int64_t* timestamps = table.timestamp_column
    cdef RecordPlace* places = table.places
    cdef const uint8_t* data = table.data
    cdef const uint8_t* start
    cdef RecordPlace* place
    c.p = data + position[0] + V2_RECORDS_AT
    c.end = data + position[0] + row.size
    while True:
        start = c.p
        if i == count:
            status = OK if start == c.end else ERR_COUNT_LOW
            break
        if start == c.end or n >= capacity:
            status = ERR_COUNT_HIGH
            break
        kl_prefetch(start + 768)
        if not take_small_record(&c, &f):
            status = take_record(&c, &f)
            if status != OK:
                break
        unlike |= f.offset_delta ^ i
        offsets[n] = added(base_offset, f.offset_delta)
        timestamps[n] = added(base_timestamp, f.timestamp_delta) if own_time else base_timestamp
        place = &places[n]
        place.key_at = <int32_t>(f.key - data)
        place.key_size = f.key_size
        place.value_at = <int32_t>(f.value - data)
        place.value_size = f.value_size
        place.headers_at = <int32_t>(f.headers - data)
        place.header_count = f.header_count
        place.record_size = <int32_t>(c.p - start)
        n += 1
        i += 1
    if ordered and (unlike != 0 or i - 1 > row.last_delta):
        i = sound_offsets(&offsets[first], n - first, base_offset, row.last_delta)
        if i < n - first:
            status = ERR_RECORD_OFFSET
            start = data + position[0] + V2_RECORDS_AT
            for n in range(first, first + <Py_ssize_t>i):
                start += places[n].record_size
        n = first + i
    table.count = n
    position[0] = start - data
    done[0] = i
    return status


cdef int64_t sound_offsets(const int64_t* offsets, int64_t count, int64_t base_offset, int64_t last_delta) noexcept nogil:
    """Return the number of first records whose offsets rise and lie in their batch."""
    cdef int64_t before = -1
    cdef int64_t delta
    cdef int64_t i
    for i in range(count):
        delta = subtracted(offsets[i], base_offset)
        if delta <= before or delta > last_delta:
            return i
        before = delta
    return count


cdef int decode_messages(
    RecordTable table, BatchRow* row, int64_t* position, Py_ssize_t capacity, int64_t* done, bint lenient, bint ordered
) noexcept nogil:
    """Appends the messages of a v0 or v1 set: one plain message, or what a wrapper held with its offsets settled.

    A message cut off at the end of the set ends it, as in the reference.
    """
    cdef Cursor c
    cdef Message m
    cdef int status
    cdef Py_ssize_t n = table.count
    cdef int64_t lowest = 0
    cdef bint own_time = row.magic == 0 or (row.attributes & TIMESTAMP_TYPE_BIT) == 0
    cdef const uint8_t* data = table.data
    cdef const uint8_t* start
    cdef RecordPlace* place
    c.p = data + position[0]
    c.end = c.p + row.size
    while True:
        start = c.p
        status = take_frame(&c, &m)
        if status != OK:
            break
        if n >= capacity:
            status = ERR_COUNT_HIGH
            break
        if m.attributes & CODEC_MASK:
            status = ERR_WRAPPER_NESTED
            break
        m.key_size = m.value_size = DAMAGED
        m.key = m.value = start
        status = take_fields(&m)
        if status != OK:
            if not lenient:
                break
            m.value_size = DAMAGED
            if status == ERR_KEY_SIZE:
                m.key_size = DAMAGED
        if ordered and is_misplaced(row, m.offset, n > table.count, lowest):
            status = ERR_RECORD_OFFSET
            break
        lowest = added(m.offset, 1)
        table.offset_column[n] = m.offset
        table.timestamp_column[n] = m.timestamp if own_time or m.magic == 0 else row.max_timestamp
        place = &table.places[n]
        place.key_at = <int32_t>(m.key - data)
        place.key_size = m.key_size
        # an empty value may begin behind the message's end, where the next one begins
        place.value_at = <int32_t>((m.value if m.value_size > 0 else start) - data)
        place.value_size = m.value_size
        place.headers_at = <int32_t>(start - data)
        place.header_count = 0
        place.record_size = <int32_t>m.size
        n += 1
    done[0] = n - table.count
    table.count = n
    position[0] = start - data
    return OK if status == ERR_SHORT else status


cdef int decode_batch(
    RecordTable table, BatchRow* row, int64_t at, Py_ssize_t capacity, Py_ssize_t number, bint lenient, bint ordered
) noexcept nogil:
    """Appends the records of one batch to the table; OK, or why it stopped with the place in the table."""
    cdef int status
    cdef int64_t done = 0
    if row.magic < 0 or row.magic > 2:
        status = ERR_MAGIC
    elif row.attributes & CODEC_MASK:
        status = ERR_COMPRESSED
    elif row.magic < 2:
        status = decode_messages(table, row, &at, capacity, &done, lenient, ordered)
    elif row.size < V2_RECORDS_AT:
        status = ERR_COUNT_HIGH
    elif row.count < 0:
        status = ERR_COUNT_NEGATIVE
    else:
        status = decode_records(table, row, &at, capacity, &done, ordered)
    if status != OK:
        table.status = status
        table.error_batch = number
        table.error_position = at
        table.error_record = done
    return status


cdef int64_t room_for(BatchTable batches, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    """An upper bound of the records, from what the headers claim and from what the bytes can hold."""
    cdef int64_t total = 0
    cdef int64_t most
    cdef Py_ssize_t i
    cdef BatchRow* row
    for i in range(first, last):
        row = &batches.rows[i]
        most = (row.size - V2_RECORDS_AT) // MIN_RECORD_BYTES if row.magic >= 2 else row.size // V0_MIN_MESSAGE
        if row.count < most:
            most = row.count
        if most > 0:
            total += most
    return total


cdef bint refers_to_nothing(object chunk):
    """True for bytes and a bytearray, or a view of them; not for a derived class, whose objects refer to others."""
    if PyMemoryView_Check(chunk):
        if <void*>PyMemoryView_GET_BUFFER(chunk).obj == NULL:  # a view of memory that no object owns
            return False
        chunk = <object>PyMemoryView_GET_BUFFER(chunk).obj
    return PyBytes_CheckExact(chunk) or PyByteArray_CheckExact(chunk)


def decode(
    buf, BatchTable batches not None, Py_ssize_t first=0, Py_ssize_t last=-1, *, int64_t base_position=0,
    bint lenient=False, bint ordered=False,
) -> RecordTable:
    """The records of rows `first` up to `last` (exclusive; -1 is all) of a batch table made from this very buffer.

    `base_position` is the one the scan was given. Only batches without compression are decoded; the first other one,
    and the first damaged one, ends the table with its `status`. Control batches decode as plain records. A `lenient`
    table takes a v0 or v1 message whose key or value runs past its end as a record, as the reference does until that
    field is read (format.md section 15, C2); reading it is then a DamagedField. In an `ordered` table the offsets of a
    batch's records rise and lie in it; others are damage. A reader that goes by offsets would pass over such a record,
    or over the sound ones behind it.
    """
    cdef RecordTable table = RecordTable.__new__(RecordTable)
    cdef Py_ssize_t i
    cdef Py_ssize_t capacity
    cdef BatchRow* row
    if last < 0 or last > batches.count:
        last = batches.count
    if first < 0 or first > last:
        raise ValueError(f"rows {first} to {last} of a table of {batches.count} batches")
    table.own = take_view(buf, &table.view)
    table.held = True
    table.is_in_no_cycle = refers_to_nothing(buf)
    table.data = <const uint8_t*>table.view.buf
    table.batches = batches
    table.first_batch = first
    table.last_batch = last
    if table.view.len > 0x7FFFFFFF:
        raise ValueError(f"a chunk of {table.view.len} bytes: at most 2147483647 are decoded at once")
    table.base_position = base_position
    for i in range(first, last):
        # the table may come from another buffer: that is misuse, but must not read outside this one
        if place_of(&batches.rows[i], base_position, table.view.len) < 0:
            raise ValueError(f"batch {i} of the table lies outside the {table.view.len} bytes given")
    capacity = room_for(batches, first, last)
    table.allocate(capacity)
    with nogil:
        for i in range(first, last):
            row = &batches.rows[i]
            if decode_batch(table, row, place_of(row, base_position, table.view.len), capacity, i, lenient, ordered) != OK:
                break
    return table
