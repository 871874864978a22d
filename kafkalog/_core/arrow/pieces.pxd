"""A piece: the columns of some consecutive records, finished and never changed again; counted, freed without the GIL."""
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free

from kafkalog._core.arrow.memory cimport Memory, drop_memory

cdef enum:
    # the columns, in the order of a whole table
    KEY = 0
    VALUE = 1
    TOPIC = 2
    PARTITION = 3
    OFFSET = 4
    TIMESTAMP = 5
    TIMESTAMP_TYPE = 6
    HEADERS = 7
    KINDS = 8

cdef enum:
    # the memories of a piece; that of a column not asked for is NULL
    KEY_OFFSETS = 0             # int32, one more than rows
    KEY_DATA = 1
    KEY_VALID = 2               # bits; NULL where no key is null
    VALUE_OFFSETS = 3
    VALUE_DATA = 4
    VALUE_VALID = 5
    TOPIC_OFFSETS = 6
    TOPIC_DATA = 7
    HEADER_LISTS = 8            # int32, one more than rows: which headers are whose
    HEADER_KEY_OFFSETS = 9
    HEADER_KEY_DATA = 10
    HEADER_VALUE_OFFSETS = 11
    HEADER_VALUE_DATA = 12
    HEADER_VALUE_VALID = 13
    ROWS_VALID = 14             # bits; NULL where no row is null as a whole
    PARTITIONS = 15             # from here on one value a row: int32, int64, int64, int32
    OFFSETS = 16
    TIMESTAMPS = 17
    TIMESTAMP_TYPES = 18
    SLOTS = 19
    FIRST_FIXED = PARTITIONS


cdef struct Piece:
    int64_t refs
    int64_t rows
    int64_t first               # where its rows begin in the memories of one value a row
    int64_t absent              # rows that are null as a whole: their keys and values are null too, their numbers -1
    int64_t key_nulls
    int64_t value_nulls
    int64_t headers
    int64_t header_value_nulls
    Memory* slots[SLOTS]


cdef extern from *:
    """
    #define kl_piece_up(p) (__atomic_add_fetch(&(p)->refs, 1, __ATOMIC_RELAXED))
    #define kl_piece_down(p) (__atomic_sub_fetch(&(p)->refs, 1, __ATOMIC_ACQ_REL))
    """
    int64_t kl_piece_up(Piece* p) noexcept nogil
    int64_t kl_piece_down(Piece* p) noexcept nogil


cdef inline Piece* new_piece() noexcept nogil:
    """An empty piece, held once; NULL without memory."""
    cdef Piece* piece = <Piece*>calloc(1, sizeof(Piece))
    if piece != NULL:
        piece.refs = 1
    return piece


cdef inline Piece* hold_piece(Piece* piece) noexcept nogil:
    kl_piece_up(piece)
    return piece


cdef inline void drop_piece(Piece* piece) noexcept nogil:
    cdef int slot
    if piece != NULL and kl_piece_down(piece) == 0:
        for slot in range(SLOTS):
            drop_memory(piece.slots[slot])
        free(piece)


cdef inline int width_of(int slot) noexcept nogil:
    """Bytes of one value of a fixed slot."""
    return 8 if slot == OFFSETS or slot == TIMESTAMPS else 4


cdef inline int fixed_slot(int kind) noexcept nogil:
    """The slot of a column with one value a row; -1 for the others."""
    if kind == PARTITION:
        return PARTITIONS
    if kind == OFFSET:
        return OFFSETS
    if kind == TIMESTAMP:
        return TIMESTAMPS
    return TIMESTAMP_TYPES if kind == TIMESTAMP_TYPE else -1
