# cython: language_level=3
"""Large pages for large memory."""

cdef extern from *:
    """
    #include <stdint.h>
    #include <sys/mman.h>
    /* asks for large pages for memory that is about to be written from one end to the other */
    static inline void kl_want_huge(void *address, size_t size) {
    #if defined(__linux__) && defined(MADV_HUGEPAGE) && !defined(KAFKALOG_PORTABLE)
        uintptr_t first = ((uintptr_t)address + 4095) & ~(uintptr_t)4095;
        if (size >= 4 << 20)
            (void)madvise((void *)first, size - (first - (uintptr_t)address), MADV_HUGEPAGE);
    #endif
    }
    """
    void kl_want_huge(void* address, size_t size) noexcept nogil
