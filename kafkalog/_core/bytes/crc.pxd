"""CRC-32C and CRC-32 for other compiled modules: the module that cimports these has its own copy of kcrc.h."""
from libc.stdint cimport uint8_t, uint32_t

cdef extern from "kcpu.h" nogil:
    const char** kl_cpu_names
    int KL_CPU_LEVELS
    int kl_cpu_level
    int kl_cpu_ceiling() noexcept

cdef extern from "kcrc.h" nogil:
    ctypedef uint32_t (*kl_crc_fn)(uint32_t state, const uint8_t* p, size_t n) noexcept nogil

    ctypedef struct kl_crc_implementation:
        const char* name
        kl_crc_fn crc32c
        kl_crc_fn crc32

    kl_crc_implementation* kl_crc_implementations
    int kl_crc_implementation_count

    uint32_t kl_crc32c(uint32_t crc, const uint8_t* p, size_t n) noexcept
    uint32_t kl_crc32(uint32_t crc, const uint8_t* p, size_t n) noexcept
