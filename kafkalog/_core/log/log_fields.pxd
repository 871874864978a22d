from libc.stdint cimport int32_t, int64_t

from kafkalog._core.log.admit cimport LeaderLimits
from kafkalog._core.log.log_lock cimport LogLock
from kafkalog._core.log.roll cimport RollRules
from kafkalog._core.log.staged cimport Staged
from kafkalog._core.log.state cimport LogState


cdef class LogFields:
    cdef public LogLock lock            # for every change of what follows
    cdef LogState _state                # replaced under the lock, read without, by the property `state`
    cdef public Staged staged           # of an append that is being published
    cdef object _active                 # the segment that takes the appends; likewise
    cdef public RollRules rules         # when it is rolled
    cdef public LeaderLimits limits     # what a leader takes; replaced under the lock, read without by `current_limits`
    cdef public object producers
    cdef public object health           # its `cause` is why no more writes are taken, or None
    cdef public list after_unlock             # run after the lock is released
    cdef public object milliseconds     # the wall clock
    cdef public int64_t flush_messages  # so many records may lie behind the recovery point; 0: any number
    cdef public int32_t leader_epoch
    cdef public bint unstable_is_stale  # a truncation left the first unstable offset to the next append
    cdef public bint follows            # an append moves the high watermark to the log end

    cdef void set_state(self, LogState state) noexcept
    cdef LeaderLimits current_limits(self)
    cdef bint is_ready(self) except -1
