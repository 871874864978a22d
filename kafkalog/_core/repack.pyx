"""A v2 batch with other bytes for records: how a batch that was built plain becomes a compressed one, and back."""
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kafkalog._core.crc cimport kl_crc32c
from kafkalog._core.endian cimport load16, store16, store32
from kafkalog._core.layout cimport (
    CODEC_MASK, LOG_OVERHEAD, MAGIC_AT, SIZE_AT, V2_ATTRIBUTES_AT, V2_CRC_AT, V2_RECORDS_AT,
)

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
