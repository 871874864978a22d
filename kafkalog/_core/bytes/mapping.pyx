"""A page of a file that is mapped and never touched, so that what the system knows of the open file is kept."""
import errno
import os

cimport cython
from cpython.exc cimport PyErr_SetFromErrno

cdef extern from "<sys/mman.h>" nogil:
    void* mmap(void* address, size_t length, int protection, int flags, int fd, long long offset)
    int munmap(void* address, size_t length)
    void* MAP_FAILED
    int msync(void* address, size_t length, int flags)
    int PROT_NONE
    int MAP_SHARED
    int MS_SYNC

cdef extern from *:
    """
    /* a failed write-back is kept with the file for everyone who has it open on Linux alone */
    #if defined(__linux__) && !defined(KAFKALOG_PORTABLE)
    #define KL_TELLS_LATER 1
    #else
    #define KL_TELLS_LATER 0
    #endif
    """
    bint KL_TELLS_LATER

cdef enum:
    WITNESS_BYTES = 4096


@cython.final
cdef class WritebackErrorProbe:
    """An open file without a descriptor: one page, mapped and never touched, keeps the system's record of the file.

    The system reports a failed write-back to the files that were open at that time, or else once, to the next that
    asks. This object asks for the writes through `fd` after that is closed: `sync` fails if a write-back of the file
    failed since `fd` was opened or last synced, even if it was reported to others meanwhile. Only Linux keeps that
    with the file: elsewhere OSError (EOPNOTSUPP), and files that were written to have to stay open.
    """
    cdef void* data

    def __cinit__(self, int fd):
        self.data = NULL
        if not KL_TELLS_LATER:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        cdef void* data = mmap(NULL, WITNESS_BYTES, PROT_NONE, MAP_SHARED, fd, 0)
        if data == MAP_FAILED:
            PyErr_SetFromErrno(OSError)
        self.data = data

    def sync(self):
        """Return when nothing of the file was lost; OSError otherwise, once. It does not write the file back itself."""
        cdef int result
        with nogil:
            result = msync(self.data, WITNESS_BYTES, MS_SYNC)
        if result != 0:
            PyErr_SetFromErrno(OSError)

    def __dealloc__(self):
        if self.data != NULL:
            munmap(self.data, WITNESS_BYTES)
