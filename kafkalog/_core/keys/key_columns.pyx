"""The records of many keys as columns, in the order of the keys, with a null row for a key without a record."""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from kafkalog._core.arrow.columns cimport Columns
from kafkalog._core.arrow.growing cimport (
    ERR_COLUMN_SIZE, MOST_BYTES, Bytes, Headers, drop_bytes, drop_headers, put_bytes, put_headers, put_text,
    reserve_bytes, reserve_headers, reserve_rows,
)
from kafkalog._core.arrow.memory cimport Memory, drop_memory, new_memory
from kafkalog._core.arrow.pieces cimport (
    HEADER_KEY_OFFSETS, HEADER_LISTS, HEADER_VALUE_OFFSETS, HEADERS, KEY, KEY_OFFSETS, KINDS, OFFSET, OFFSETS,
    PARTITION, PARTITIONS, ROWS_VALID, TIMESTAMP, TIMESTAMP_TYPE, TIMESTAMP_TYPES, TIMESTAMPS, TOPIC, TOPIC_OFFSETS,
    VALUE, VALUE_OFFSETS, Piece, new_piece,
)
from kafkalog._core.batch.check cimport BatchRow
from kafkalog._core.batch.decode cimport RecordTable
from kafkalog._core.batch.fields cimport Fields, take_record
from kafkalog._core.batch.layout cimport ERR_MEMORY, OK
from kafkalog._core.batch.record cimport Record
from kafkalog._core.bytes.cursor cimport Cursor
from kafkalog._core.keys.given_keys cimport GivenKeys
from kafkalog._core.keys.key_picker cimport (
    AHEAD, COMPARED, HAS_OBJECT, MISSED, STATUS_MISSED, Copied, KeyPicker, check_alone, fetch_copy, fetch_part,
    own_record,
)

cdef enum:
    MOST_PIECE_ROWS = 1 << 30


cdef struct Making:                 # the piece that is being made
    int64_t rows
    int64_t bytes                   # of keys, values, headers and topics
    int64_t absent
    Memory* valid                   # bits of the rows; NULL until a key has no record
    Memory* offsets                 # these are NULL unless asked for
    Memory* timestamps
    Memory* types
    Memory* partitions
    bint wants_key
    bint wants_value
    bint wants_topic
    bint wants_headers
    Bytes key
    Bytes value
    Bytes topic
    Headers headers


