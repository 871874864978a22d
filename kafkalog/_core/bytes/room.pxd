"""Arrays that grow."""
from libc.stdlib cimport realloc


cdef inline void* room_for_one(void* data, Py_ssize_t count, Py_ssize_t* room, Py_ssize_t size) noexcept nogil:
    """`data`, moved where it must, with room for one more than the `count` values of `size` bytes; NULL without memory.

    Then nothing has changed.
    """
    cdef Py_ssize_t more
    cdef void* grown
    if count < room[0]:
        return data
    more = 16 if room[0] == 0 else 2 * room[0]
    grown = realloc(data, <size_t>(more * size))
    if grown != NULL:
        room[0] = more
    return grown
