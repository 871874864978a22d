"""Producer ids numbered in the order in which they first come."""
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free


cdef struct IdPlace:
    int64_t producer_id
    Py_ssize_t number               # plus 1: 0 is a free place


cdef struct IdTable:
    IdPlace* places
    Py_ssize_t room                 # a power of two; half of it is used at most
    Py_ssize_t count
    int shift
    uint64_t multiplier             # random, so that ids cannot be chosen to collide


cdef inline void make_ids(IdTable* ids):
    """An empty table; `drop_ids` frees it."""
    ids.places, ids.room, ids.count, ids.shift = NULL, 0, 0, 64
    ids.multiplier = <uint64_t>hash(b"producer ids") | 1


cdef inline void drop_ids(IdTable* ids) noexcept nogil:
    free(ids.places)


cdef inline IdPlace* place_of_id(const IdTable* ids, int64_t producer_id) noexcept nogil:
    """Return the place of the id, or the free place that it would take."""
    cdef uint64_t at = (<uint64_t>producer_id * ids.multiplier) >> ids.shift
    while ids.places[at].number != 0 and ids.places[at].producer_id != producer_id:
        at = (at + 1) & <uint64_t>(ids.room - 1)
    return &ids.places[at]


cdef inline int more_ids(IdTable* ids) noexcept nogil:
    cdef IdTable grown = ids[0]
    cdef Py_ssize_t i
    grown.room = 64 if ids.room == 0 else 2 * ids.room
    grown.shift = 58 if ids.room == 0 else ids.shift - 1
    grown.places = <IdPlace*>calloc(<size_t>grown.room, sizeof(IdPlace))
    if grown.places == NULL:
        return -1
    for i in range(ids.room):
        if ids.places[i].number != 0:
            place_of_id(&grown, ids.places[i].producer_id)[0] = ids.places[i]
    free(ids.places)
    ids[0] = grown
    return 0


cdef inline Py_ssize_t number_of(IdTable* ids, int64_t producer_id) noexcept nogil:
    """Return the number of an id, in order of first appearance; a new id gets the next one. -1 without memory."""
    cdef IdPlace* place
    if 2 * (ids.count + 1) > ids.room and more_ids(ids) < 0:
        return -1
    place = place_of_id(ids, producer_id)
    if place.number == 0:
        ids.count += 1
        place.producer_id, place.number = producer_id, ids.count
    return place.number - 1