@cython.final
cdef class KeyColumns(KeyPicker):
    """The columns of the records of the keys; `finish` makes them."""

    cdef dict objects               # records that came as such, by the number of their key
    cdef bytes topic
    cdef const uint8_t* topic_text
    cdef int32_t topic_size
    cdef int32_t partition

    def __cinit__(self, GivenKeys keys not None, offsets, int64_t start_offset):
        self.objects = {}

    cdef int take_row(self, RecordTable table, Py_ssize_t row, int64_t number) except -1:
        cdef int32_t size = table.places[row].value_size
        cdef Copied* made = self.copy(number, max(size, 0))
        while made == NULL:     # the first room may be parts that are each smaller than this copy
            self.make_room()
            made = self.copy(number, max(size, 0))
        made.offset, made.timestamp = table.offset_column[row], table.timestamp_column[row]
        made.size, made.key_size, made.epoch, made.whole = size, COMPARED, -1, 0
        made.kind = table.timestamp_type(row)
        if size > 0:
            memcpy(made + 1, table.data + table.places[row].value_at, <size_t>size)
        return 0

    cdef int put(self, int64_t number, Record record) except -1:
        if record.table is not None and record.table.places[record.row].header_count == 0:
            return self.take_row(record.table, record.row, number)
        self.objects[number] = own_record(record)
        self.places[number] = HAS_OBJECT
        return 0

    @cython.critical_section
    def finish(
        self, bytes kinds not None, *, bytes topic not None=b"", int32_t partition=0, int64_t most_rows=65536,
        int64_t most_bytes=8388608,
    ) -> Columns | None:
        """The columns `kinds`, in pieces of up to `most_rows` records and `most_bytes` of keys, values and headers.

        None if records turn out to have other keys: `missed` has them then, and the next call makes null rows of those
        that `give` was not called for. `topic` and `partition` fill the columns of those names. A piece has at least one record. ValueError for a record
        that is too large for a column.
        """
        if len(set(kinds)) != len(kinds) or (kinds and max(kinds) >= KINDS):
            raise ValueError(f"{kinds!r} are not columns, each once")
        if not 0 < most_rows <= MOST_PIECE_ROWS or not 0 < most_bytes <= 0x40000000:
            raise ValueError(f"{most_rows} rows and {most_bytes} bytes do not bound a piece")
        check_alone(self)
        self.busy = True
        try:
            self.topic, self.partition = topic, partition
            self.topic_text, self.topic_size = <const uint8_t*>PyBytes_AS_STRING(topic), <int32_t>len(topic)
            return self.made_columns(kinds, most_rows, most_bytes)
        finally:
            self.busy = False

    cdef Columns made_columns(self, bytes kinds, int64_t most_rows, int64_t most_bytes):
        """Make the columns of `finish`, which holds `busy`."""
        cdef Columns out = Columns.__new__(Columns, kinds)
        cdef Making m
        cdef int64_t done = 0
        cdef int64_t rows
        cdef int status
        while done < self.keys.count:
            memset(&m, 0, sizeof(Making))
            try:
                rows = min(self.keys.count - done, most_rows)
                if not begin(&m, kinds, rows, self.key_room(done, rows, most_bytes), self.value_room(done, rows, most_bytes)):
                    raise MemoryError("no memory for the columns")
                with nogil:
                    status = self.fill(&m, done, rows, most_bytes)
                if status == STATUS_MISSED:
                    self.compare(done + m.rows)
                    return None
                if status == ERR_COLUMN_SIZE:
                    raise ValueError("a record is too large for a column")
                if status == ERR_MEMORY:
                    raise MemoryError("no memory for the columns")
                if status != OK:
                    raise AssertionError("a record that was read is no longer sound")
                done += m.rows
                give(&m, out)
            finally:
                drop(&m)
        return out

    cdef int64_t key_room(self, int64_t first, int64_t rows, int64_t most_bytes) noexcept nogil:
        """The bytes of the keys of a piece, unless it ends before."""
        cdef int64_t size = 0
        cdef int64_t i
        for i in range(first, first + rows):
            size += self.keys.slices[i].size
        return min(size, most_bytes)

    cdef void compare(self, int64_t first) noexcept nogil:
        """Mark the keys from `first` on whose copies are of other keys' records."""
        cdef int64_t i
        for i in range(first, self.keys.count):
            if self.places[i] > 0 and not self.has_key(i, <const Copied*>(self.copies + self.places[i] - 1)):
                self.places[i] = MISSED

    cdef int64_t value_room(self, int64_t first, int64_t rows, int64_t most_bytes) noexcept nogil:
        """The bytes of the values of a piece, about: a little more than the copies have on average."""
        cdef int64_t copied = self.keys.count - self.absent
        cdef double size
        if copied <= 0 or self.copied_bytes <= 0:
            return 0
        size = (<double>self.copied_bytes / <double>copied - <double>sizeof(Copied)) * <double>rows
        size = max(size - <double>self.key_room(first, rows, most_bytes), <double>rows) * 1.05
        return <int64_t>min(size, <double>most_bytes)

    cdef int fill(self, Making* m, int64_t first, int64_t rows, int64_t most_bytes) except? -1 nogil:
        """Put the records of `rows` keys from `first` on into the piece, or of as many as have `most_bytes`."""
        cdef int64_t i
        cdef int64_t place
        cdef int64_t size = 0
        cdef int status = OK
        for i in range(first, first + rows):
            if i + AHEAD < self.keys.count and self.places[i + AHEAD] > 0:
                fetch_copy(self.copies, self.places[i + AHEAD])
            if self.parts != NULL:
                fetch_part(self.copies + self.parts_at, self.part_bytes, i)
            place = self.places[i]
            if place > 0:
                if not self.has_key(i, <const Copied*>(self.copies + place - 1)):
                    return STATUS_MISSED
                size = max((<const Copied*>(self.copies + place - 1)).size, 0)
            elif place == HAS_OBJECT:
                with gil:
                    size = size_of(self.objects[i])
            else:
                status = put_nothing(m, rows)
                m.rows += 1
                if status != OK:
                    return status
                continue
            m.bytes += size + self.keys.slices[i].size + self.topic_size
            if m.bytes > most_bytes and m.rows > 0:
                return OK
            if place > 0:
                status = self.put_copy(m, i, <const Copied*>(self.copies + place - 1))
            else:
                with gil:
                    status = self.put_object(m, i)
            if status != OK:
                return status
            m.rows += 1
        return OK

    cdef int put_copy(self, Making* m, int64_t number, const Copied* copied) noexcept nogil:
        cdef const uint8_t* data = <const uint8_t*>(copied + 1)
        cdef Fields f
        cdef Cursor c
        cdef int status = OK
        f.value, f.value_size, f.header_count = data, copied.size, 0
        f.headers = f.end = data
        if copied.whole:
            c.p = data + sizeof(BatchRow)
            c.end = c.p + copied.size
            status = take_record(&c, &f)
        if status == OK:
            status = self.put_key(m, number)
        if status == OK and m.wants_value:
            status = put_bytes(&m.value, m.rows, f.value, f.value_size)
        if status == OK and m.wants_headers:
            status = put_headers(&m.headers, m.rows, f.headers, f.end, f.header_count)
        put_numbers(m, copied.offset, copied.timestamp, copied.kind, self.partition)
        return status

    cdef int put_key(self, Making* m, int64_t number) noexcept nogil:
        """The key as it was given, and the topic."""
        cdef int status = OK
        if m.wants_key:
            status = put_bytes(
                &m.key, m.rows, self.keys.slices[number].data, <int32_t>self.keys.slices[number].size
            )
        if status == OK and m.wants_topic:
            status = put_bytes(&m.topic, m.rows, self.topic_text, self.topic_size)
        return status

    cdef int put_object(self, Making* m, int64_t number) except? -1:
        record = self.objects[number]
        cdef int status = self.put_key(m, number)
        if status == OK and m.wants_value:
            status = put_bytes_object(&m.value, m.rows, record.value)
        if m.wants_headers:
            for name, value in record.headers:
                if status == OK:
                    status = reserve_headers(&m.headers, 1)
                text = name.encode("utf-8", "surrogatepass")
                if status == OK:
                    status = put_text(
                        &m.headers.keys, m.headers.count, <const uint8_t*>PyBytes_AS_STRING(text), <int32_t>len(text)
                    )
                if status == OK:
                    status = put_bytes_object(&m.headers.values, m.headers.count, value)
                m.headers.count += 1
            (<int32_t*>m.headers.lists.data)[m.rows + 1] = <int32_t>m.headers.count
        put_numbers(m, record.offset, record.timestamp, record.timestamp_type, self.partition)
        return status


