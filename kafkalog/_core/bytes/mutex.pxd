"""The lock that stands in for the GIL, for other compiled modules: nothing where there is a GIL."""

cdef extern from "kmutex.h" nogil:
    ctypedef struct Mutex "kl_mutex":
        pass
    void lock_mutex "kl_mutex_lock" (Mutex* mutex)
    void unlock_mutex "kl_mutex_unlock" (Mutex* mutex)
