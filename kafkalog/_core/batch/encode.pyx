"""v2 batches from Python objects: sizes are exact, the records are written once, header and checksum last."""
cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.list cimport PyList_CheckExact, PyList_GET_SIZE
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8String
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kafkalog._core.batch.emit cimport (
    HeaderFields, plain_header, put_header, put_sized, put_varint, put_varlong, varint_size, varlong_size,
)
from kafkalog._core.batch.layout cimport (
    CONTROL_BIT, DELETE_HORIZON_BIT, TIMESTAMP_TYPE_BIT, TRANSACTIONAL_BIT, V2_RECORDS_AT,
)
from kafkalog._core.batch.ready_batch cimport ReadyBatch, built_batch
from kafkalog._core.batch.record cimport Record
from kafkalog._core.bytes.wrap cimport subtracted

cdef extern from *:
    """
    /* an item of a list, and a reference to it: other threads may change the list */
    #ifdef Py_GIL_DISABLED
    #define kl_list_item PyList_GetItemRef
    #else
    #define kl_list_item(list, i) Py_NewRef(PyList_GET_ITEM(list, i))
    #endif
    """
    object list_item "kl_list_item" (object list, Py_ssize_t i)

cdef enum:
    MOST = 0x7FFFFFFF               # a size field holds no more
    FIRST_CAPACITY = 16384

cdef int64_t LATEST = 0x7FFFFFFFFFFFFFFF

EMPTY_BATCH_BYTES = V2_RECORDS_AT


class BadRecord(ValueError):
    """A record that cannot be encoded; `index` is its place in what was given, `field` what is wrong with it."""

    def __init__(self, message: str, index: int, field: str):
        super().__init__(message)
        self.index = index
        self.field = field


@cython.final
cdef class Piece:
    """The bytes of a key or a value: a pointer for as long as this object lives. Size -1 is null."""
    cdef Py_buffer view
    cdef bint held
    cdef const uint8_t* data
    cdef Py_ssize_t size

    cdef int take(self, object source, str what, Py_ssize_t index) except -1:
        self.drop()
        if source is None:
            self.data = NULL
            self.size = -1
        elif PyBytes_CheckExact(source):
            self.data = <const uint8_t*>PyBytes_AS_STRING(source)
            self.size = PyBytes_GET_SIZE(source)
        elif isinstance(source, str):
            raise TypeError(f"{what} is a str: encode it first, {what}.encode()")
        else:
            try:
                PyObject_GetBuffer(source, &self.view, PyBUF_SIMPLE)
            except (TypeError, BufferError):
                raise TypeError(f"{what} is a {type(source).__name__}: give bytes, a buffer or None") from None
            self.held = True
            self.data = <const uint8_t*>self.view.buf
            self.size = self.view.len
        if self.size > MOST - 64:
            raise BadRecord(f"{what} of {self.size} bytes does not fit into a batch", index, what)
        return 0

    cdef void drop(self):
        if self.held:
            PyBuffer_Release(&self.view)
            self.held = False

    def __dealloc__(self):
        self.drop()


cdef bytes encode_headers(object headers, Py_ssize_t index):
    """The header count and the headers of record `index`, as they stand in it."""
    cdef list pairs = list(headers.items() if isinstance(headers, dict) else headers)
    cdef bytearray out = bytearray()
    for pair in pairs:
        try:
            name, value = pair
        except ValueError:
            raise TypeError(f"a header is {repr(pair)[:60]}: give pairs (name, value), or a dict") from None
        if name is None:
            raise TypeError("a header name is None: it must be text")
        raw = name_bytes(name, index) if isinstance(name, str) else plain(name, "a header name")
        out += varint_bytes(len(raw))
        out += raw
        if value is None:
            out += b"\x01"
        else:
            raw = plain(value, "a header value")
            out += varint_bytes(len(raw))
            out += raw
    return varint_bytes(len(pairs)) + bytes(out)


cdef bytes name_bytes(object name, Py_ssize_t index):
    """The UTF-8 of a header's name; what a subclass of str would say of itself does not count."""
    try:
        return PyUnicode_AsUTF8String(name)
    except UnicodeEncodeError as error:
        raise BadRecord(f"the name of a header, {ascii(name)}, is no text: {error.reason}", index, "headers") from None


