"""The keys of batches with their hashes: what a key index, a map in memory and a search share."""
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t

from kafkalog._core.batch.check cimport BatchRow
from kafkalog._core.bytes.siphash cimport SipKey, siphash_128

cdef enum:
    SECRET_BYTES = 16
    HASHED_TOGETHER = 32            # keys that wait for each other
    NO_OFFSET = -1                  # what a search gives where there is no record


cdef inline uint64_t hash_of_key(const SipKey* secret, const uint8_t* key, Py_ssize_t size) noexcept nogil:
    cdef uint64_t words[2]
    siphash_128(secret, key, size, words)
    return words[0]


cdef int take_secret(object secret, SipKey* into) except -1

cdef void hash_together(
    const SipKey* secret, const uint8_t** keys, const Py_ssize_t* sizes, Py_ssize_t count, uint64_t* hashes
) noexcept nogil


cdef class KeyWalk:
    cdef SipKey secret
    cdef const uint8_t* keys[HASHED_TOGETHER]
    cdef Py_ssize_t sizes[HASHED_TOGETHER]
    cdef int64_t offsets[HASHED_TOGETHER]
    cdef Py_ssize_t waits
    cdef int64_t next_offset        # records below it are passed over, as a reader passes over them
    cdef int64_t stop_offset        # and those from here on
    cdef bint busy
    cdef readonly int64_t records
    cdef readonly int status
    cdef readonly Py_ssize_t error_batch
    cdef readonly int64_t error_position
    cdef readonly int64_t error_record

    cdef int begin(self, object secret, int64_t start_offset, int64_t stop_offset) except -1
    cdef int take_batch(self, const uint8_t* batch, const BatchRow* row) noexcept nogil
    @cython.final
    cdef int take_records(self, const uint8_t* batch, const BatchRow* row) noexcept nogil
    @cython.final
    cdef int take_messages(self, const uint8_t* batch, const BatchRow* row) noexcept nogil
    @cython.final
    cdef int wait(self, const uint8_t* key, Py_ssize_t size, int64_t offset) noexcept nogil
    cdef int settle(self) noexcept nogil
    @cython.final
    cdef int damaged(self, int status, int64_t position, int64_t record) noexcept nogil
    cdef int put(self, const uint64_t* hashes, const int64_t* offsets, Py_ssize_t count) noexcept nogil


cdef inline int check_unused(KeyWalk walk) except -1:
    """Raise RuntimeError while another thread is inside of `take` or `finish`: what it fills may move."""
    if walk.busy:
        raise RuntimeError("another thread uses this walk")
    return 0
