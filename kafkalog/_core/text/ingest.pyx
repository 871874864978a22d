"""Text to batches: splits a chunk at a delimiter and writes finished v2 batches, one lane for each partition, no GIL."""
cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp, memcpy

from kafkalog._core.batch.emit cimport HeaderFields, plain_header, put_header, put_varint, varint_size
from kafkalog._core.batch.fields cimport walk_headers_of
from kafkalog._core.batch.layout cimport OK, V2_RECORDS_AT
from kafkalog._core.bytes.buffers cimport Held, hold
from kafkalog._core.bytes.cursor cimport Cursor, take_varint
from kafkalog._core.bytes.murmur cimport partition_of

cdef enum:
    DONE = 0
    NEED_ROOM
    TOO_LONG
    MOST = 0x7FFFFFFF
    WIDE = 32                   # lines up to this length are copied as two fixed 16-byte moves


cdef struct Text:
    # a borrowed bytes object, kept alive by the encoder; data is NULL where the option is off
    const uint8_t* data
    int64_t size


cdef struct Lane:
    uint8_t* data
    int64_t capacity
    int64_t size
    int64_t open_at             # where the open batch begins; all before it is finished
    int64_t timestamp           # of every record in the open batch
    int32_t count               # records in the open batch
    int64_t records             # taken in all


cdef inline void seal(Lane* lane) noexcept nogil:
    """Writes header and checksum of the open batch."""
    cdef HeaderFields h
    if lane.count == 0:
        return
    plain_header(&h)
    h.base_timestamp = h.max_timestamp = lane.timestamp
    h.count = lane.count
    h.last_delta = lane.count - 1
    put_header(lane.data + lane.open_at, lane.size - lane.open_at, &h)
    lane.open_at = lane.size
    lane.count = 0


cdef inline void copy_text(uint8_t* to, const uint8_t* start, int64_t n, const uint8_t* readable) noexcept nogil:
    """Copies n bytes; up to WIDE of them as a fixed-size move where both sides have the room."""
    if n <= WIDE and readable - start >= WIDE:
        memcpy(to, start, WIDE)
    else:
        memcpy(to, start, <size_t>n)


