"""Checksums of Kafka's records: CRC-32C for v2 batches (format.md section 1), CRC-32 for v0 and v1 messages (section 4)."""
import os

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

from kafkalog._core.bytes.crc cimport (
    KL_CPU_LEVELS, kl_cpu_ceiling, kl_cpu_level, kl_cpu_names,
    kl_crc32, kl_crc32c, kl_crc_fn, kl_crc_implementation_count, kl_crc_implementations,
)

cdef enum:
    RELEASE_GIL_AT = 32768      # from here on the work outweighs giving the GIL up and taking it again


cdef uint32_t _checksum(kl_crc_fn function, const uint8_t* p, Py_ssize_t n, uint32_t value) noexcept nogil:
    return ~function(~value, p, <size_t>n)


cdef _with_function(kl_crc_fn function, data, uint32_t value):
    cdef Py_buffer view
    cdef uint32_t result
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    if view.len >= RELEASE_GIL_AT:
        with nogil:
            result = _checksum(function, <const uint8_t*>view.buf, view.len, value)
    else:
        result = _checksum(function, <const uint8_t*>view.buf, view.len, value)
    PyBuffer_Release(&view)
    return result


def crc32c(data, uint32_t value=0):
    """The CRC-32C (Castagnoli) of `data`, continued from `value`, the checksum of what came before it.

    `data` is any contiguous buffer (BufferError or TypeError otherwise); `value` is 0..2**32-1 (OverflowError otherwise).
    The GIL is released from 32 KiB on.
    """
    return _with_function(kl_crc_implementations[0].crc32c, data, value)


def crc32(data, uint32_t value=0):
    """The CRC-32 (IEEE, as `zlib.crc32`) of `data`, continued from `value`; arguments and errors as `crc32c`."""
    return _with_function(kl_crc_implementations[0].crc32, data, value)


def instruction_levels():
    """Return the values of KAFKALOG_CPU for this architecture, from "portable" up; a processor may lack some."""
    return tuple([kl_cpu_names[i].decode() for i in range(KL_CPU_LEVELS)])


def instruction_level():
    """The level in use: the best that the processor has, or a lower one that KAFKALOG_CPU named as kafkalog was loaded."""
    return kl_cpu_names[kl_cpu_level].decode()


def implementations():
    """The names of the implementations that this machine can run and KAFKALOG_CPU allows, best first.

    "portable" is always the last.
    """
    return tuple([kl_crc_implementations[i].name.decode() for i in range(kl_crc_implementation_count)])


def implementation():
    """The name of the implementation in use: "avx512", "avx2", "sse4.2", "armv8" or "portable"."""
    return kl_crc_implementations[0].name.decode()


cdef int _find(name) except -1:
    for i in range(kl_crc_implementation_count):
        if kl_crc_implementations[i].name.decode() == name:
            return i
    raise ValueError(f"no CRC implementation {name!r} here; there are {', '.join(implementations())}")


def crc32c_with(name, data, uint32_t value=0):
    """Return `crc32c` computed by the implementation `name` (one of `implementations()`, else ValueError)."""
    return _with_function(kl_crc_implementations[_find(name)].crc32c, data, value)


def crc32_with(name, data, uint32_t value=0):
    """Return `crc32` computed by the implementation `name` (one of `implementations()`, else ValueError)."""
    return _with_function(kl_crc_implementations[_find(name)].crc32, data, value)


if kl_cpu_ceiling() < 0:
    raise ImportError(
        f"KAFKALOG_CPU={os.environ.get('KAFKALOG_CPU', '')!r} names none of the instruction sets that kafkalog knows on this "
        f"architecture: {', '.join(instruction_levels())}; unset it for the best that the processor has"
    )