cdef bytes plain(object data, str what):
    """The bytes of a buffer; TypeError for anything else (bytes(5) would be five zeros)."""
    if PyBytes_CheckExact(data):
        return data
    if isinstance(data, str):
        raise TypeError(f"{what} is a str: encode it first, .encode() does")
    try:
        return bytes(memoryview(data))
    except TypeError:
        raise TypeError(f"{what} is a {type(data).__name__}: give bytes, a buffer or None") from None


cdef bytes varint_bytes(int32_t v):
    cdef uint8_t tmp[5]
    cdef uint8_t* end = put_varint(tmp, v)
    return (<char*>tmp)[:end - tmp]


cdef int64_t millis(object moment) except? -1:
    """ms from an int or a datetime; a datetime without a zone is UTC."""
    if isinstance(moment, int):
        return moment
    if hasattr(moment, "utcoffset"):
        import datetime
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.timezone.utc)
        delta = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
        return (delta.days * 86400 + delta.seconds) * 1000 + delta.microseconds // 1000
    if moment is None:
        return -1
    raise TypeError(f"a timestamp is a {type(moment).__name__}: give ms since 1970 as an int, or a datetime")


@cython.final
cdef class BatchBuilder:
    """Collects records into one v2 batch of at most `limit` bytes, header counted, by exact encoded sizes.

    `append` answers False, and takes nothing, where the record would pass the limit; the first record of a batch
    always fits. `build` writes header and checksum, hands the batch out as a bytearray and begins a new one.
    Timestamps are ms; -1 means none. A builder belongs to one thread at a time.
    """
    cdef object out
    cdef uint8_t* data
    cdef Py_ssize_t capacity
    cdef Py_ssize_t first_capacity  # of a batch that begins, where its first record needs no more
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t limit
    cdef readonly int32_t count
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t min_timestamp
    cdef readonly int32_t last_delta
    cdef bint has_keys
    cdef readonly int32_t delta_of_max_timestamp
    cdef bint has_horizon
    cdef int64_t horizon
    cdef bint busy                  # a record is being appended, which may run the caller's code: other calls are refused
    cdef Piece key_piece
    cdef Piece value_piece

    def __cinit__(self, limit: int = 16384, *, delete_horizon_ms: int | None = None):
        if limit < V2_RECORDS_AT or limit > MOST:
            raise ValueError(f"a batch limit of {limit} bytes is outside {V2_RECORDS_AT} to {MOST}")
        self.limit = limit
        self.first_capacity = FIRST_CAPACITY
        self.has_horizon = delete_horizon_ms is not None
        self.horizon = delete_horizon_ms if self.has_horizon else -1
        self._begin()

    cdef int _begin(self) except -1:
        self.out = None
        self.data = NULL
        self.capacity = 0
        self.size = V2_RECORDS_AT
        self.count = 0
        self.last_delta = -1
        self.base_timestamp = -1
        self.max_timestamp = -1
        self.min_timestamp = LATEST
        self.has_keys = True
        self.delta_of_max_timestamp = -1
        return 0

    cdef int _room(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t want = self.size + more
        cdef Py_ssize_t capacity
        if want <= self.capacity:
            return 0
        capacity = max(2 * self.capacity, want, min(self.limit, self.first_capacity))
        if self.out is None:
            self.out = PyByteArray_FromStringAndSize(NULL, capacity)
        else:
            PyByteArray_Resize(self.out, capacity)
        self.data = <uint8_t*>PyByteArray_AS_STRING(self.out)
        self.capacity = capacity
        return 0

    cdef int put(
        self, const uint8_t* key, Py_ssize_t key_size, const uint8_t* value, Py_ssize_t value_size, int64_t timestamp,
        bytes headers, int64_t delta,
    ) except -1:
        """1 when the record was taken, 0 when it would pass the limit. A delta of -1 is the next one."""
        cdef const uint8_t* head = <const uint8_t*>b"\x00"
        cdef Py_ssize_t head_size = 1
        cdef int64_t base = self.base_timestamp
        cdef int64_t time_delta
        cdef int32_t offset_delta
        cdef int64_t body
        cdef int64_t total
        cdef uint8_t* p
        if delta < 0:
            delta = <int64_t>self.last_delta + 1
        if delta <= self.last_delta or delta > MOST:
            raise ValueError(f"offset delta {delta} does not follow {self.last_delta}, or is above {MOST}")
        offset_delta = <int32_t>delta
        if headers is not None:
            head = <const uint8_t*>PyBytes_AS_STRING(headers)
            head_size = PyBytes_GET_SIZE(headers)
        if self.count == 0:
            base = self.horizon if self.has_horizon else timestamp
        time_delta = subtracted(timestamp, base)
        body = (
            1 + varlong_size(time_delta) + varint_size(offset_delta)
            + varint_size(<int32_t>key_size) + (key_size if key_size > 0 else 0)
            + varint_size(<int32_t>value_size) + (value_size if value_size > 0 else 0) + head_size
        )
        if body > MOST - 128:
            raise BadRecord(f"a record of {body} bytes does not fit into a batch", self.count, "value")
        total = varint_size(<int32_t>body) + body
        if self.size + total > self.limit and self.count > 0:
            return 0
        if self.size + total > MOST:
            raise BadRecord(f"a batch of {self.size + total} bytes is longer than its size field can say", self.count, "value")
        self._room(<Py_ssize_t>total)
        p = put_varint(self.data + self.size, <int32_t>body)
        p[0] = 0
        p = put_varlong(p + 1, time_delta)
        p = put_varint(p, offset_delta)
        p = put_sized(p, key, <int32_t>key_size)
        p = put_sized(p, value, <int32_t>value_size)
        memcpy(p, head, <size_t>head_size)
        self.size += <Py_ssize_t>total
        self.base_timestamp = base
        self.last_delta = offset_delta
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.delta_of_max_timestamp = offset_delta
        if timestamp != -1 and timestamp < self.min_timestamp:
            self.min_timestamp = timestamp
        if key_size < 0:
            self.has_keys = False
        self.count += 1
        return 1

    cdef int put_objects(self, object value, object key, int64_t timestamp, object headers, int64_t delta) except -1:
        # the caller's objects may run code of their own: headers first, which are copied, then the two held as pointers
        cdef bytes encoded = encode_headers(headers, self.count) if headers else None
        self._check_free()
        if self.key_piece is None:
            self.key_piece, self.value_piece = Piece.__new__(Piece), Piece.__new__(Piece)
        self.busy = True
        try:
            self.value_piece.take(value, "value", self.count)
            self.key_piece.take(key, "key", self.count)
            return self.put(
                self.key_piece.data, self.key_piece.size, self.value_piece.data, self.value_piece.size, timestamp,
                encoded, delta,
            )
        finally:
            self.value_piece.drop()
            self.key_piece.drop()
            self.busy = False

    cdef int _check_free(self) except -1:
        if self.busy:
            raise RuntimeError("this builder is taking a record at the moment, in another thread or further up the stack")
        return 0

    @cython.critical_section
    def append(self, value, key=None, int64_t timestamp=-1, headers=(), *, int32_t offset_delta=-1) -> bool:
        """Adds a record; False where it would pass the limit. `offset_delta` defaults to the next one."""
        return self.put_objects(value, key, timestamp, headers, offset_delta) == 1

    @cython.critical_section
    def build(
        self, *, int64_t base_offset=0, int32_t leader_epoch=-1, int64_t producer_id=-1, int16_t producer_epoch=-1,
        int32_t base_sequence=-1, bint transactional=False, bint control=False, int64_t append_time=-1,
    ) -> bytearray:
        """The batch, with its checksum; empty where no record was appended. The builder is empty afterwards.

        An `append_time` (ms) of 0 or more marks the batch LogAppendTime: every record then reports that time.
        """
        cdef HeaderFields h
        self._check_free()
        if self.count == 0:
            return bytearray()
        plain_header(&h)
        h.base_offset = base_offset
        h.leader_epoch = leader_epoch
        h.producer_id = producer_id
        h.producer_epoch = producer_epoch
        h.base_sequence = base_sequence
        if transactional:
            h.attributes |= TRANSACTIONAL_BIT
        if control:
            h.attributes |= CONTROL_BIT
        return self.finished(&h, append_time)

    cdef bytearray finished(self, HeaderFields* h, int64_t append_time):
        """The batch behind that header; what of it the records say is filled in."""
        cdef bytearray out = self.out
        h.count = self.count
        h.last_delta = self.last_delta
        h.base_timestamp = self.base_timestamp
        h.max_timestamp = self.max_timestamp
        if self.has_horizon:
            h.attributes |= DELETE_HORIZON_BIT
        if append_time >= 0:
            h.attributes |= TIMESTAMP_TYPE_BIT
            h.max_timestamp = append_time
        put_header(self.data, self.size, h)
        PyByteArray_Resize(out, self.size)
        self._begin()
        return out

    @cython.critical_section
    cpdef ReadyBatch build_ready(self):
        """The batch as `build` makes it, for an append that has not to look into it again; None without a record."""
        cdef HeaderFields h
        cdef int64_t oldest = self.min_timestamp
        cdef int64_t newest = self.max_timestamp
        cdef bint has_keys = self.has_keys
        self._check_free()
        if self.count == 0:
            return None
        plain_header(&h)
        return built_batch(self.finished(&h, -1), oldest, newest, has_keys)


cdef int put_item(BatchBuilder b, object item, int64_t now, Py_ssize_t index) except -1:
    """One record in any of the accepted shapes; 0 where it does not fit."""
    cdef object key = None
    cdef object value = None
    cdef object headers = None
    cdef int64_t timestamp = -1
    cdef Py_ssize_t n
    cdef Record r
    if PyBytes_CheckExact(item):
        return b.put(NULL, -1, <const uint8_t*>PyBytes_AS_STRING(item), PyBytes_GET_SIZE(item), now, None, -1)
    if isinstance(item, tuple):
        n = PyTuple_GET_SIZE(item)
        if n < 2 or n > 4:
            raise TypeError(f"record {index} is a tuple of {n}: give (key, value), (key, value, timestamp) or (key, value, timestamp, headers)")
        key = <object>PyTuple_GET_ITEM(item, 0)
        value = <object>PyTuple_GET_ITEM(item, 1)
        if n > 2:
            timestamp = stamp(<object>PyTuple_GET_ITEM(item, 2), index)
        if n > 3:
            headers = <object>PyTuple_GET_ITEM(item, 3)
    elif isinstance(item, Record):
        r = item
        key = r.key
        value = r.value
        headers = r.headers
        timestamp = stamp(r.timestamp, index)
    elif isinstance(item, dict):
        unknown = set(item) - {"key", "value", "timestamp", "headers", "offset"}
        if unknown:
            raise TypeError(f"record {index} has unknown fields {sorted(map(str, unknown))}: known are key, value, timestamp, headers")
        key = item.get("key")
        value = item.get("value")
        headers = item.get("headers")
        if item.get("timestamp") is not None:
            timestamp = stamp(item["timestamp"], index)
    else:
        value = item
        if isinstance(item, str):
            raise TypeError(f"record {index} is a str: encode it first, record.encode()")
    if timestamp == -1:
        timestamp = now
    return b.put_objects(value, key, timestamp, headers, -1)


cdef int64_t stamp(object moment, Py_ssize_t index) except? -1:
    cdef int64_t ms = millis(moment)
    if ms < -1:
        raise BadRecord(f"record {index} has timestamp {ms}: ms since 1970 start at 0, -1 means now", index, "timestamp")
    return ms


cdef object too_long(Py_ssize_t index):
    return BadRecord(f"record {index} makes the batch longer than its size field can say: {MOST} bytes", index, "value")


def encode_batch(records, *, int64_t timestamp, int64_t base_offset=0, int32_t leader_epoch=-1) -> bytearray:
    """One v2 batch of all records of a list, a tuple of records is not one: give a list or another iterable.

    Each is bytes (a value), (key, value), (key, value, timestamp), (key, value, timestamp, headers), a Record or a
    dict; those without a time get `timestamp` (ms). Nothing is limited but the format's 2 GiB: sizes are the log's
    business. BadRecord names a record that cannot be encoded, TypeError one of the wrong type.
    """
    return builder_of(records, timestamp).build(base_offset=base_offset, leader_epoch=leader_epoch)


def encode_ready(records, *, int64_t timestamp) -> ReadyBatch | None:
    """`encode_batch` for an append that has not to look into the batch again; None without a record."""
    return builder_of(records, timestamp).build_ready()


cdef BatchBuilder builder_of(object records, int64_t timestamp):
    cdef BatchBuilder b = BatchBuilder(MOST)
    cdef Py_ssize_t i
    cdef Py_ssize_t n
    if PyList_CheckExact(records):
        n = PyList_GET_SIZE(records)
        if n == 1:
            b.first_capacity = 0        # exactly what the record needs
        i = 0
        while i < n and i < PyList_GET_SIZE(records):
            item = list_item(records, i)    # a reference of our own: the list may change under us
            if not put_item(b, item, timestamp, i):
                raise too_long(i)
            i += 1
    else:
        i = 0
        for item in records:
            if not put_item(b, item, timestamp, i):
                raise too_long(i)
            i += 1
    return b
