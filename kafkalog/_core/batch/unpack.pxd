from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.batch.check cimport BatchRow
from kafkalog._core.batch.frames cimport Finding
from kafkalog._core.bytes.store cimport Store


cdef class Tool:
    cdef readonly object function
    cdef readonly object error
    cdef readonly object last
    cdef readonly bint gives


cdef class Piece:
    cdef object owner
    cdef const uint8_t* data
    cdef Py_ssize_t size
    cdef Py_ssize_t exports


cdef class Unpacker:
    cdef object find
    cdef list tools                 # by codec id, None until first used
    cdef Piece piece
    cdef object owner               # of the bytes at `start`, while they are read
    cdef Store store
    cdef const uint8_t* start
    cdef Py_ssize_t size
    cdef Py_ssize_t most            # content that the store may have
    cdef Finding out
    cdef readonly bint busy
    cdef readonly object codec_error    # the codec's words for FAULT_REPORTED and FAULT_ZSTD_REFUSED, else None
    cdef readonly int codec
    cdef readonly int64_t limit
    cdef readonly Py_ssize_t payload_position   # in the batch of the last run_batch

    cdef int run(
        self, Store store, int codec, object owner, const uint8_t* start, Py_ssize_t size, int magic, int64_t limit
    ) except -1
    cdef int run_batch(
        self, Store store, object owner, const uint8_t* batch, const BatchRow* row, int64_t limit
    ) except -1
    cdef int unpack_as(self, int codec, int magic) except -1
    cdef Tool tool(self, int codec)
    cdef Piece lend(self, Py_ssize_t at, Py_ssize_t size)
    cdef int expand(self, Tool tool, Py_ssize_t at, Py_ssize_t size, Py_ssize_t room, int fault, Py_ssize_t position) except -1
    cdef int checked(self, Py_ssize_t position) except -1
    cdef int unpack_lz4(self, int magic) except -1
    cdef int unpack_snappy(self) except -1
    cdef int unpack_snappy_block(self, Py_ssize_t at, Py_ssize_t size) except -1
    cdef int unpack_zstd(self) except -1
    cdef int unpack_gzip(self) except -1
    cdef bint unpack_whole(self) except -1
    cdef int unpack_member(self, Tool tool, Py_ssize_t* at, Py_ssize_t piece) except -1
