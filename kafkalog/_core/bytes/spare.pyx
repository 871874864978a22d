"""Pieces of memory of similar sizes, kept for the next use instead of being returned to the system.

The C library returns large pieces to the system at once, and touching new ones costs more than to decompress into
them. A few pieces are kept, each with the length it was made with. The GIL guards them, or `guard` where there is none;
they hold no Python object.
"""
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.string cimport memcpy

from kafkalog._core.bytes.mutex cimport Mutex, lock_mutex, unlock_mutex

cdef enum:
    SLOTS = 6
    SMALLEST = 64 * 1024            # below this malloc keeps its pieces itself
    LARGEST = 1024 * 1024
    LOOSEST = 4                     # a piece serves for no less than this part of it

cdef struct Spare:
    char* data
    size_t capacity

cdef Mutex guard
cdef Spare spares[SLOTS]         # with the two below, guarded by `guard`
cdef int kept = 0
cdef int replaced = 0               # the next to be replaced, once all are kept

MOST_KEPT_BYTES = SLOTS * LARGEST


cdef char* take_memory(size_t wanted, size_t* capacity) noexcept:
    """Return `capacity` bytes, at least `wanted`, to be returned by give_memory; NULL without memory. Needs the GIL.

    The piece that was returned last is reused first, since the processor's cache may still hold it.
    """
    global kept
    cdef int i
    cdef char* found = NULL
    lock_mutex(&guard)
    for i in range(kept - 1, -1, -1):
        if wanted <= spares[i].capacity <= wanted * LOOSEST:
            found = spares[i].data
            capacity[0] = spares[i].capacity
            kept -= 1
            spares[i] = spares[kept]
            break
    unlock_mutex(&guard)
    if found != NULL:
        return found
    capacity[0] = wanted if wanted > 0 else 1
    return <char*>PyMem_RawMalloc(capacity[0])


cdef void give_memory(char* data, size_t capacity) noexcept:
    """Return a piece of take_memory; NULL does nothing. Needs the GIL.

    Where SLOTS are kept already it takes the place of one of them: the sizes that are wanted change with the work.
    """
    global kept, replaced
    cdef int at
    cdef char* dropped = NULL
    if data == NULL or not SMALLEST <= capacity <= LARGEST:
        PyMem_RawFree(data)
        return
    lock_mutex(&guard)
    at = kept
    if kept < SLOTS:
        kept += 1
    else:
        at = replaced
        replaced = (replaced + 1) % SLOTS
        dropped = spares[at].data
    spares[at].data = data
    spares[at].capacity = capacity
    unlock_mutex(&guard)
    PyMem_RawFree(dropped)


cdef char* grow_memory(char* data, size_t size, size_t wanted, size_t* capacity) noexcept:
    """The first `size` bytes in a piece of at least `wanted`; NULL, and all as it was, where there is none."""
    cdef size_t before = capacity[0]
    cdef char* fresh = take_memory(wanted, capacity)
    if fresh == NULL:
        capacity[0] = before
        return NULL
    if size:
        memcpy(fresh, data, size)
    give_memory(data, before)
    return fresh


def kept_bytes() -> int:
    """Bytes that wait for their next use, at most MOST_KEPT_BYTES."""
    cdef int i
    cdef size_t total = 0
    lock_mutex(&guard)
    for i in range(kept):
        total += spares[i].capacity
    unlock_mutex(&guard)
    return total
