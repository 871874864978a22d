"""ColumnBuilder: the bytes of batches made into the columns of Arrow, in one pass, no Python object a record."""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from kafkalog._core.arrow.columns cimport Columns
from kafkalog._core.arrow.memory cimport Memory, drop_memory, grow_memory, hold_memory, new_memory
from kafkalog._core.batch.check cimport BatchRow, place_of
from kafkalog._core.bytes.buffers cimport Held, hold
from kafkalog._core.batch.decode import STATUS_TEXT as RECORD_STATUS_TEXT
from kafkalog._core.arrow.filling cimport Build, Place, fill_batch
from kafkalog._core.arrow.growing cimport (
    ERR_COLUMN_SIZE, Bytes, drop_bytes, drop_headers, reserve_bytes, reserve_headers, reserve_rows,
)
from kafkalog._core.arrow.sweep cimport Slot
from kafkalog._core.arrow.pieces cimport (
    HEADER_KEY_DATA, HEADER_KEY_OFFSETS, HEADER_LISTS, HEADER_VALUE_OFFSETS, HEADERS, KEY, KEY_OFFSETS, KINDS, OFFSET,
    OFFSETS, PARTITION, PARTITIONS, TIMESTAMP, TIMESTAMP_TYPE, TIMESTAMP_TYPES, TIMESTAMPS, TOPIC, TOPIC_DATA,
    TOPIC_OFFSETS, VALUE, VALUE_OFFSETS, Piece, new_piece,
)
from kafkalog._core.batch.layout cimport ERR_MEMORY, MIN_RECORD_BYTES, OK, V0_MIN_MESSAGE, V2_RECORDS_AT
from kafkalog._core.batch.scan cimport BatchTable

STATUS_TEXT = {**RECORD_STATUS_TEXT, ERR_COLUMN_SIZE: "the header names of one record take more than 2 GiB as text"}

cdef enum:
    MOST_PIECE_ROWS = 0x7FFFFFFE
    SMALLEST_ROOM = 64


