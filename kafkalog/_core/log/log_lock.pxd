from cpython.pythread cimport PyThread_type_lock


cdef class LogLock:
    cdef PyThread_type_lock lock
    cdef bint is_held

    cdef int take(self) except -1
    cdef void note_held(self) noexcept
    cdef int give_back(self) except -1
