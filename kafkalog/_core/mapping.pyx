"""Shared pages of a file: what `mmap.mmap` gives, without keeping a second descriptor open for each file."""
import errno
import os

cimport cython
from cpython.buffer cimport Py_buffer, PyBuffer_FillInfo
from cpython.exc cimport PyErr_SetFromErrno
from posix.stat cimport fstat, struct_stat

cdef extern from "<sys/mman.h>" nogil:
    void* mmap(void* address, size_t length, int protection, int flags, int fd, long long offset)
    int munmap(void* address, size_t length)
    void* MAP_FAILED
    int msync(void* address, size_t length, int flags)
    int PROT_NONE
    int PROT_READ
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
cdef class Mapping:
    """The first `length` bytes of the file open as `fd`, as a read-only buffer; what others write there is seen at once.

    The pages stay until the last buffer taken from this object is released; `fd` may be closed right away. A byte past
    the file's present end must not be touched (SIGBUS): whoever may cut the file sees to that. ValueError unless the
    file is as long as that now and length > 0, OSError from the system.
    """
    cdef void* data
    cdef readonly Py_ssize_t length

    def __cinit__(self, int fd, Py_ssize_t length):
        cdef struct_stat status
        self.data = NULL
        if length <= 0:
            raise ValueError(f"cannot map {length} bytes")
        if fstat(fd, &status) != 0:
            PyErr_SetFromErrno(OSError)
        if status.st_size < length:
            raise ValueError(f"cannot map {length} bytes of a file of {status.st_size}")
        cdef void* data = mmap(NULL, <size_t>length, PROT_READ, MAP_SHARED, fd, 0)
        if data == MAP_FAILED:
            PyErr_SetFromErrno(OSError)
        self.data = data
        self.length = length

    def __dealloc__(self):
        if self.data != NULL:
            munmap(self.data, <size_t>self.length)

    def __len__(self) -> int:
        return self.length

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.length, 1, flags)


@cython.final
cdef class Witness:
    """An open file without its descriptor: one page that is mapped and never touched keeps the system's record of it.

    A failed write-back is told to the open files there were at that time, and else once to whoever comes first. What
    was written through `fd` is therefore asked after through this object, once `fd` is closed: `sync` fails where a
    write-back of the file failed since `fd` was opened, or last synced, whoever has heard of it meanwhile.
    Only Linux keeps that with the file: elsewhere OSError (EOPNOTSUPP), and what was written has to stay open.
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