@cython.final
cdef class ColumnBuilder:
    """Fills columns from batches: `feed` them in order, `take` the piece that is done when `full`, or at the end.

    `kinds` are the columns wanted, one byte each, as in `columns.KIND_NAMES`; `topic` (UTF-8) and `partition` are what
    their columns say. Records with offsets below `start_offset`, or not above the one before, are passed over; the
    first at or above `stop_offset` sets `ended`; with `every`, each record is taken whatever its offset. A piece has at
    most `most_rows` records and `most_bytes` of keys, values and headers, but at least one record. With `chosen`, keys as
    bytes, the values of records with another key are empty: nothing is copied that is filtered out anyway.

    `status` is not 0 where decoding stopped at damage: `error_batch` is the row, `error_position` the byte in the
    buffer, `error_record` its number in the batch, `error_text` the reason. All records before it are in the columns.
    A builder belongs to one thread: RuntimeError where two are in it.
    """
    cdef Build build
    cdef Place place
    cdef bytes topic
    cdef tuple chosen
    cdef int32_t partition
    cdef int64_t most_rows
    cdef bint busy
    cdef bint begun                 # whether `place` lies inside a batch
    cdef int64_t batch_position     # of that batch
    cdef int64_t usual_rows         # what the last piece had
    cdef int64_t usual_key_bytes
    cdef int64_t usual_value_bytes
    cdef Memory* topic_ends
    cdef Memory* topic_text
    cdef Memory* partitions
    cdef int64_t constant_rows
    cdef readonly bytes kinds
    cdef readonly int status
    cdef readonly Py_ssize_t error_batch
    cdef readonly int64_t error_position
    cdef readonly int64_t error_record

    def __cinit__(
        self, bytes kinds not None, *, bytes topic not None=b"", int32_t partition=0, int64_t start_offset=0,
        int64_t stop_offset=0x7FFFFFFFFFFFFFFF, bint every=False, int64_t most_rows=65536, int64_t most_bytes=8388608,
        tuple chosen=None,
    ):
        cdef Py_ssize_t i
        if len(set(kinds)) != len(kinds) or (kinds and max(kinds) >= KINDS):
            raise ValueError(f"{kinds!r} are not columns, each once")
        if not 0 < most_rows <= MOST_PIECE_ROWS or not 0 < most_bytes <= 0x40000000:
            raise ValueError(f"{most_rows} rows and {most_bytes} bytes do not bound a piece")
        if most_rows * max(len(topic), 1) > 0x7FFFFFFF:
            most_rows = 0x7FFFFFFF // len(topic)
        self.kinds = kinds
        self.topic = topic
        self.partition = partition
        self.most_rows = most_rows
        self.build.most_bytes = most_bytes
        self.build.next_offset = start_offset
        self.build.stop_offset = stop_offset
        self.build.every = every
        self.build.wants_key = KEY in kinds
        self.build.wants_value = VALUE in kinds
        self.build.wants_headers = HEADERS in kinds
        self.build.wants_bodies = self.build.wants_key or self.build.wants_value or self.build.wants_headers
        self.build.wants_type = TIMESTAMP_TYPE in kinds
        if chosen is not None and self.build.wants_value:
            self.chosen = chosen
            self.build.chosen_count = len(chosen)
            self.build.chosen = <Slot*>calloc(len(chosen) + 1, sizeof(Slot))
            if self.build.chosen == NULL:
                raise MemoryError("no memory for the columns")
            for i in range(len(chosen)):
                key = <bytes?>chosen[i]
                self.build.chosen[i] = Slot(<const uint8_t*>PyBytes_AS_STRING(key), <int32_t>PyBytes_GET_SIZE(key))
        self.error_batch = self.error_position = self.error_record = -1

    def __dealloc__(self):
        drop_build(&self.build)
        free(self.build.chosen)
        drop_memory(self.topic_ends)
        drop_memory(self.topic_text)
        drop_memory(self.partitions)

    @property
    def rows(self) -> int:
        """Records in the piece that is being made."""
        return self.build.rows

    @property
    def full(self) -> bool:
        """True when the next record does not fit: `take`, then `feed` the rest."""
        return self.build.full

    @property
    def ended(self) -> bool:
        """True once a record at or above the stop offset was met."""
        return self.build.ended

    @property
    def next_offset(self) -> int:
        """The lowest offset that would still be taken."""
        return self.build.next_offset

    @property
    def error_text(self) -> str:
        return STATUS_TEXT[self.status]

    @cython.critical_section
    def feed(self, buf, BatchTable batches not None, Py_ssize_t first=0, Py_ssize_t last=-1, *, int64_t base_position=0) -> int:
        """Puts rows `first` up to `last` (exclusive; -1 is all) of a batch table made from `buf` into the columns.

        The row at which it stopped: `last`, or the row to go on with because the piece is `full`, the end was
        reached, or the batch is damaged. MemoryError leaves the builder empty.
        """
        cdef Held held = hold(buf)
        cdef Py_ssize_t i
        cdef int status = OK
        cdef int64_t at = 0
        if last < 0 or last > batches.count:
            last = batches.count
        if first < 0 or first > last:
            raise ValueError(f"rows {first} to {last} of a table of {batches.count} batches")
        if self.busy:
            raise RuntimeError("another thread is in this builder")
        self.busy = True
        try:
            for i in range(first, last):
                # the table may come from another buffer: that is misuse, but must not read outside this one
                if place_of(&batches.rows[i], base_position, held.size) < 0:
                    raise ValueError(f"batch {i} of the table lies outside the {held.size} bytes given")
            if first < last and (not self.begun or self.batch_position != batches.rows[first].position):
                self.begun = False
                self.place.at = self.place.done = 0
            i = first
            self.build.full = self.build.ended = False
            status = self.reserve(batches, first, last)
            with nogil:
                while status == OK and i < last:
                    at = place_of(&batches.rows[i], base_position, held.size)
                    status = fill_batch(&self.build, &batches.rows[i], held.data + at, &self.place)
                    if status != OK or self.build.full or self.build.ended:
                        break
                    self.place.at = self.place.done = 0
                    i += 1
        finally:
            self.busy = False
        self.begun = self.build.full
        if self.begun:
            self.batch_position = batches.rows[i].position
        self.status = status
        if status == ERR_MEMORY:
            drop_build(&self.build)
            raise MemoryError("no memory for the columns")
        if status != OK:
            if status == ERR_COLUMN_SIZE:
                settle(&self.build)
            self.error_batch = i
            self.error_position = at + self.place.at
            self.error_record = self.place.done
        return i

    cdef int reserve(self, BatchTable batches, Py_ssize_t first, Py_ssize_t last) noexcept:
        """Room for the records that these rows may hold, as far as the piece may have them."""
        cdef Build* b = &self.build
        cdef int64_t more = 0
        cdef int64_t size = 0
        cdef int64_t most
        cdef int64_t room
        cdef Py_ssize_t i
        cdef int status = OK
        cdef BatchRow* row
        for i in range(first, last):
            row = &batches.rows[i]
            most = (row.size - V2_RECORDS_AT) // MIN_RECORD_BYTES if row.magic >= 2 else row.size // V0_MIN_MESSAGE
            if row.magic >= 2 and row.count < most:
                most = row.count
            more += max(most, 0)
            size += row.size
        more = min(more, self.most_rows - b.rows)
        if b.rows + more > b.room or b.room == 0:
            room = max(b.rows + more, 2 * b.room)
            if b.rows == 0:
                room = max(room, self.usual_rows, self.rows_ahead())
            status = self.make_room(min(max(room, <int64_t>SMALLEST_ROOM), self.most_rows))
        if b.rows == 0:
            # as many bytes a record in what is still to come as here
            if more > 0 and b.room > more:
                size = size // more * b.room
            size = min(size, b.most_bytes)
            if status == OK and b.wants_key:
                status = reserve_bytes(&b.key, self.usual_key_bytes)
            if status == OK and b.wants_value:
                status = reserve_bytes(&b.value, max(size, self.usual_value_bytes))
            if status == OK and b.wants_headers:
                status = reserve_headers(&b.headers, SMALLEST_ROOM)
                if status == OK:
                    status = reserve_bytes(&b.headers.keys, 0)
                if status == OK:
                    status = reserve_bytes(&b.headers.values, 0)
        return status

    cdef int64_t rows_ahead(self) noexcept:
        """The most records that are still to come, where the offsets say; what is not touched of the room costs nothing."""
        cdef Build* b = &self.build
        if b.every or b.stop_offset <= b.next_offset or b.next_offset < 0:
            return 0
        return b.stop_offset - b.next_offset if b.stop_offset < INT64_MAX else 0

    cdef int make_room(self, int64_t room) noexcept:
        cdef Build* b = &self.build
        cdef int status = OK
        if OFFSET in self.kinds:
            status = more_values(&b.offsets, b.rows * 8, room * 8)
        if status == OK and TIMESTAMP in self.kinds:
            status = more_values(&b.timestamps, b.rows * 8, room * 8)
        if status == OK and b.wants_type:
            status = more_values(&b.types, b.rows * 4, room * 4)
        if status == OK and b.wants_key:
            status = reserve_rows(&b.key, b.rows, room)
        if status == OK and b.wants_value:
            status = reserve_rows(&b.value, b.rows, room)
        if status == OK and b.wants_headers:
            status = more_values(&b.headers.lists, (b.rows + 1) * 4 if b.room else 0, (room + 1) * 4)
            if status == OK and b.room == 0:
                (<int32_t*>b.headers.lists.data)[0] = 0
        if status == OK:
            b.room = room
        return status

    @cython.critical_section
    def take(self) -> Columns:
        """The piece made so far, as columns; the builder begins another one. Without records it is empty columns."""
        cdef Columns out = Columns.__new__(Columns, self.kinds)
        cdef Build* b = &self.build
        cdef Piece* piece
        if self.busy:
            raise RuntimeError("another thread is in this builder")
        if b.rows == 0:
            return out
        if self.make_constants(b.rows) != OK:
            raise MemoryError("no memory for the columns")
        piece = new_piece()
        if piece == NULL:
            raise MemoryError("no memory for the columns")
        piece.rows = b.rows
        if b.wants_key:
            self.usual_key_bytes = usual(b.key.used)
            give(piece, KEY_OFFSETS, &b.key, &piece.key_nulls)
        if b.wants_value:
            self.usual_value_bytes = usual(b.value.used)
            give(piece, VALUE_OFFSETS, &b.value, &piece.value_nulls)
        if b.wants_headers:
            give_headers(piece, b)
        give_values(piece, OFFSETS, &b.offsets)
        give_values(piece, TIMESTAMPS, &b.timestamps)
        give_values(piece, TIMESTAMP_TYPES, &b.types)
        piece.slots[PARTITIONS] = hold_memory(self.partitions)
        piece.slots[TOPIC_OFFSETS] = hold_memory(self.topic_ends)
        piece.slots[TOPIC_DATA] = hold_memory(self.topic_text)
        self.usual_rows = b.rows
        drop_build(b)
        b.full = False
        out.adopt(piece)
        return out

    cdef int make_constants(self, int64_t rows) noexcept:
        """Topic and partition are the same in every row: one memory serves all pieces."""
        cdef int64_t i
        cdef int64_t size = len(self.topic)
        cdef const uint8_t* text = <const uint8_t*><const char*>self.topic
        if rows <= self.constant_rows:
            return OK
        rows = min(max(rows, 2 * self.constant_rows), self.most_rows)
        if TOPIC in self.kinds:
            drop_memory(self.topic_ends)
            drop_memory(self.topic_text)
            self.topic_ends = new_memory(4 * (rows + 1))
            self.topic_text = new_memory(rows * size)
            if self.topic_ends == NULL or self.topic_text == NULL:
                self.constant_rows = 0
                return ERR_MEMORY
            for i in range(rows):
                memcpy(self.topic_text.data + i * size, text, <size_t>size)
                (<int32_t*>self.topic_ends.data)[i] = <int32_t>(i * size)
            (<int32_t*>self.topic_ends.data)[rows] = <int32_t>(rows * size)
        if PARTITION in self.kinds:
            drop_memory(self.partitions)
            self.partitions = new_memory(4 * rows)
            if self.partitions == NULL:
                self.constant_rows = 0
                return ERR_MEMORY
            for i in range(rows):
                (<int32_t*>self.partitions.data)[i] = self.partition
        self.constant_rows = rows
        return OK

    def __repr__(self):
        return f"<ColumnBuilder with {self.build.rows} records>"


