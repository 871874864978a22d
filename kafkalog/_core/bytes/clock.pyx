"""The machine's clock, for who asks it once an append."""
from libc.stdint cimport int64_t

cdef extern from "<time.h>" nogil:
    ctypedef long time_t
    struct timespec:
        time_t tv_sec
        long tv_nsec
    int CLOCK_REALTIME
    int clock_gettime(int clock, timespec* time)


def wall_milliseconds() -> int:
    """Return the wall-clock time since 1970 in ms."""
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1000000