cdef int64_t size_of(object record) except -1:
    return len(record.value or b"") + sum([len(name) + len(value or b"") for name, value in record.headers])


cdef int put_bytes_object(Bytes* b, int64_t row, bytes value) noexcept:
    if value is None:
        return put_bytes(b, row, NULL, -1)
    return put_bytes(b, row, <const uint8_t*>PyBytes_AS_STRING(value), <int32_t>PyBytes_GET_SIZE(value))


cdef bint begin(Making* m, bytes kinds, int64_t rows, int64_t key_bytes, int64_t value_bytes) noexcept:
    """Make room for the rows of a piece, with about so many bytes of keys and values; False without memory."""
    cdef int status = OK
    m.wants_key, m.wants_value, m.wants_topic, m.wants_headers = KEY in kinds, VALUE in kinds, TOPIC in kinds, HEADERS in kinds
    if m.wants_key:
        status = begin_bytes(&m.key, rows, key_bytes)
    if status == OK and m.wants_value:
        status = begin_bytes(&m.value, rows, value_bytes)
    if status == OK and m.wants_topic:
        status = begin_bytes(&m.topic, rows, 16 * rows)
    if status == OK and m.wants_headers:
        status = begin_headers(&m.headers, rows)
    if status != OK:
        return False
    return (
        wanted(&m.offsets, OFFSET in kinds, 8 * rows) and wanted(&m.timestamps, TIMESTAMP in kinds, 8 * rows)
        and wanted(&m.types, TIMESTAMP_TYPE in kinds, 4 * rows) and wanted(&m.partitions, PARTITION in kinds, 4 * rows)
    )


cdef int begin_bytes(Bytes* b, int64_t rows, int64_t size) noexcept:
    cdef int status = reserve_rows(b, 0, rows)
    return reserve_bytes(b, min(size, <int64_t>MOST_BYTES)) if status == OK else status


