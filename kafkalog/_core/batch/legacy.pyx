"""Messages of format v0 and v1, written: plain ones, and wrappers around a compressed set of them (format.md section 4)."""
cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.batch.emit cimport message_size, put_message
from kafkalog._core.batch.layout cimport TIMESTAMP_TYPE_BIT

cdef enum:
    MOST = 0x7FFFFFFF               # a size field holds no more


cdef int take(object source, Py_buffer* field, str what) except -1:
    """Holds the bytes of a key or value; None gives length -1, and nothing to release."""
    field.len = -1
    if source is None:
        return 0
    if isinstance(source, str):
        raise TypeError(f"{what} is a str: encode it first, {what}.encode()")
    PyObject_GetBuffer(source, field, PyBUF_SIMPLE)
    return 0


@cython.final
cdef class MessageSet:
    """A growing run of v0 or v1 messages with the offsets they are given; `build` returns it and starts the next.

    `append` takes any offset and any attributes: what may stand together is the caller's business. Timestamps are ms
    and are not written in v0. OverflowError where the set would pass 2 GiB.
    """
    cdef object out
    cdef uint8_t* data
    cdef Py_ssize_t capacity
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t count
    cdef readonly int magic

    def __init__(self, magic: int):
        if magic not in (0, 1):
            raise ValueError(f"messages have format v0 or v1, not v{magic}")
        self.magic = magic
        self._begin()

    cdef void _begin(self):
        self.out = None
        self.data = NULL
        self.capacity = self.size = self.count = 0

    cdef int reserve(self, int64_t more) except -1:
        cdef int64_t want = self.size + more
        if want > MOST:
            raise OverflowError(f"{want} bytes of messages: a set holds at most {MOST}")
        if want <= self.capacity:
            return 0
        want = min(max(want, 2 * self.capacity, 1024), MOST)
        if self.out is None:
            self.out = PyByteArray_FromStringAndSize(NULL, <Py_ssize_t>want)
        else:
            PyByteArray_Resize(self.out, <Py_ssize_t>want)
        self.data = <uint8_t*>PyByteArray_AS_STRING(self.out)
        self.capacity = <Py_ssize_t>want
        return 0

    @cython.critical_section
    def append(self, int64_t offset, int64_t timestamp, key, value, *, int attributes=0) -> None:
        """Adds one message; key and value are buffers or None."""
        cdef Py_buffer k
        cdef Py_buffer v
        cdef int64_t size
        take(key, &k, "key")
        try:
            take(value, &v, "value")
            try:
                size = message_size(self.magic, k.len, v.len)
                self.reserve(size)
                put_message(
                    self.data + self.size, size, self.magic, attributes, offset, timestamp, <const uint8_t*>k.buf,
                    k.len, <const uint8_t*>v.buf, v.len,
                )
                self.size += <Py_ssize_t>size
                self.count += 1
            finally:
                if v.len >= 0:
                    PyBuffer_Release(&v)
        finally:
            if k.len >= 0:
                PyBuffer_Release(&k)

    @cython.critical_section
    def build(self) -> bytearray:
        """The messages back to back."""
        cdef object out = self.out
        if out is None:
            return bytearray()
        PyByteArray_Resize(out, self.size)
        self._begin()
        return out


def wrapper(payload, *, int magic, int codec, int64_t offset, int64_t timestamp=-1, bint append_time=False) -> bytearray:
    """The message that wraps a compressed set: `offset` is that of its last inner message (0 or more).

    `timestamp` (ms) is the largest inner one, or the append time, which then rules all of them. v0 has neither.
    """
    cdef MessageSet one
    if codec < 1 or codec > 3:
        raise ValueError(f"codec {codec} is not one that format v{magic} can hold")
    if append_time and magic == 0:
        raise ValueError("format v0 has no timestamps")
    one = MessageSet(magic)
    one.append(offset, timestamp, None, payload, attributes=codec | (TIMESTAMP_TYPE_BIT if append_time else 0))
    return one.build()
