"""Parts that a row of JSON may have, and the column of each."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

cdef enum SpotKind:
    # the numbers are those of KINDS in json_rows.pyx
    SPOT_BOOL = 0
    SPOT_INT64 = 1
    SPOT_DOUBLE = 2
    SPOT_TEXT = 3
    SPOT_JSON = 4               # any value, kept as the text it is
    SPOT_TIME = 5               # an RFC 3339 time, µs since 1970
    SPOT_DATE = 6               # days since 1970
    SPOT_STRUCT = 7
    SPOT_LIST = 8
    SPOT_MAP = 9


cdef struct Spot:
    int kind
    int node                    # the number of its node
    int child_count
    int mask                    # of `places`
    Spot** children             # as the node's; of a map, the value's alone
    int32_t* places             # where a name is among the children, by its hash; -1: nowhere
    const uint8_t* name         # within the object around it
    int64_t name_size
    bint plain                  # the name stands in JSON as it is
    const char* path            # for texts


cdef inline uint64_t hash_name(const uint8_t* name, int64_t size) noexcept nogil:
    """A hash of a name's first and last bytes and of its size."""
    cdef uint64_t a = 0
    cdef uint64_t b = 0
    if size >= 8:
        memcpy(&a, name, 8)
        memcpy(&b, name + size - 8, 8)
    elif size >= 4:
        memcpy(&a, name, 4)
        memcpy(&b, name + size - 4, 4)
    elif size > 0:
        a = name[0] | <uint64_t>name[size >> 1] << 8 | <uint64_t>name[size - 1] << 16
    a = (a ^ <uint64_t>size) * 0x9E3779B97F4A7C15ULL ^ b * 0xC2B2AE3D27D4EB4FULL
    return a ^ a >> 29
