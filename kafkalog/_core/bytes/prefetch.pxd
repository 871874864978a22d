"""Requests for a line of memory before it is needed; the place may be any, also one that cannot be read."""

cdef extern from *:
    """
    #define kl_prefetch(p) __builtin_prefetch(p)
    #define kl_prefetch_to_write(p) __builtin_prefetch((p), 1)
    """
    void kl_prefetch(const void* p) noexcept nogil
    void kl_prefetch_to_write(const void* p) noexcept nogil
