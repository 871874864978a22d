"""Which pages of a file the system holds in memory: asked without touching one of them."""
from cpython.exc cimport PyErr_SetFromErrno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc

cdef extern from "<unistd.h>" nogil:
    long sysconf(int name)
    int _SC_PAGESIZE

cdef extern from "<sys/mman.h>" nogil:
    void* mmap(void* address, size_t length, int protection, int flags, int fd, long long offset)
    int munmap(void* address, size_t length)
    int mincore(void* address, size_t length, unsigned char* vec)
    void* MAP_FAILED
    int PROT_NONE
    int MAP_SHARED

cdef enum:
    ASKED_BYTES = 64 << 20          # a piece of the file: its answer is 16 KiB


cdef int ask(int fd, int64_t position, int64_t length, uint8_t* pages) noexcept nogil:
    """One byte a page into `pages`, whose lowest bit is set for a resident page; -1 with errno."""
    cdef int status
    cdef void* address = mmap(NULL, <size_t>length, PROT_NONE, MAP_SHARED, fd, position)
    if address == MAP_FAILED:
        return -1
    status = mincore(address, <size_t>length, pages)
    munmap(address, <size_t>length)
    return status


def absent_runs(int fd, int64_t length, Py_ssize_t most=4096) -> list[tuple[int, int]]:
    """(position, bytes) of each run of pages among the first `length` bytes that is not in memory, at most `most` runs.

    The pages are mapped without access, so a file that is cut meanwhile is no SIGBUS. Where the system does not tell
    (a file of another user), all pages count as in memory. OSError from the system.
    """
    cdef int64_t page = sysconf(_SC_PAGESIZE)
    cdef int64_t position = 0
    cdef int64_t begun = -1
    cdef int64_t piece, pages, i
    cdef int status
    cdef list found = []
    cdef uint8_t* told
    if length <= 0:
        return found
    told = <uint8_t*>malloc(ASKED_BYTES // page + 1)
    if told == NULL:
        raise MemoryError
    try:
        while position < length:
            piece = min(length - position, <int64_t>ASKED_BYTES)
            pages = (piece + page - 1) // page
            with nogil:
                status = ask(fd, position, piece, told)
            if status != 0:
                PyErr_SetFromErrno(OSError)
            for i in range(pages):
                if told[i] & 1:
                    if begun >= 0:
                        found.append((begun, position + i * page - begun))
                        begun = -1
                        if len(found) >= most:
                            return found
                elif begun < 0:
                    begun = position + i * page
            position += piece
        if begun >= 0:
            found.append((begun, length - begun))
        return found
    finally:
        free(told)