cdef int64_t usual(int64_t used) noexcept:
    """Return the first room of the next piece, by the size of the last one."""
    return used + used // 8


cdef int more_values(Memory** memory, int64_t used, int64_t size) noexcept:
    cdef Memory* more = grow_memory(memory[0], used, size)
    if more == NULL:
        return ERR_MEMORY
    memory[0] = more
    return OK


cdef void drop_build(Build* b) noexcept:
    """Forgets the piece that is being made."""
    drop_bytes(&b.key)
    drop_bytes(&b.value)
    drop_headers(&b.headers)
    drop_memory(b.offsets)
    drop_memory(b.timestamps)
    drop_memory(b.types)
    b.offsets = b.timestamps = b.types = NULL
    b.rows = b.room = b.bytes = 0


cdef void give_values(Piece* piece, int slot, Memory** memory) noexcept:
    piece.slots[slot] = memory[0]
    memory[0] = NULL


cdef void give(Piece* piece, int slot, Bytes* b, int64_t* nulls) noexcept:
    """Hands ends, data and validity over as three slots in this order."""
    piece.slots[slot] = b.ends
    piece.slots[slot + 1] = b.data
    nulls[0] = b.nulls
    if b.nulls:
        piece.slots[slot + 2] = b.valid
        b.valid = NULL
    b.ends = b.data = NULL


