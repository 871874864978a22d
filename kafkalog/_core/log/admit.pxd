from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalog._core.batch.check cimport BatchRow


cdef enum Refusal:
    NOT_REFUSED = 0
    EPOCH_DIFFERS
    OFFSET_NOT_ZERO
    TOO_LARGE
    CHECKSUM_WRONG


cdef struct Rules:
    int64_t oldest
    int64_t newest
    bint times                      # the producer's times count, and are compared with the two
    bint keys                       # every record needs a key
    int64_t most_bytes              # of a v2 record, as its length field says
    bint inner                      # v0 and v1 messages come out of a wrapper: each has a checksum to hold


cdef class LeaderLimits:
    cdef readonly int64_t max_message_bytes
    cdef readonly int64_t segment_size
    cdef readonly int64_t before_ms
    cdef readonly int64_t after_ms
    cdef readonly bint check_times
    cdef readonly bint need_keys
    cdef readonly bint writes_as_is
    cdef readonly object rules

    cdef void bounds(self, int64_t now, Rules* rules) noexcept


cdef bint takes_batch(
    LeaderLimits limits, const uint8_t* p, BatchRow* row, int64_t now, bint any_base_offset
) noexcept


cdef int refusal_of(
    const BatchRow* batch, bint from_client, bint offsets_free, bint from_raft, int32_t leader_epoch,
    int64_t max_message_bytes,
) noexcept nogil