@cython.final
cdef class LineEncoder:
    """Turns delimited text into v2 batches, one lane for each of `partitions` partitions.

    A batch closes when the next record's exact encoded size would pass `batch_bytes` (the 61-byte header counted); its
    records carry the time given with the `feed` that opened it, so that the layout depends on the input alone. Records
    with a key go to murmur2(key) mod partitions, those without stay on one lane until its batch closes, then move on.
    `key_delimiter` splits a line at its first occurrence into key and value, a line without it has no key; `null` text
    (of any kind but the empty default None) makes a key or value null; `key` is one key for all.
    """
    cdef Lane* lanes
    cdef list outs
    cdef int32_t lane_count
    cdef int32_t sticky
    cdef int64_t limit
    cdef int64_t chunk
    cdef Text delimiter
    cdef Text key_delimiter
    cdef Text null
    cdef Text key
    cdef Text headers
    cdef tuple kept                 # owns the bytes behind the five
    cdef bint busy                  # `feed` runs without the GIL: no other call may touch the lanes

    def __cinit__(
        self, partitions: int = 1, *, batch_bytes: int = 16384, chunk_bytes: int = 1 << 20, delimiter: bytes = b"\n",
        key_delimiter: bytes | None = None, null: bytes | None = None, key: bytes | None = None,
        encoded_headers: bytes = b"\x00",
    ):
        if partitions < 1 or partitions > 1_000_000:
            raise ValueError(f"{partitions} partitions: at least 1, at most 1000000")
        if batch_bytes < V2_RECORDS_AT or batch_bytes > MOST:
            raise ValueError(f"a batch limit of {batch_bytes} bytes is outside {V2_RECORDS_AT} to {MOST}")
        if not delimiter or key_delimiter == b"":
            raise ValueError("a delimiter is empty")
        if not whole_headers(encoded_headers):
            raise ValueError("encoded_headers is not a header count and as many headers")
        self.lanes = <Lane*>calloc(partitions, sizeof(Lane))
        if self.lanes == NULL:
            raise MemoryError
        self.lane_count = partitions
        self.outs = [None] * partitions
        self.limit = batch_bytes
        self.chunk = max(chunk_bytes, 0) + 2 * min(batch_bytes, max(chunk_bytes, 0))
        self.kept = (delimiter, key_delimiter, null, key, encoded_headers)
        self.delimiter = text_of(delimiter)
        self.key_delimiter = text_of(key_delimiter)
        self.null = text_of(null)
        self.key = text_of(key)
        self.headers = text_of(encoded_headers)

    def __dealloc__(self):
        free(self.lanes)

    cdef int _check_free(self) except -1:
        if self.busy:
            raise RuntimeError("this encoder is at work in another thread: it belongs to one at a time")
        return 0

    cdef int64_t _first_capacity(self, int64_t need) noexcept:
        cdef int64_t usual = self.chunk if self.lane_count == 1 else min(self.limit * 4, self.chunk)
        return max(usual, need)

    cdef int _make_room(self, int32_t number, int64_t need) except -1:
        cdef Lane* lane = &self.lanes[number]
        cdef int64_t capacity
        out = self.outs[number]
        if out is None:
            capacity = self._first_capacity(need)
            out = PyByteArray_FromStringAndSize(NULL, capacity)
            self.outs[number] = out
        else:
            capacity = max(lane.capacity * 2, need)
            PyByteArray_Resize(out, capacity)
        lane.data = <uint8_t*>PyByteArray_AS_STRING(out)
        lane.capacity = capacity
        return 0

    @cython.critical_section
    def feed(self, buf, Py_ssize_t size, int64_t timestamp, *, bint final=False) -> int:
        """Encode the lines in the first `size` bytes of `buf` and return the number of bytes consumed.

        The rest is the beginning of an incomplete line, to be passed again with more bytes after it; with `final` it
        counts as a line. `timestamp` (ms) stamps the batches opened here.
        """
        cdef Held held = hold(buf)
        cdef int64_t at = 0
        cdef int64_t need = 0
        cdef int32_t lane = 0
        cdef int status
        if size < 0 or size > held.size:
            raise ValueError(f"{size} bytes of a buffer of {held.size}")
        self._check_free()
        self.busy = True
        try:
            while True:
                with nogil:
                    status = self._run(held.data, size, timestamp, final, &at, &lane, &need)
                if status == NEED_ROOM:
                    self._make_room(lane, need)
                elif status == TOO_LONG:
                    raise ValueError(f"a line of more than {MOST - 128} bytes at byte {at} of this chunk")
                else:
                    return at
        finally:
            self.busy = False

    cdef int _run(
        self, const uint8_t* data, int64_t size, int64_t timestamp, bint final, int64_t* at, int32_t* lane_out,
        int64_t* need,
    ) noexcept nogil:
        cdef const uint8_t* p = data + at[0]
        cdef const uint8_t* end = data + size
        cdef const uint8_t* stop
        cdef bint plain = self.key_delimiter.data == NULL and self.null.data == NULL and self.key.data == NULL
        cdef int status
        while p < end:
            stop = find(p, end, self.delimiter)
            if stop == NULL:
                if not final:
                    break
                stop = end
            if plain:
                status = self._put(lane_out, NULL, -1, p, stop - p, end, timestamp, need)
            else:
                status = self._put_line(p, stop, end, timestamp, lane_out, need)
            if status != DONE:
                at[0] = p - data
                return status
            p = stop + self.delimiter.size if stop < end else end
        at[0] = p - data
        return DONE

    cdef int _put_line(
        self, const uint8_t* p, const uint8_t* stop, const uint8_t* end, int64_t timestamp, int32_t* lane, int64_t* need
    ) noexcept nogil:
        """A line that may have a key, or be null."""
        cdef const uint8_t* key = self.key.data
        cdef int64_t key_size = self.key.size
        cdef const uint8_t* split
        cdef int64_t value_size
        if self.key_delimiter.data != NULL:
            split = find(p, stop, self.key_delimiter)
            if split != NULL:
                key = p
                key_size = split - p
                p = split + self.key_delimiter.size
        value_size = stop - p
        if self.null.data != NULL:
            if key_size >= 0 and same(key, key_size, self.null):
                key_size = -1
            if same(p, value_size, self.null):
                value_size = -1
        return self._put(lane, key, key_size, p, value_size, end, timestamp, need)

    cdef int _put(
        self, int32_t* number, const uint8_t* key, int64_t key_size, const uint8_t* value, int64_t value_size,
        const uint8_t* end, int64_t timestamp, int64_t* need,
    ) noexcept nogil:
        """Adds a record to its lane, whose number it gives; NEED_ROOM is about that lane."""
        cdef Lane* lane
        cdef int64_t head = self.headers.size
        cdef int64_t fixed
        cdef int64_t body
        cdef int64_t total
        cdef uint8_t* q
        if key_size > MOST - 128 or value_size > MOST - 128:
            return TOO_LONG
        fixed = (
            2 + varint_size(<int32_t>key_size) + (key_size if key_size > 0 else 0)
            + varint_size(<int32_t>value_size) + (value_size if value_size > 0 else 0) + head
        )
        if fixed > MOST - 128:
            return TOO_LONG
        number[0] = self.sticky if key_size < 0 else partition_of(key, key_size, self.lane_count)
        while True:
            lane = &self.lanes[number[0]]
            body = fixed + varint_size(lane.count)
            total = varint_size(<int32_t>body) + body
            if lane.count == 0 or lane.size - lane.open_at + total <= self.limit:
                break
            seal(lane)
            if key_size < 0:
                # the next batch of keyless records goes to the next partition
                self.sticky = number[0] = (self.sticky + 1) % self.lane_count
        if lane.size + V2_RECORDS_AT + total + WIDE > lane.capacity:
            need[0] = lane.size + V2_RECORDS_AT + total + WIDE
            return NEED_ROOM
        if lane.count == 0:
            lane.open_at = lane.size
            lane.size += V2_RECORDS_AT
            lane.timestamp = timestamp
        q = put_varint(lane.data + lane.size, <int32_t>body)
        q[0] = 0
        q[1] = 0
        q = put_varint(q + 2, lane.count)
        q = put_varint(q, <int32_t>key_size)
        if key_size > 0:
            memcpy(q, key, <size_t>key_size)
            q += key_size
        q = put_varint(q, <int32_t>value_size)
        if value_size > 0:
            copy_text(q, value, value_size, end)
            q += value_size
        memcpy(q, self.headers.data, <size_t>head)
        lane.size += total
        lane.count += 1
        lane.records += 1
        return DONE

    @cython.critical_section
    def add(self, bytes value, bytes key, int64_t timestamp) -> int:
        """Encodes one record (bytes or None each); returns the partition it went to."""
        cdef int64_t need = 0
        cdef int32_t lane = 0
        cdef const uint8_t* k = NULL
        cdef int64_t key_size = -1
        cdef const uint8_t* v = NULL
        cdef int64_t value_size = -1
        cdef int status
        self._check_free()
        if key is not None:
            k = <const uint8_t*>PyBytes_AS_STRING(key)
            key_size = PyBytes_GET_SIZE(key)
        if value is not None:
            v = <const uint8_t*>PyBytes_AS_STRING(value)
            value_size = PyBytes_GET_SIZE(value)
        while True:
            status = self._put(
                &lane, k, key_size, v, value_size, v + value_size if value_size > 0 else v, timestamp, &need
            )
            if status == NEED_ROOM:
                self._make_room(lane, need)
            elif status == TOO_LONG:
                raise ValueError(f"a record of more than {MOST - 128} bytes")
            else:
                return lane

    @cython.critical_section
    def ready_bytes(self, int32_t partition=0) -> int:
        """Bytes of finished batches that wait for `take`."""
        self._check(partition)
        return self.lanes[partition].open_at if self.lanes[partition].count else self.lanes[partition].size

    @cython.critical_section
    def records(self, int32_t partition=0) -> int:
        """Records given to a partition so far, those of its open batch counted."""
        self._check(partition)
        return self.lanes[partition].records

    @cython.critical_section
    def seal(self) -> None:
        """Closes every open batch, as at the end of the input or after the linger time."""
        cdef int32_t i
        self._check_free()
        for i in range(self.lane_count):
            seal(&self.lanes[i])

    cdef int _check(self, int32_t partition) except -1:
        self._check_free()
        if partition < 0 or partition >= self.lane_count:
            raise IndexError(f"partition {partition} of {self.lane_count}")
        return 0

    @cython.critical_section
    def take(self, int32_t partition=0) -> bytearray:
        """The finished batches of a partition, back to back with base offset 0; they leave the encoder."""
        cdef Lane* lane
        cdef int64_t done
        cdef int64_t rest
        cdef int64_t capacity = 0
        cdef object fresh = None
        self._check(partition)
        lane = &self.lanes[partition]
        done = lane.open_at if lane.count else lane.size
        if done == 0:
            return bytearray()
        rest = lane.size - done
        out = self.outs[partition]
        if rest > 0:
            # the open batch moves to its own memory; without memory nothing has changed yet
            capacity = self._first_capacity(rest)
            fresh = PyByteArray_FromStringAndSize(NULL, capacity)
            memcpy(PyByteArray_AS_STRING(fresh), lane.data + done, <size_t>rest)
        PyByteArray_Resize(out, done)
        self.outs[partition] = fresh
        lane.data = <uint8_t*>PyByteArray_AS_STRING(fresh) if rest > 0 else NULL
        lane.capacity = capacity
        lane.size = rest
        lane.open_at = 0
        return out


