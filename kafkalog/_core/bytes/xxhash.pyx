"""xxHash32, the checksum of LZ4 frames: of their header (its second byte) and, where a writer asked for it, of each block."""
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

cdef enum:
    SMALL = 16 * 1024               # below this a hash is over before another thread could use the GIL


def xxh32(buf, uint32_t seed=0) -> int:
    """The unsigned xxHash32 of a buffer."""
    cdef Py_buffer view
    cdef uint32_t value
    PyObject_GetBuffer(buf, &view, PyBUF_SIMPLE)
    try:
        if view.len < SMALL:
            value = hash_of(<const uint8_t*>view.buf, view.len, seed)
        else:
            with nogil:
                value = hash_of(<const uint8_t*>view.buf, view.len, seed)
    finally:
        PyBuffer_Release(&view)
    return value
