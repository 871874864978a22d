"""The lock of a log: a `threading.Lock` that compiled code acquires and releases without a Python call."""
cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.pythread cimport (
    NOWAIT_LOCK, PY_LOCK_INTR, PyLockStatus, PyThread_acquire_lock, PyThread_allocate_lock, PyThread_free_lock,
    PyThread_release_lock,
)

cdef extern from "pythread.h" nogil:
    PyLockStatus PyThread_acquire_lock_timed(PyThread_type_lock lock, long long microseconds, int is_interruptible)


@cython.final
cdef class LogLock:
    """A lock that belongs to no thread, with the methods of `threading.Lock` that its users have need of."""

    def __cinit__(self):
        self.lock = PyThread_allocate_lock()
        if self.lock is NULL:
            raise MemoryError
        self.is_held = False

    def __dealloc__(self):
        if self.lock is not NULL:
            if self.is_held:
                PyThread_release_lock(self.lock)
            PyThread_free_lock(self.lock)

    cdef int take(self) except -1:
        """Return when the lock is held. The GIL is given up while it waits, and a signal handler may raise then."""
        cdef PyLockStatus status
        if not PyThread_acquire_lock(self.lock, NOWAIT_LOCK):
            while True:
                with nogil:
                    status = PyThread_acquire_lock_timed(self.lock, -1, 1)
                if status != PY_LOCK_INTR:
                    break
                PyErr_CheckSignals()
        self.note_held()
        return 0

    cdef void note_held(self) noexcept:
        with cython.critical_section(self):
            self.is_held = True

    cdef int give_back(self) except -1:
        """Let the next thread have the lock; RuntimeError where no one holds it."""
        with cython.critical_section(self):
            if not self.is_held:
                raise RuntimeError("release unlocked lock")
            self.is_held = False
            PyThread_release_lock(self.lock)
        return 0

    def acquire(self, bint blocking=True) -> bool:
        """Return True when the lock is held; without `blocking` False at once where another has it."""
        if blocking:
            self.take()
            return True
        if PyThread_acquire_lock(self.lock, NOWAIT_LOCK):
            self.note_held()
            return True
        return False

    def release(self) -> None:
        """Let the next thread have the lock; RuntimeError where no one holds it."""
        self.give_back()

    def locked(self) -> bool:
        """Return whether the lock is held."""
        with cython.critical_section(self):
            return self.is_held

    def __enter__(self) -> bool:
        self.take()
        return True

    def __exit__(self, kind, value, trace) -> None:
        self.give_back()