cdef void give_headers(Piece* piece, Build* b) noexcept:
    cdef int64_t nulls = 0
    piece.headers = b.headers.count
    give_values(piece, HEADER_LISTS, &b.headers.lists)
    give(piece, HEADER_VALUE_OFFSETS, &b.headers.values, &piece.header_value_nulls)
    piece.slots[HEADER_KEY_OFFSETS] = b.headers.keys.ends
    piece.slots[HEADER_KEY_DATA] = b.headers.keys.data
    b.headers.keys.ends = b.headers.keys.data = NULL


cdef void settle_bytes(Bytes* b, int64_t rows) noexcept:
    """Forgets a value that was put behind the last row."""
    cdef int64_t i
    if b.ends == NULL:
        return
    b.used = (<int32_t*>b.ends.data)[rows]
    b.nulls = 0
    if b.valid != NULL:
        if rows < b.room:
            b.valid.data[rows >> 3] |= 1 << (rows & 7)
        for i in range(rows):
            b.nulls += 1 - ((b.valid.data[i >> 3] >> (i & 7)) & 1)


cdef void settle(Build* b) noexcept:
    """Forgets what a record that does not fit has put into some of the columns."""
    cdef int64_t i
    settle_bytes(&b.key, b.rows)
    settle_bytes(&b.value, b.rows)
    if b.headers.lists != NULL:
        b.headers.count = (<int32_t*>b.headers.lists.data)[b.rows]
        settle_bytes(&b.headers.keys, b.headers.count)
        settle_bytes(&b.headers.values, b.headers.count)