cdef int begin_headers(Headers* h, int64_t rows) noexcept:
    cdef int status
    h.lists = new_memory(4 * (rows + 1))
    if h.lists == NULL:
        return ERR_MEMORY
    (<int32_t*>h.lists.data)[0] = 0
    status = reserve_headers(h, 1)
    if status == OK:
        status = reserve_bytes(&h.keys, 0)
    return reserve_bytes(&h.values, 0) if status == OK else status


cdef bint wanted(Memory** memory, bint is_wanted, int64_t size) noexcept:
    if is_wanted:
        memory[0] = new_memory(size)
    return not is_wanted or memory[0] != NULL


cdef inline void put_numbers(
    Making* m, int64_t offset, int64_t timestamp, int32_t kind, int32_t partition
) noexcept nogil:
    if m.offsets != NULL:
        (<int64_t*>m.offsets.data)[m.rows] = offset
    if m.timestamps != NULL:
        (<int64_t*>m.timestamps.data)[m.rows] = timestamp
    if m.types != NULL:
        (<int32_t*>m.types.data)[m.rows] = kind
    if m.partitions != NULL:
        (<int32_t*>m.partitions.data)[m.rows] = partition


cdef int put_nothing(Making* m, int64_t rows) noexcept nogil:
    """A null row."""
    cdef int status = OK
    if m.valid == NULL:
        m.valid = new_memory((rows + 7) >> 3)
        if m.valid == NULL:
            return ERR_MEMORY
        memset(m.valid.data, 0xFF, <size_t>((rows + 7) >> 3))
    m.valid.data[m.rows >> 3] &= ~(1 << (m.rows & 7))
    m.absent += 1
    if m.wants_key:
        status = put_bytes(&m.key, m.rows, NULL, -1)
    if status == OK and m.wants_value:
        status = put_bytes(&m.value, m.rows, NULL, -1)
    if status == OK and m.wants_topic:
        status = put_bytes(&m.topic, m.rows, <const uint8_t*>b"", 0)
    if m.wants_headers:
        (<int32_t*>m.headers.lists.data)[m.rows + 1] = <int32_t>m.headers.count
    put_numbers(m, -1, -1, -1, -1)
    return status


cdef void move(Piece* piece, int slot, Memory** memory) noexcept:
    piece.slots[slot] = memory[0]
    memory[0] = NULL


cdef void move_bytes(Piece* piece, int slot, Bytes* b, int64_t* nulls) noexcept:
    move(piece, slot, &b.ends)
    move(piece, slot + 1, &b.data)
    if nulls != NULL:
        nulls[0] = b.nulls
        if b.nulls:
            move(piece, slot + 2, &b.valid)


cdef int give(Making* m, Columns out) except -1:
    """Hand the piece to the columns."""
    cdef Piece* piece = new_piece()
    if piece == NULL:
        raise MemoryError("no memory for the columns")
    piece.rows = m.rows
    piece.absent = m.absent
    piece.headers = m.headers.count
    if m.wants_key:
        move_bytes(piece, KEY_OFFSETS, &m.key, &piece.key_nulls)
    if m.wants_value:
        move_bytes(piece, VALUE_OFFSETS, &m.value, &piece.value_nulls)
    if m.wants_topic:
        move_bytes(piece, TOPIC_OFFSETS, &m.topic, NULL)
    if m.wants_headers:
        move(piece, HEADER_LISTS, &m.headers.lists)
        move_bytes(piece, HEADER_KEY_OFFSETS, &m.headers.keys, NULL)
        move_bytes(piece, HEADER_VALUE_OFFSETS, &m.headers.values, &piece.header_value_nulls)
    move(piece, ROWS_VALID, &m.valid)
    move(piece, OFFSETS, &m.offsets)
    move(piece, TIMESTAMPS, &m.timestamps)
    move(piece, TIMESTAMP_TYPES, &m.types)
    move(piece, PARTITIONS, &m.partitions)
    return out.adopt(piece)


cdef void drop(Making* m) noexcept:
    drop_bytes(&m.key)
    drop_bytes(&m.value)
    drop_bytes(&m.topic)
    drop_headers(&m.headers)
    drop_memory(m.valid)
    drop_memory(m.offsets)
    drop_memory(m.timestamps)
    drop_memory(m.types)
    drop_memory(m.partitions)
