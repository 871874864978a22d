"""Variable-length integers of the record format, one value at a time (format.md section 2).

The record workers use cursor.pxd and emit.pxd in place; this is the same code for encoders of single fields and tests.
"""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kafkalog._core.batch.emit cimport put_uvarint, uvarint_size, varint_size, varlong_size, zigzag32, zigzag64
from kafkalog._core.batch.layout cimport ERR_SHORT, MAX_VARLONG_BYTES, OK
from kafkalog._core.bytes.cursor cimport Cursor, take_uvarint, take_varint, take_varlong

cdef enum Kind:
    UVARINT = 0
    VARINT
    VARLONG


cdef bytes leb128_bytes(uint64_t value):
    cdef uint8_t out[MAX_VARLONG_BYTES]
    return PyBytes_FromStringAndSize(<char*>out, put_uvarint(out, value) - out)


cdef int32_t int32_of(object value) except? -1:
    """The 32-bit value of an int from -2^31 to 2^31-1; OverflowError outside."""
    return value


cdef tuple decode(object buf, Py_ssize_t pos, Kind kind):
    cdef Py_buffer view
    cdef Cursor cursor
    cdef uint32_t unsigned = 0
    cdef int32_t small = 0
    cdef int64_t value
    cdef Py_ssize_t next_pos
    cdef int status
    PyObject_GetBuffer(buf, &view, PyBUF_SIMPLE)
    try:
        if pos < 0 or pos > view.len:
            raise ValueError(f"position {pos} is outside the {view.len} bytes given")
        cursor.p = <const uint8_t*>view.buf + pos
        cursor.end = <const uint8_t*>view.buf + view.len
        if kind == UVARINT:
            status = take_uvarint(&cursor, &unsigned)
            value = <int32_t>unsigned
        elif kind == VARINT:
            status = take_varint(&cursor, &small)
            value = small
        else:
            status = take_varlong(&cursor, &value)
        next_pos = cursor.p - <const uint8_t*>view.buf
    finally:
        PyBuffer_Release(&view)
    if status == OK:
        return value, next_pos
    if status == ERR_SHORT:
        raise EOFError(f"the data ends inside the varint at position {pos}")
    raise ValueError(f"the varint at position {pos} is longer than {10 if kind == VARLONG else 5} bytes")


def encode_uvarint(value) -> bytes:
    """The unsigned varint of a 32-bit value, 1 to 5 bytes; a negative one counts as value + 2^32."""
    return leb128_bytes(<uint32_t>int32_of(value))


def encode_varint(value) -> bytes:
    """The zigzag varint of a 32-bit signed value, 1 to 5 bytes; OverflowError when it does not fit."""
    return leb128_bytes(zigzag32(int32_of(value)))


def encode_varlong(int64_t value) -> bytes:
    """The zigzag varint of a 64-bit signed value, 1 to 10 bytes; OverflowError when it does not fit."""
    return leb128_bytes(zigzag64(value))


def size_of_uvarint(value) -> int:
    """The number of bytes of encode_uvarint(value)."""
    return uvarint_size(<uint32_t>int32_of(value))


def size_of_varint(value) -> int:
    """The number of bytes of encode_varint(value)."""
    return varint_size(int32_of(value))


def size_of_varlong(int64_t value) -> int:
    """The number of bytes of encode_varlong(value)."""
    return varlong_size(value)


def decode_uvarint(buf, Py_ssize_t pos=0) -> tuple[int, int]:
    """(value as a signed 32-bit integer, position after it); EOFError when cut off, ValueError when too long.

    Bits of the fifth byte beyond the 32nd are dropped, as the reference does.
    """
    return decode(buf, pos, UVARINT)


def decode_varint(buf, Py_ssize_t pos=0) -> tuple[int, int]:
    """(value, position after it) of a zigzag 32-bit varint; EOFError when cut off, ValueError when too long."""
    return decode(buf, pos, VARINT)


def decode_varlong(buf, Py_ssize_t pos=0) -> tuple[int, int]:
    """(value, position after it) of a zigzag 64-bit varint; EOFError when cut off, ValueError when too long."""
    return decode(buf, pos, VARLONG)
