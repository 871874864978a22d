"""The partition of a key, as Kafka's own producers compute it (format.md section 16)."""
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

from kafkalog._core.bytes.murmur cimport murmur2_of


def murmur2(key):
    """The 32-bit murmur2 hash of `key`, any contiguous buffer, as a signed number."""
    cdef Py_buffer view
    cdef int32_t result
    PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
    result = murmur2_of(<const uint8_t*>view.buf, view.len)
    PyBuffer_Release(&view)
    return result


def partition_for_key(key, int32_t partitions):
    """The partition, 0..partitions-1, that Kafka's default partitioner gives `key`; ValueError unless partitions > 0."""
    if partitions <= 0:
        raise ValueError(f"a topic has at least one partition, not {partitions}")
    return (murmur2(key) & 0x7FFFFFFF) % partitions
