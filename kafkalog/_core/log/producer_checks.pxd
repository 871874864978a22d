from libc.stdint cimport int64_t

from kafkalog._core.batch.check cimport BatchRow
from kafkalog._core.log.producer_state cimport ProducerState
from kafkalog._core.log.staged cimport Staged


cdef enum Origin:                       # who appends
    CLIENT = 0
    COORDINATOR
    REPLICATION


cdef class Producers:
    cdef dict entries                   # producer id -> ProducerState
    cdef object ongoing                 # first offset -> producer id, in the order of the offsets; an OrderedDict, for
                                        # the first of a dict lies behind the places of all that were taken from it
    cdef dict unreplicated              # first offset -> last offset
    cdef readonly dict verified         # producer id -> what a coordinator is asked about (PSM-27)
    cdef public bint must_verify        # a transaction begins only with the guard of such a question (LOG-64)

    cdef Staged stage_row(self, BatchRow* row)
    cdef ProducerState following(self, BatchRow* row)
    cdef bint takes_plainly(self, Staged staged)
    cdef int take(self, ProducerState state) except -1
    cdef ProducerState staged_state(self, Staged staged, int64_t producer_id)
    cdef int stage_data(self, Staged staged, BatchRow* row, int origin, object guard) except -1
    cdef int stage_marker(
        self, Staged staged, BatchRow* row, object buffer, int64_t base_position, int origin, bint epoch_bumps
    ) except -1
