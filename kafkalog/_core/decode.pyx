"""Records of uncompressed v2 batches as columns: 28 bytes of places and two int64 columns a record, no Python object."""
cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

from kafkalog._core.batch cimport BatchRow, place_of
from kafkalog._core.buffers cimport column
from kafkalog._core.cursor cimport Cursor, take_varint
from kafkalog._core.fields cimport Fields, take_record
from kafkalog._core.layout cimport (
    CODEC_MASK, ERR_COMPRESSED, ERR_COUNT_HIGH, ERR_COUNT_LOW, ERR_COUNT_NEGATIVE, ERR_HEADER_COUNT, ERR_HEADER_KEY,
    ERR_HEADER_VALUE, ERR_KEY_SIZE, ERR_MAGIC, ERR_RECORD_BODY, ERR_RECORD_SIZE, ERR_SHORT, ERR_VALUE_SIZE, ERR_VARINT,
    MIN_RECORD_BYTES, OK, TIMESTAMP_TYPE_BIT, V2_RECORDS_AT,
)
from kafkalog._core.record cimport Record, record_of
from kafkalog._core.scan cimport BatchTable
from kafkalog._core.wrap cimport added, subtracted

STATUS_OK = OK
STATUS_COMPRESSED = ERR_COMPRESSED
STATUS_MAGIC = ERR_MAGIC

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
    ERR_MAGIC: "the batch is not of format v2",
}


cdef object overwritten(Py_ssize_t i):
    return ValueError(f"the bytes of record {i} were overwritten after it was decoded")


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
        free(self.offset_column)

    cdef int allocate(self, Py_ssize_t rows) except -1:
        # one block, three parts
        cdef size_t each = 2 * sizeof(int64_t) + sizeof(RecordPlace)
        cdef char* block = <char*>malloc(each * <size_t>(rows if rows > 0 else 1))
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
            return None
        return PyBytes_FromStringAndSize(<char*>self.data + p.key_at, p.key_size)

    cdef object value_at(self, Py_ssize_t i):
        cdef RecordPlace* p = &self.places[i]
        if p.value_size < 0:
            return None
        return PyBytes_FromStringAndSize(<char*>self.data + p.value_at, p.value_size)

    cdef tuple headers_at(self, Py_ssize_t i):
        cdef RecordPlace* p = &self.places[i]
        cdef Cursor c
        cdef int32_t size = 0
        cdef int32_t n
        cdef list out
        if p.header_count == 0:
            return ()
        out = []
        c.p = self.data + p.headers_at
        c.end = self.data + self.view.len
        for n in range(p.header_count):
            # lengths were checked when the record was decoded, but somebody may have written to the chunk since
            if take_varint(&c, &size) != OK or size < 0 or size > c.end - c.p:
                raise overwritten(i)
            name = PyUnicode_DecodeUTF8(<char*>c.p, size, "replace")
            c.p += size
            if take_varint(&c, &size) != OK or size > c.end - c.p:
                raise overwritten(i)
            out.append((name, None if size < 0 else PyBytes_FromStringAndSize(<char*>c.p, size)))
            c.p += size if size > 0 else 0
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
    def value_positions(self):
        return column(self, &self.places.value_at, self.count, sizeof(RecordPlace), c"i")

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

    def timestamp_type(self, Py_ssize_t i) -> int:
        """0 CreateTime or 1 LogAppendTime of the batch that holds record `i`."""
        # by place, not by offset: a damaged batch may hold offsets outside its own range; the value's place is always
        # inside the record, since a header count follows
        cdef int64_t place = self.places[self.check(i)].value_at
        cdef Py_ssize_t low = self.first_batch
        cdef Py_ssize_t high = self.last_batch
        cdef Py_ssize_t middle
        while high - low > 1:
            middle = (low + high) >> 1
            if subtracted(self.batches.rows[middle].position, self.base_position) <= place:
                low = middle
            else:
                high = middle
        return 1 if self.batches.rows[low].attributes & TIMESTAMP_TYPE_BIT else 0

    def __repr__(self):
        return f"<RecordTable of {self.count} records>"


cdef int decode_batch(
    RecordTable table, BatchRow* row, int64_t at, Py_ssize_t capacity, Py_ssize_t number
) noexcept nogil:
    """Appends the records of one batch to the table; OK, or why it stopped with the place in the table."""
    cdef Cursor c
    cdef Fields f
    cdef int status = OK
    cdef int64_t i
    cdef Py_ssize_t n = table.count
    cdef bint own_time = (row.attributes & TIMESTAMP_TYPE_BIT) == 0
    cdef const uint8_t* data = table.data
    cdef RecordPlace* place
    c.p = data + at + V2_RECORDS_AT
    c.end = data + at + row.size
    if row.magic != 2:
        status = ERR_MAGIC
    elif row.attributes & CODEC_MASK:
        status = ERR_COMPRESSED
    elif row.size < V2_RECORDS_AT:
        status = ERR_COUNT_HIGH
    elif row.count < 0:
        status = ERR_COUNT_NEGATIVE
    i = 0
    if status == OK:
        while i < row.count:
            if c.p == c.end or n >= capacity:
                status = ERR_COUNT_HIGH
                break
            at = c.p - data
            status = take_record(&c, &f)
            if status != OK:
                break
            table.offset_column[n] = added(row.base_offset, f.offset_delta)
            table.timestamp_column[n] = added(row.base_timestamp, f.timestamp_delta) if own_time else row.max_timestamp
            place = &table.places[n]
            place.key_at = <int32_t>(f.key - data)
            place.key_size = f.key_size
            place.value_at = <int32_t>(f.value - data)
            place.value_size = f.value_size
            place.headers_at = <int32_t>(f.headers - data)
            place.header_count = f.header_count
            place.record_size = <int32_t>(c.p - data - at)
            n += 1
            i += 1
        if status == OK and c.p != c.end:
            status = ERR_COUNT_LOW
            at = c.p - data
    table.count = n
    if status != OK:
        table.status = status
        table.error_batch = number
        table.error_position = at
        table.error_record = i
    return status


cdef int64_t room_for(BatchTable batches, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    """An upper bound of the records, from what the headers claim and from what the bytes can hold."""
    cdef int64_t total = 0
    cdef int64_t most
    cdef Py_ssize_t i
    for i in range(first, last):
        most = (batches.rows[i].size - V2_RECORDS_AT) // MIN_RECORD_BYTES
        if batches.rows[i].count < most:
            most = batches.rows[i].count
        if most > 0:
            total += most
    return total


def decode(buf, BatchTable batches not None, Py_ssize_t first=0, Py_ssize_t last=-1, *, int64_t base_position=0) -> RecordTable:
    """The records of rows `first` up to `last` (exclusive; -1 is all) of a batch table made from this very buffer.

    `base_position` is the one the scan was given. Only v2 batches without compression are decoded; the first other
    one, and the first damaged one, ends the table with its `status`. Control batches decode as plain records.
    """
    cdef RecordTable table = RecordTable.__new__(RecordTable)
    cdef Py_ssize_t i
    cdef Py_ssize_t capacity
    cdef BatchRow* row
    if last < 0 or last > batches.count:
        last = batches.count
    if first < 0 or first > last:
        raise ValueError(f"rows {first} to {last} of a table of {batches.count} batches")
    PyObject_GetBuffer(buf, &table.view, PyBUF_SIMPLE)
    table.held = True
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
            if decode_batch(table, row, place_of(row, base_position, table.view.len), capacity, i) != OK:
                break
    return table
