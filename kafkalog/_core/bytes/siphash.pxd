"""SipHash-2-4 with 128 bits of result: without its key no collisions can be constructed."""
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

cdef extern from "kcpu.h":
    pass

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #define KL_SIP_0 0x736f6d6570736575ULL
    #define KL_SIP_1 0x646f72616e646f6dULL
    #define KL_SIP_2 0x6c7967656e657261ULL
    #define KL_SIP_3 0x7465646279746573ULL

    #if defined(KL_CPU_AVX2)
    #include <immintrin.h>
    #define KL_SIP_FOUR __attribute__((target("avx2")))
    #define KL_HAS_FOUR() (kl_cpu_level >= KL_CPU_AVX2)
    #define KL_TURN(v, n) _mm256_or_si256(_mm256_slli_epi64(v, n), _mm256_srli_epi64(v, 64 - (n)))
    #define KL_HALF_TURN(v) _mm256_shuffle_epi32(v, 0xB1)
    #define KL_SIP_ROUND \\
        a = _mm256_add_epi64(a, b); c = _mm256_add_epi64(c, d); \\
        b = _mm256_xor_si256(KL_TURN(b, 13), a); d = _mm256_xor_si256(_mm256_shuffle_epi8(d, quarter), c); \\
        a = KL_HALF_TURN(a); \\
        c = _mm256_add_epi64(c, b); a = _mm256_add_epi64(a, d); \\
        b = _mm256_xor_si256(KL_TURN(b, 17), c); d = _mm256_xor_si256(KL_TURN(d, 21), a); \\
        c = KL_HALF_TURN(c)

    /* four results, for `count` words of each of four lanes side by side; `second` may be NULL */
    KL_SIP_FOUR static void kl_sip_four(
        uint64_t low, uint64_t high, const uint64_t* words, int count, uint64_t* first, uint64_t* second
    ) {
        const __m256i quarter = _mm256_setr_epi8(6, 7, 0, 1, 2, 3, 4, 5, 14, 15, 8, 9, 10, 11, 12, 13,
                                                 6, 7, 0, 1, 2, 3, 4, 5, 14, 15, 8, 9, 10, 11, 12, 13);
        __m256i a = _mm256_set1_epi64x((int64_t)(KL_SIP_0 ^ low)), b = _mm256_set1_epi64x((int64_t)(KL_SIP_1 ^ high ^ 0xEE));
        __m256i c = _mm256_set1_epi64x((int64_t)(KL_SIP_2 ^ low)), d = _mm256_set1_epi64x((int64_t)(KL_SIP_3 ^ high));
        for (int i = 0; i < count; i++) {
            __m256i word = _mm256_loadu_si256((const __m256i*)(words + 4 * i));
            d = _mm256_xor_si256(d, word);
            KL_SIP_ROUND; KL_SIP_ROUND;
            a = _mm256_xor_si256(a, word);
        }
        c = _mm256_xor_si256(c, _mm256_set1_epi64x(0xEE));
        KL_SIP_ROUND; KL_SIP_ROUND; KL_SIP_ROUND; KL_SIP_ROUND;
        _mm256_storeu_si256((__m256i*)first, _mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d)));
        if (second == NULL) return;
        b = _mm256_xor_si256(b, _mm256_set1_epi64x(0xDD));
        KL_SIP_ROUND; KL_SIP_ROUND; KL_SIP_ROUND; KL_SIP_ROUND;
        _mm256_storeu_si256((__m256i*)second, _mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d)));
    }

    #define KL_SIP_EIGHT __attribute__((target("avx512f")))
    #define KL_HAS_EIGHT() (kl_cpu_level >= KL_CPU_AVX512)
    #define KL_SIP_WIDE \\
        a = _mm512_add_epi64(a, b); c = _mm512_add_epi64(c, d); \\
        b = _mm512_xor_si512(_mm512_rol_epi64(b, 13), a); d = _mm512_xor_si512(_mm512_rol_epi64(d, 16), c); \\
        a = _mm512_rol_epi64(a, 32); \\
        c = _mm512_add_epi64(c, b); a = _mm512_add_epi64(a, d); \\
        b = _mm512_xor_si512(_mm512_rol_epi64(b, 17), c); d = _mm512_xor_si512(_mm512_rol_epi64(d, 21), a); \\
        c = _mm512_rol_epi64(c, 32)

    /* the first words of eight results, for `count` words of each of eight lanes side by side */
    KL_SIP_EIGHT static void kl_sip_eight(uint64_t low, uint64_t high, const uint64_t* words, int count, uint64_t* first) {
        __m512i a = _mm512_set1_epi64((int64_t)(KL_SIP_0 ^ low)), b = _mm512_set1_epi64((int64_t)(KL_SIP_1 ^ high ^ 0xEE));
        __m512i c = _mm512_set1_epi64((int64_t)(KL_SIP_2 ^ low)), d = _mm512_set1_epi64((int64_t)(KL_SIP_3 ^ high));
        for (int i = 0; i < count; i++) {
            __m512i word = _mm512_loadu_si512(words + 8 * i);
            d = _mm512_xor_si512(d, word);
            KL_SIP_WIDE; KL_SIP_WIDE;
            a = _mm512_xor_si512(a, word);
        }
        c = _mm512_xor_si512(c, _mm512_set1_epi64(0xEE));
        KL_SIP_WIDE; KL_SIP_WIDE; KL_SIP_WIDE; KL_SIP_WIDE;
        _mm512_storeu_si512(first, _mm512_xor_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d)));
    }
    #else
    #define KL_HAS_FOUR() 0
    #define KL_HAS_EIGHT() 0
    #define kl_sip_four(low, high, words, count, first, second) ((void)0)
    #define kl_sip_eight(low, high, words, count, first) ((void)0)
    #endif
    """
    const uint64_t KL_SIP_0, KL_SIP_1, KL_SIP_2, KL_SIP_3
    bint KL_HAS_FOUR() noexcept nogil
    bint KL_HAS_EIGHT() noexcept nogil
    void kl_sip_four(
        uint64_t low, uint64_t high, const uint64_t* words, int count, uint64_t* first, uint64_t* second
    ) noexcept nogil
    void kl_sip_eight(
        uint64_t low, uint64_t high, const uint64_t* words, int count, uint64_t* first
    ) noexcept nogil


cdef enum:
    FOUR_WORDS = 8                  # keys of fewer than 64 bytes are hashed together, where the processor can


cdef struct SipKey:
    uint64_t low
    uint64_t high


cdef struct SipState:
    uint64_t a
    uint64_t b
    uint64_t c
    uint64_t d


cdef inline uint64_t turned(uint64_t v, int bits) noexcept nogil:
    return (v << bits) | (v >> (64 - bits))


cdef inline void sip_round(SipState* s) noexcept nogil:
    s.a += s.b
    s.c += s.d
    s.b = turned(s.b, 13) ^ s.a
    s.d = turned(s.d, 16) ^ s.c
    s.a = turned(s.a, 32)
    s.c += s.b
    s.a += s.d
    s.b = turned(s.b, 17) ^ s.c
    s.d = turned(s.d, 21) ^ s.a
    s.c = turned(s.c, 32)


cdef inline void sip_take(SipState* s, uint64_t word) noexcept nogil:
    s.d ^= word
    sip_round(s)
    sip_round(s)
    s.a ^= word


cdef inline uint64_t last_word(const uint8_t* p, Py_ssize_t size, Py_ssize_t left) noexcept nogil:
    """The `left` < 8 bytes at p as a little-endian number, with the low byte of `size` above them; reads no other byte.

    Where there are eight bytes before the end, one load of them is shifted, since the bytes behind are not ours.
    """
    cdef uint64_t word = 0
    if left == 0:
        word = 0
    elif size >= 8:
        memcpy(&word, p + left - 8, 8)
        word >>= 8 * (8 - left)
    elif left >= 4:
        word = loaded32(p + left - 4) << (8 * (left - 4)) | loaded32(p)
    else:
        word = p[0] | <uint64_t>p[left >> 1] << (8 * (left >> 1)) | <uint64_t>p[left - 1] << (8 * (left - 1))
    return word | <uint64_t>size << 56


cdef inline uint64_t loaded32(const uint8_t* p) noexcept nogil:
    cdef unsigned int v
    memcpy(&v, p, 4)
    return v


cdef inline void siphash_128(const SipKey* key, const uint8_t* p, Py_ssize_t size, uint64_t* out) noexcept nogil:
    """The two words of the result, in the order in which the reference implementation writes them."""
    cdef SipState s
    cdef uint64_t word
    cdef const uint8_t* end = p + (size & ~7)
    cdef int i
    s.a = KL_SIP_0 ^ key.low
    s.b = KL_SIP_1 ^ key.high ^ 0xEE
    s.c = KL_SIP_2 ^ key.low
    s.d = KL_SIP_3 ^ key.high
    while p < end:
        memcpy(&word, p, 8)
        sip_take(&s, word)
        p += 8
    sip_take(&s, last_word(p, size, size & 7))
    s.c ^= 0xEE
    for i in range(4):
        sip_round(&s)
    out[0] = s.a ^ s.b ^ s.c ^ s.d
    s.b ^= 0xDD
    for i in range(4):
        sip_round(&s)
    out[1] = s.a ^ s.b ^ s.c ^ s.d


cdef inline int side_by_side(
    const uint8_t** keys, const Py_ssize_t* sizes, int lanes, uint64_t* words
) noexcept nogil:
    """Lays the words of keys with the same number of whole words, below FOUR_WORDS, side by side; how many each has."""
    cdef int whole = <int>(sizes[0] >> 3)
    cdef int i
    cdef int lane
    for lane in range(lanes):
        for i in range(whole):
            memcpy(&words[lanes * i + lane], keys[lane] + 8 * i, 8)
        words[lanes * whole + lane] = last_word(keys[lane] + 8 * whole, sizes[lane], sizes[lane] & 7)
    return whole + 1


cdef inline void siphash_four(
    const SipKey* key, const uint8_t** keys, const Py_ssize_t* sizes, uint64_t* first, uint64_t* second
) noexcept nogil:
    """The two words of each of four results, the second unless it is NULL; the keys are those of `side_by_side`.

    Only where KL_HAS_FOUR().
    """
    cdef uint64_t words[4 * FOUR_WORDS]
    cdef int count = side_by_side(keys, sizes, 4, words)
    kl_sip_four(key.low, key.high, words, count, first, second)


cdef inline void siphash_eight(
    const SipKey* key, const uint8_t** keys, const Py_ssize_t* sizes, uint64_t* first
) noexcept nogil:
    """The first word of each of eight results; the keys are those of `side_by_side`. Only where KL_HAS_EIGHT()."""
    cdef uint64_t words[8 * FOUR_WORDS]
    cdef int count = side_by_side(keys, sizes, 8, words)
    kl_sip_eight(key.low, key.high, words, count, first)
