"""The pages of a file that the system holds in memory, found without touching them."""
from cpython.exc cimport PyErr_SetFromErrno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc

cdef extern from "<unistd.h>" nogil:
    long sysconf(int name)
    int _SC_PAGESIZE

cdef extern from *:
    """
    #include <stdint.h>
    #if defined(__linux__) && !defined(__alpha__)
    #include <unistd.h>
    #include <sys/syscall.h>
    #endif
    /* pages of the first bytes of a file that are in memory, -1 where the system does not count them (before 6.5) */
    static int64_t kl_pages_in_memory(int fd, int64_t length) {
        struct { uint64_t position, length; } range = {0, (uint64_t)length};
        struct { uint64_t in_memory, dirty, written_back, evicted, recently_evicted; } told = {0, 0, 0, 0, 0};
    #if defined(__linux__) && !defined(__alpha__)
        if (syscall(451, fd, &range, &told, 0) == 0)    /* cachestat, which older headers do not name */
            return (int64_t)told.in_memory;
    #endif
        return -1;
    }
    """
    int64_t kl_pages_in_memory(int fd, int64_t length) noexcept nogil

cdef extern from "<sys/mman.h>" nogil:
    void* mmap(void* address, size_t length, int protection, int flags, int fd, long long offset)
    int munmap(void* address, size_t length)
    void* MAP_FAILED
    int PROT_NONE
    int MAP_SHARED

cdef extern from *:
    """
    #define kl_resident(address, length, pages) mincore(address, length, (void*)(pages))   /* char or unsigned char */
    """
    int kl_resident(void* address, size_t length, uint8_t* pages) noexcept nogil

cdef enum:
    ASKED_BYTES = 64 << 20          # a piece of the file: its answer is 16 KiB


cdef int ask(int fd, int64_t position, int64_t length, uint8_t* pages) noexcept nogil:
    """One byte a page into `pages`, whose lowest bit is set for a resident page; -1 with errno."""
    cdef int status
    cdef void* address = mmap(NULL, <size_t>length, PROT_NONE, MAP_SHARED, fd, position)
    if address == MAP_FAILED:
        return -1
    status = kl_resident(address, <size_t>length, pages)
    munmap(address, <size_t>length)
    return status


def absent_runs(int fd, int64_t length, Py_ssize_t most=4096) -> list[tuple[int, int]]:
    """(position, bytes) of each run of pages among the first `length` bytes that is not in memory, at most `most` runs.

    The pages are mapped without access, so a file that is cut meanwhile is no SIGBUS. If the system does not say it
    (for a file of another user), all pages count as in memory. OSError from the system.
    """
    cdef int64_t page = sysconf(_SC_PAGESIZE)
    cdef int64_t position = 0
    cdef int64_t begun = -1
    cdef int64_t piece, pages, i, counted
    cdef int status
    cdef list found = []
    cdef uint8_t* told
    if length <= 0:
        return found
    with nogil:
        counted = kl_pages_in_memory(fd, length)
    if counted >= (length + page - 1) // page:      # mostly so, and cheaper to ask than page by page
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
