"""Large pages for large memory."""

cdef extern from *:
    """
    #include <stdint.h>
    #include <stdlib.h>
    #include <sys/mman.h>
    #define KL_LARGE_PAGE (2 << 20)
    #if defined(__linux__) && defined(MADV_HUGEPAGE) && !defined(KAFKALOG_PORTABLE)
    #define KL_HAS_LARGE 1
    #else
    #define KL_HAS_LARGE 0
    #endif
    /* asks for large pages for memory that is about to be written from one end to the other */
    static inline void kl_want_huge(void *address, size_t size) {
    #if KL_HAS_LARGE
        uintptr_t first = ((uintptr_t)address + 4095) & ~(uintptr_t)4095;
        if (size >= 4 << 20)
            (void)madvise((void *)first, size - (first - (uintptr_t)address), MADV_HUGEPAGE);
    #endif
    }
    /* asks for large pages for as much as fills them of memory that begins where one may */
    static inline void kl_want_whole(void *address, size_t size) {
    #if KL_HAS_LARGE
        if (size >= KL_LARGE_PAGE)
            (void)madvise(address, size / KL_LARGE_PAGE * KL_LARGE_PAGE, MADV_HUGEPAGE);
    #endif
    }
    /* memory that begins where a large page may; small pages of it become memory as they are written; for free() */
    static inline void *kl_new_area(size_t size) {
        void *made;
        if (size < KL_LARGE_PAGE)
            return malloc(size);
        return posix_memalign(&made, KL_LARGE_PAGE, size) == 0 ? made : NULL;
    }
    /* makes one large page of small ones that are all written; its address and content stay. Linux 6.1, else nothing */
    static inline void kl_make_large(void *address) {
    #if KL_HAS_LARGE
        (void)madvise(address, KL_LARGE_PAGE, 25 /* MADV_COLLAPSE */);
    #endif
    }
    """
    enum:
        KL_LARGE_PAGE
    void kl_want_huge(void* address, size_t size) noexcept nogil
    void kl_want_whole(void* address, size_t size) noexcept nogil
    void* kl_new_area(size_t size) noexcept nogil
    void kl_make_large(void* address) noexcept nogil
