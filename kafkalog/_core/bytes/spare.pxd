

cdef char* take_memory(size_t wanted, size_t* capacity) noexcept
cdef void give_memory(char* data, size_t capacity) noexcept
cdef char* grow_memory(char* data, size_t size, size_t wanted, size_t* capacity) noexcept
