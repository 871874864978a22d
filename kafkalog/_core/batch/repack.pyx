"""A v2 batch with other bytes for records: how a batch that was built plain becomes a compressed one, and back."""
cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kafkalog._core.batch.layout cimport (
    CODEC_MASK, LOG_OVERHEAD, MAGIC_AT, SIZE_AT, V2_ATTRIBUTES_AT, V2_CRC_AT, V2_RECORDS_AT,
)
from kafkalog._core.bytes.buffers cimport Held, hold
from kafkalog._core.bytes.crc cimport kl_crc32c
from kafkalog._core.bytes.endian cimport load16, load32, store16, store32
from kafkalog._core.bytes.store cimport Block, Store

cdef enum:
    MOST = 0x7FFFFFFF               # a size field holds no more


cdef void seal(uint8_t* p, Py_ssize_t size, int codec) noexcept nogil:
    """Makes size, codec and checksum of a v2 batch of `size` bytes fit its records."""
    store32(p + SIZE_AT, <int32_t>(size - LOG_OVERHEAD))
    store16(p + V2_ATTRIBUTES_AT, <int16_t>((load16(p + V2_ATTRIBUTES_AT) & ~CODEC_MASK) | codec))
    store32(p + V2_CRC_AT, <int32_t>kl_crc32c(0, p + V2_ATTRIBUTES_AT, <size_t>(size - V2_ATTRIBUTES_AT)))


def with_payload(batch, payload, int codec) -> bytearray:
    """A batch with the header of `batch`, a v2 batch or its first 61 bytes, and `payload` as its records.

    `codec` (0 to 7) says how the payload is compressed. Size, codec bits and checksum are made to fit; nothing else
    changes. ValueError for what has no v2 header or is longer than a size field can say.
    """
    cdef Py_buffer head
    cdef Py_buffer body
    cdef object out
    cdef uint8_t* p
    cdef Py_ssize_t size
    if codec < 0 or codec > CODEC_MASK:
        raise ValueError(f"codec {codec} does not fit the attributes of a batch")
    PyObject_GetBuffer(batch, &head, PyBUF_SIMPLE)
    try:
        if head.len < V2_RECORDS_AT or (<const uint8_t*>head.buf)[MAGIC_AT] != 2:
            raise ValueError("this is no batch of format v2")
        PyObject_GetBuffer(payload, &body, PyBUF_SIMPLE)
        try:
            if body.len > MOST - V2_RECORDS_AT:
                raise ValueError(f"{body.len} bytes of records are longer than a batch can be")
            size = V2_RECORDS_AT + body.len
            out = PyByteArray_FromStringAndSize(NULL, size)
            p = <uint8_t*>PyByteArray_AS_STRING(out)
            with nogil:
                memcpy(p, head.buf, V2_RECORDS_AT)
                memcpy(p + V2_RECORDS_AT, body.buf, <size_t>body.len)
                seal(p, size, codec)
        finally:
            PyBuffer_Release(&body)
    finally:
        PyBuffer_Release(&head)
    return out


@cython.final
cdef class Packer:
    """Goes through whole v2 batches, back to back in `batches`, and puts each into `store` with other records.

    For every batch `next` puts its header there and gives its records; what the caller then adds to the store is the
    new ones. `seal` makes that a batch, `keep` drops it for the batch as it was. `take` hands out what there is, as a
    writable buffer. A packer belongs to one thread.
    """
    cdef readonly Store store
    cdef Held held
    cdef object view
    cdef Py_ssize_t at              # where the batch that is being packed begins in the source
    cdef Py_ssize_t end             # and where it ends: the next one begins there
    cdef Py_ssize_t start           # where it begins in the store

    def __init__(self, batches, capacity: int = 0):
        self.held = hold(batches)
        self.view = memoryview(batches).cast("B")
        self.store = Store(capacity)

    @cython.critical_section
    def next(self) -> memoryview | None:
        """The records of the next batch, or None at the end; ValueError for what is no whole batch of format v2."""
        cdef const uint8_t* p
        cdef int64_t size
        if self.end == self.held.size:
            return None
        p = self.held.data + self.end
        if self.held.size - self.end < V2_RECORDS_AT or p[MAGIC_AT] != 2:
            raise ValueError(f"at byte {self.end} begins no batch of format v2")
        size = <int64_t>load32(p + SIZE_AT) + LOG_OVERHEAD
        if size < V2_RECORDS_AT or size > self.held.size - self.end:
            raise ValueError(f"the batch at byte {self.end} says that it has {size} bytes")
        self.at = self.end
        self.start = self.store.size
        self.store.put(p, V2_RECORDS_AT)
        self.end = self.at + <Py_ssize_t>size
        return self.view[self.at + V2_RECORDS_AT:self.end]

    @cython.critical_section
    def seal(self, int codec) -> int:
        """The size of the batch, now that its records are in the store, compressed with `codec` (0 to 7)."""
        cdef Py_ssize_t size = self.store.size - self.start
        if codec < 0 or codec > CODEC_MASK:
            raise ValueError(f"codec {codec} does not fit the attributes of a batch")
        if size < V2_RECORDS_AT or self.at == self.end:
            raise ValueError("no batch is being packed")
        seal(self.store.data + self.start, size, codec)
        return size

    @cython.critical_section
    def keep(self) -> int:
        """The size of the batch as it was, which is taken in place of the packed one."""
        cdef Py_ssize_t size = self.end - self.at
        if size == 0:
            raise ValueError("no batch is being packed")
        self.store.cut(self.start)
        self.store.put(self.held.data + self.at, size)
        return size

    @cython.critical_section
    def take(self) -> Block:
        """The batches that were packed; the store is empty then."""
        cdef Block block = self.store.take()
        block.writable = True
        self.start = 0
        self.at = self.end
        return block
