"""The records of many keys, copied out of the batches that hold them: what becomes of the copies says a derived class."""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kafkalog._core.batch.check cimport BatchRow
from kafkalog._core.batch.decode cimport RecordTable
from kafkalog._core.batch.fields cimport Fields
from kafkalog._core.batch.record cimport Record
from kafkalog._core.bytes.prefetch cimport kl_prefetch
from kafkalog._core.keys.given_keys cimport GivenKeys

cdef enum:
    NOTHING_THERE = 0               # of a key's place: it has no copy
    MISSED = -1                     # what lies at its offset has another key, or nothing does
    HAS_OBJECT = -2                 # its record is an object
    AHEAD = 16                      # keys whose copies are asked for so early
    LINE_BYTES = 64
    PART_BITS = 14                  # of the number of keys whose copies lie in one part
    STATUS_FULL = -3                # no status of a reader: there is no room for a copy
    STATUS_OLD = -4                 # a batch of an old format
    STATUS_MISSED = -5              # a copy is of another key's record
    COMPARED = -2                   # no size of a key: the copy is known to be of the key


cdef struct Wanted:
    int64_t offset
    int64_t number                  # of the key


cdef struct Copied:                 # value and key follow, or with `whole` BatchRow and record, up to a multiple of eight
    int64_t offset
    int64_t timestamp
    int32_t size                    # of the value, -1 is null; of the record
    int32_t key_size
    int32_t epoch
    int16_t kind                    # of the timestamp
    int16_t whole                   # 1: it has headers


cdef inline void fetch_copy(const uint8_t* copies, int64_t place) noexcept nogil:
    """Ask for the lines of a small copy."""
    kl_prefetch(copies + place - 1)
    kl_prefetch(copies + place - 1 + LINE_BYTES)
    kl_prefetch(copies + place - 1 + 2 * LINE_BYTES)


cdef inline void fetch_part(const uint8_t* parts, int64_t part_bytes, int64_t number) noexcept nogil:
    """Ask for the share of a key in the part behind its own: what is asked for so comes in the order of memory."""
    cdef const uint8_t* share = parts + part_bytes + (number * part_bytes >> PART_BITS)
    kl_prefetch(share)
    kl_prefetch(share + LINE_BYTES)


cpdef Record own_record(Record record)


cdef class KeyPicker:
    cdef GivenKeys keys
    cdef Wanted* wanted
    cdef Py_ssize_t count
    cdef Py_ssize_t at
    cdef readonly Py_ssize_t absent
    cdef uint8_t* copies
    cdef int64_t copied_bytes
    cdef int64_t room
    cdef int64_t tail               # where the next copy goes that is in no part
    cdef int64_t tail_at            # where those begin
    cdef int64_t* parts             # where the next copy for a key goes, for each part; NULL while there are none
    cdef int64_t parts_at
    cdef int64_t part_bytes
    cdef int64_t wanted_room        # that a copy needs, in all
    cdef int64_t* places            # of the copy for each key, counted from one
    cdef bint busy
    cdef readonly int status
    cdef readonly Py_ssize_t error_batch
    cdef readonly int64_t error_position
    cdef readonly int64_t error_record

    cdef int take_old(self, object buf, object batches, Py_ssize_t first, Py_ssize_t last, int64_t position) except -1
    cdef int take_batch(self, const uint8_t* batch, const BatchRow* row) noexcept nogil
    cdef int hop(self, const uint8_t* batch, const BatchRow* row) noexcept nogil
    cdef int take_wanted(self, const uint8_t* start, const BatchRow* row, const Fields* f, int64_t offset) noexcept nogil
    cdef bint is_key(self, int64_t number, const uint8_t* key, int64_t size) noexcept nogil
    cdef bint has_key(self, int64_t number, const Copied* copied) noexcept nogil
    cdef Copied* copy(self, int64_t number, int64_t size) noexcept nogil
    cdef int miss(self, int64_t below) noexcept nogil
    cdef int take_table(self, RecordTable table) except -1
    cdef int make_room(self) except -1
    cdef int make_parts(self, int64_t expected) except -1
    cdef void empty_parts(self) noexcept nogil
    cdef int grow(self, int64_t room) except -1
    cdef int64_t expected_room(self) noexcept nogil
    cdef int take_row(self, RecordTable table, Py_ssize_t row, int64_t number) except -1
    cdef int put(self, int64_t number, Record record) except -1


cdef inline int check_alone(KeyPicker picker) except -1:
    """Raise RuntimeError while another thread uses the copies without the GIL: they must not move."""
    if picker.busy:
        raise RuntimeError("another thread uses this picker")
    return 0
