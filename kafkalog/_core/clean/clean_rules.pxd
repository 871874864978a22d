from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalog._core.batch.check cimport BatchRow
from kafkalog._core.clean.cleaned_txns cimport CleanedTxns
from kafkalog._core.clean.last_records cimport LastRecords
from kafkalog._core.clean.live_offsets cimport LiveOffsets
from kafkalog._core.clean.offset_map cimport KeyOffset, SkimpyOffsetMap

cdef enum:
    WINDOW_ROWS = 2048
    WINDOW_RECORDS = 16384          # after which a window ends; a batch is never divided
    KEYS = 512                      # asked of the map together
    ERR_MARKER = 102                # a status beside those of layout.pxd: a control batch that cannot be read


cdef enum Outcome:
    DELETE                          # the whole batch goes, its records are not looked at
    DELETE_EMPTY
    RETAIN_EMPTY                    # its header stays, whatever becomes of its records


cdef struct Choice:
    # what becomes of a batch
    int64_t first_flag
    int64_t total
    int64_t kept
    int outcome
    bint no_values                  # one of the kept records has none
    bint ends_empty_txn             # a marker without any data before it
    bint holds_deletes


cdef struct Asker:
    # whose key the map is asked for
    int64_t flag
    int32_t choice


cdef struct Window:
    Choice choices[WINDOW_ROWS]
    KeyOffset keys[KEYS]            # with the offsets of the records
    Asker askers[KEYS]
    int64_t found[KEYS]


cdef class Retention:
    cdef SkimpyOffsetMap map
    cdef LiveOffsets live
    cdef int64_t reached            # the highest offset so far
    cdef bint is_told               # `live` has the batch that is looked at
    cdef CleanedTxns transactions
    cdef LastRecords last_records
    cdef int64_t now_ms
    cdef int64_t delete_retention_ms
    cdef int64_t upper_bound_offset
    cdef bint retain_legacy_deletes
    cdef bint busy
    cdef void* chooser              # the filter whose rows the choices are for
    cdef Window* window
    cdef uint8_t* flags             # of the records of the window: KEEP, NO_VALUE
    cdef int64_t flag_room
    cdef int64_t flag_count
    cdef Py_ssize_t key_count
    cdef Py_ssize_t decided
    cdef int64_t error_record
    cdef int64_t invalid_messages   # so far: they have no key

    cdef int64_t new_horizon(self) noexcept nogil
    cdef int decide(self, const uint8_t* data, int64_t length, const BatchRow* rows, Py_ssize_t count) noexcept nogil
    cdef int choose(self, const uint8_t* data, int64_t length, const BatchRow* row, Py_ssize_t number) noexcept nogil
    cdef bint was_told(self, const BatchRow* row) noexcept nogil
    cdef int64_t kept_by_header(self, const BatchRow* row) noexcept nogil
    cdef int reserve_flags(self, int64_t count) noexcept nogil
    cdef int look_at_records(
        self, const uint8_t* batch, const BatchRow* row, Py_ssize_t number, bint is_control, bint goes
    ) noexcept nogil
    cdef int look_at_messages(self, const uint8_t* batch, const BatchRow* row, Py_ssize_t number) noexcept nogil
    cdef void note(self, Py_ssize_t number, int flag) noexcept nogil
    cdef void note_key(
        self, Py_ssize_t number, int64_t offset, const uint8_t* key, int32_t key_size, bint no_value
    ) noexcept nogil
    cdef void keep(self, Choice* choice, int64_t flag) noexcept nogil
    cdef void ask(self) noexcept nogil
