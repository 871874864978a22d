"""Memory of columns: counted, aligned to 64 bytes, and freed with its last reference, in any thread, without the GIL."""
from libc.stdint cimport int64_t, uint8_t


cdef struct Memory:
    int64_t refs
    int64_t capacity            # bytes at `data`
    uint8_t* data               # never NULL


cdef Memory* new_memory(int64_t capacity) noexcept nogil
cdef Memory* hold_memory(Memory* m) noexcept nogil
cdef void drop_memory(Memory* m) noexcept nogil
cdef Memory* grow_memory(Memory* m, int64_t used, int64_t capacity) noexcept nogil