cdef Text text_of(object source):
    """A view of a bytes object, or of nothing for None; TypeError for anything else."""
    cdef Text t
    t.data = NULL
    t.size = -1
    if source is not None:
        t.size = PyBytes_GET_SIZE(<bytes?>source)
        t.data = <const uint8_t*>PyBytes_AS_STRING(source)
    return t


cdef bint whole_headers(bytes encoded):
    """True for a header count and as many headers, and nothing else: what ends every record."""
    cdef Cursor c
    cdef int32_t count = 0
    c.p = <const uint8_t*>PyBytes_AS_STRING(encoded)
    c.end = c.p + PyBytes_GET_SIZE(encoded)
    return (
        take_varint(&c, &count) == OK and 0 <= count <= c.end - c.p and walk_headers_of(&c, count) == OK and c.p == c.end
    )


cdef inline const uint8_t* find(const uint8_t* p, const uint8_t* end, Text what) noexcept nogil:
    """Return the address of `what` in [p, end), or NULL."""
    cdef const uint8_t* hit
    if what.size == 1:
        return <const uint8_t*>memchr(p, what.data[0], <size_t>(end - p))
    while end - p >= what.size:
        hit = <const uint8_t*>memchr(p, what.data[0], <size_t>(end - p - what.size + 1))
        if hit == NULL:
            return NULL
        if memcmp(hit, what.data, <size_t>what.size) == 0:
            return hit
        p = hit + 1
    return NULL


cdef inline bint same(const uint8_t* p, int64_t n, Text text) noexcept nogil:
    return n == text.size and (n == 0 or memcmp(p, text.data, <size_t>n) == 0)
