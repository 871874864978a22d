/* CRC-32C (Castagnoli) and CRC-32 (IEEE) with the implementation chosen when the module is loaded.
 *
 *   kl_crc32c(crc, p, n), kl_crc32(crc, p, n): checksum of the bytes before (0 for none) -> checksum with p[0..n) added.
 *
 * Everything is static: each compiled module that includes this file has its own copy and its own choice. The choice and the
 * tables are made by a constructor function, so they are ready before any thread can call, and never change afterwards.
 *
 * Bits are reflected: the lowest bit of a byte is the highest power of x. A "state" is the checksum with all bits inverted.
 */
#ifndef KAFKALOG_KCRC_H
#define KAFKALOG_KCRC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kcpu.h"

#define KL_CASTAGNOLI 0x82F63B78u
#define KL_IEEE 0xEDB88320u

typedef uint32_t (*kl_crc_fn)(uint32_t state, const uint8_t* p, size_t n);

typedef struct {
    const char* name;
    kl_crc_fn crc32c;
    kl_crc_fn crc32;
} kl_crc_implementation;

static uint32_t kl_table_c[8][256];
static uint32_t kl_table_i[8][256];

static inline uint64_t kl_load_word(const uint8_t* p) {
    uint64_t w;
    memcpy(&w, p, 8);
    return w;
}

/* --- portable: eight table look-ups per eight bytes ---------------------------------------------------------------------- */

static inline uint32_t kl_slice8(const uint32_t t[8][256], uint32_t state, const uint8_t* p, size_t n) {
    for (; n >= 8; p += 8, n -= 8) {
        const uint64_t w = kl_load_word(p) ^ state;
        state = t[7][w & 0xFF] ^ t[6][(w >> 8) & 0xFF] ^ t[5][(w >> 16) & 0xFF] ^ t[4][(w >> 24) & 0xFF] ^
                t[3][(w >> 32) & 0xFF] ^ t[2][(w >> 40) & 0xFF] ^ t[1][(w >> 48) & 0xFF] ^ t[0][w >> 56];
    }
    for (; n; p++, n--) state = t[0][(state ^ *p) & 0xFF] ^ (state >> 8);
    return state;
}

static uint32_t kl_crc32c_portable(uint32_t state, const uint8_t* p, size_t n) {
    return kl_slice8((const uint32_t(*)[256])kl_table_c, state, p, n);
}

static uint32_t kl_crc32_portable(uint32_t state, const uint8_t* p, size_t n) {
    return kl_slice8((const uint32_t(*)[256])kl_table_i, state, p, n);
}

static void kl_fill_table(uint32_t t[8][256], uint32_t polynomial) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t r = i;
        for (int bit = 0; bit < 8; bit++) r = (r >> 1) ^ (r & 1 ? polynomial : 0);
        t[0][i] = r;
    }
    for (int k = 1; k < 8; k++)
        for (int i = 0; i < 256; i++) t[k][i] = t[0][t[k - 1][i] & 0xFF] ^ (t[k - 1][i] >> 8);
}

/* a * x^(8 bytes) modulo the polynomial of the table: appending zero bytes to what a stands for. */
static uint32_t kl_append_zeros(const uint32_t t[8][256], uint32_t a, size_t bytes) {
    for (; bytes; bytes--) a = t[0][a & 0xFF] ^ (a >> 8);
    return a;
}

/* --- x86-64: CRC32 instruction, carry-less multiply ---------------------------------------------------------------------- */

#if defined(KL_CPU_SSE42)
#include <immintrin.h>

#if defined(__clang__) /* clang keeps the CRC32 instruction apart from SSE4.2 */
#define KL_TARGET_SSE42 __attribute__((target("sse4.2,crc32,pclmul")))
#define KL_TARGET_AVX2 __attribute__((target("sse4.2,crc32,pclmul,avx2,vpclmulqdq")))
#define KL_TARGET_AVX512 __attribute__((target("sse4.2,crc32,pclmul,avx512f,avx512vl,vpclmulqdq")))
#else
#define KL_TARGET_SSE42 __attribute__((target("sse4.2,pclmul")))
#define KL_TARGET_AVX2 __attribute__((target("sse4.2,pclmul,avx2,vpclmulqdq")))
#define KL_TARGET_AVX512 __attribute__((target("sse4.2,pclmul,avx512f,avx512vl,vpclmulqdq")))
#endif

/* Longest stream of one join, in words; kl_join[i] is x^(64 i - 33): moves a checksum over i words of zeros. The 33 make up for
 * the multiply of reflected values (1) and for the CRC32 instruction that reduces the product (32). */
#define KL_STREAM_WORDS 256
static uint32_t kl_join[3 * KL_STREAM_WORDS + 1];

/* Folding 16 bytes over a distance of d bytes: x^(8d + 32) for the earlier eight, x^(8d - 32) for the later, both shifted by one
 * because they are reflected. The last pair of a four-lane constant folds nothing. */
typedef struct {
    uint64_t pair[2];
} kl_fold;
static kl_fold kl_fold_i64, kl_fold_i48, kl_fold_i32, kl_fold_i16;          /* CRC-32 */
static kl_fold kl_fold_256, kl_fold_192, kl_fold_128, kl_fold_96, kl_fold_64; /* CRC-32C */
static kl_fold kl_fold_lanes[4];                                            /* CRC-32C: 48, 32, 16, nothing */

static kl_fold kl_make_fold(const uint32_t t[8][256], size_t distance) {
    /* x^24 is bit 7 of a reflected word: 8d + 32 = 24 + 8 (d + 1), and 8d - 32 = 24 + 8 (d - 7). */
    kl_fold f;
    f.pair[0] = (uint64_t)kl_append_zeros(t, 0x80u, distance + 1) << 1;
    f.pair[1] = (uint64_t)kl_append_zeros(t, 0x80u, distance - 7) << 1;
    return f;
}

static void kl_fill_x86(void) {
    const uint32_t(*c)[256] = (const uint32_t(*)[256])kl_table_c;
    const uint32_t(*i)[256] = (const uint32_t(*)[256])kl_table_i;
    kl_join[1] = 1; /* x^31 */
    for (int w = 2; w <= 3 * KL_STREAM_WORDS; w++) kl_join[w] = kl_append_zeros(c, kl_join[w - 1], 8);
    kl_fold_i64 = kl_make_fold(i, 64);
    kl_fold_i48 = kl_make_fold(i, 48);
    kl_fold_i32 = kl_make_fold(i, 32);
    kl_fold_i16 = kl_make_fold(i, 16);
    kl_fold_256 = kl_make_fold(c, 256);
    kl_fold_192 = kl_make_fold(c, 192);
    kl_fold_128 = kl_make_fold(c, 128);
    kl_fold_96 = kl_make_fold(c, 96);
    kl_fold_64 = kl_make_fold(c, 64);
    kl_fold_lanes[0] = kl_make_fold(c, 48);
    kl_fold_lanes[1] = kl_make_fold(c, 32);
    kl_fold_lanes[2] = kl_make_fold(c, 16);
}

KL_TARGET_SSE42 static inline uint64_t kl_moved(uint64_t state, uint32_t power) {
    return (uint64_t)_mm_cvtsi128_si64(
        _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)state), _mm_cvtsi32_si128((int32_t)power), 0));
}

/* Three independent streams hide the three cycles that one CRC32 instruction takes; a multiply each moves the first two over
 * what follows them, and the product is reduced together with the last word of the third. */
KL_TARGET_SSE42 static inline uint32_t kl_sse42(uint32_t state, const uint8_t* p, size_t n) {
    uint64_t a = state;
    while (n >= 96) {
        size_t words = n / 24;
        if (words > KL_STREAM_WORDS) words = KL_STREAM_WORDS;
        const size_t bytes = 8 * words;
        const uint8_t *last = p + bytes - 8, *q = p + bytes, *r = q + bytes;
        uint64_t b = 0, c = 0;
        for (; p < last; p += 8, q += 8, r += 8) {
            a = _mm_crc32_u64(a, kl_load_word(p));
            b = _mm_crc32_u64(b, kl_load_word(q));
            c = _mm_crc32_u64(c, kl_load_word(r));
        }
        a = _mm_crc32_u64(a, kl_load_word(p));
        b = _mm_crc32_u64(b, kl_load_word(q));
        a = _mm_crc32_u64(c, kl_load_word(r) ^ kl_moved(a, kl_join[2 * words]) ^ kl_moved(b, kl_join[words]));
        p = r + 8;
        n -= 3 * bytes;
    }
    for (; n >= 8; p += 8, n -= 8) a = _mm_crc32_u64(a, kl_load_word(p));
    if (n & 4) {
        uint32_t half;
        memcpy(&half, p, 4);
        a = _mm_crc32_u32((uint32_t)a, half);
        p += 4;
    }
    if (n & 2) {
        uint16_t quarter;
        memcpy(&quarter, p, 2);
        a = _mm_crc32_u16((uint32_t)a, quarter);
        p += 2;
    }
    if (n & 1) a = _mm_crc32_u8((uint32_t)a, *p);
    return (uint32_t)a;
}

KL_TARGET_SSE42 static uint32_t kl_crc32c_sse42(uint32_t state, const uint8_t* p, size_t n) {
    return kl_sse42(state, p, n);
}

KL_TARGET_SSE42 static inline __m128i kl_fold128(__m128i x, const kl_fold* f, __m128i next) {
    const __m128i k = _mm_loadu_si128((const __m128i*)f->pair);
    return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11)), next);
}

KL_TARGET_AVX2 static inline __m256i kl_fold256(__m256i x, __m256i k, __m256i next) {
    return _mm256_xor_si256(_mm256_xor_si256(_mm256_clmulepi64_epi128(x, k, 0x00), _mm256_clmulepi64_epi128(x, k, 0x11)), next);
}

KL_TARGET_AVX2 static inline __m256i kl_twice(const kl_fold* f) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)f->pair));
}

KL_TARGET_AVX2 static inline __m256i kl_load256(const uint8_t* p) { return _mm256_loadu_si256((const __m256i*)p); }

/* The checksum of the 128 bytes that four accumulators stand for. */
KL_TARGET_AVX2 static inline uint64_t kl_reduce256(__m256i x0, __m256i x1, __m256i x2, __m256i x3) {
    x3 = kl_fold256(x2, kl_twice(&kl_fold_lanes[1]), x3);
    x3 = kl_fold256(x1, kl_twice(&kl_fold_64), x3);
    x3 = kl_fold256(x0, kl_twice(&kl_fold_96), x3);
    const __m128i z = kl_fold128(_mm256_castsi256_si128(x3), &kl_fold_lanes[2], _mm256_extracti128_si256(x3, 1));
    return _mm_crc32_u64(_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(z)), (uint64_t)_mm_extract_epi64(z, 1));
}

KL_TARGET_AVX2 static inline uint32_t kl_short_avx2(uint32_t state, const uint8_t* p, size_t n) {
    if (n < 128) return kl_sse42(state, p, n);
    const __m256i k = kl_twice(&kl_fold_128);
    __m256i x0 = _mm256_xor_si256(kl_load256(p), _mm256_zextsi128_si256(_mm_cvtsi32_si128((int32_t)state)));
    __m256i x1 = kl_load256(p + 32), x2 = kl_load256(p + 64), x3 = kl_load256(p + 96);
    for (p += 128, n -= 128; n >= 128; p += 128, n -= 128) {
        x0 = kl_fold256(x0, k, kl_load256(p));
        x1 = kl_fold256(x1, k, kl_load256(p + 32));
        x2 = kl_fold256(x2, k, kl_load256(p + 64));
        x3 = kl_fold256(x3, k, kl_load256(p + 96));
    }
    return kl_sse42((uint32_t)kl_reduce256(x0, x1, x2, x3), p, n);
}

/* What multiplies and what has the CRC32 instruction are different parts of the processor, so both work at once: a block
 * begins with 128 bytes for each round, folded into four accumulators, and three streams of words follow, of four a round
 * each. They are joined as the three are above. */
KL_TARGET_AVX2 static uint32_t kl_crc32c_avx2(uint32_t state, const uint8_t* p, size_t n) {
    const size_t step = 4, most = KL_STREAM_WORDS / step, round = 128 + 24 * step;
    while (n >= 4 * round) {
        size_t rounds = n / round;
        if (rounds > most) rounds = most;
        const size_t words = step * rounds, bytes = 8 * words;
        const uint8_t* q = p + 128 * rounds;
        const __m256i k = kl_twice(&kl_fold_128);
        __m256i x0 = _mm256_xor_si256(kl_load256(p), _mm256_zextsi128_si256(_mm_cvtsi32_si128((int32_t)state)));
        __m256i x1 = kl_load256(p + 32), x2 = kl_load256(p + 64), x3 = kl_load256(p + 96);
        uint64_t a = 0, b = 0, c = 0;
        for (size_t left = rounds - 1; left; left--, q += 8 * step) {
            p += 128;
            x0 = kl_fold256(x0, k, kl_load256(p));
            x1 = kl_fold256(x1, k, kl_load256(p + 32));
            x2 = kl_fold256(x2, k, kl_load256(p + 64));
            x3 = kl_fold256(x3, k, kl_load256(p + 96));
            for (size_t i = 0; i < 8 * step; i += 8) {
                a = _mm_crc32_u64(a, kl_load_word(q + i));
                b = _mm_crc32_u64(b, kl_load_word(q + bytes + i));
                c = _mm_crc32_u64(c, kl_load_word(q + 2 * bytes + i));
            }
        }
        for (size_t i = 0; i < 8 * step; i += 8) {
            a = _mm_crc32_u64(a, kl_load_word(q + i));
            b = _mm_crc32_u64(b, kl_load_word(q + bytes + i));
            if (i < 8 * (step - 1)) c = _mm_crc32_u64(c, kl_load_word(q + 2 * bytes + i));
        }
        p = q + 2 * bytes + 8 * step;
        n -= rounds * round;
        const uint64_t v = kl_reduce256(x0, x1, x2, x3);
        state = (uint32_t)_mm_crc32_u64(c, kl_load_word(p - 8) ^ kl_moved(v, kl_join[3 * words]) ^
                                               kl_moved(a, kl_join[2 * words]) ^ kl_moved(b, kl_join[words]));
    }
    return kl_short_avx2(state, p, n);
}

KL_TARGET_AVX512 static inline __m512i kl_fold512(__m512i x, __m512i k, __m512i next) {
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, k, 0x00), _mm512_clmulepi64_epi128(x, k, 0x11), next, 0x96);
}

KL_TARGET_AVX512 static inline __m512i kl_wide(const kl_fold* f) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)f->pair));
}

/* Four accumulators of 64 bytes, folded over 256 bytes at a time; then all into the last, lane into lane, 16 bytes into 4. */
KL_TARGET_AVX512 static uint32_t kl_crc32c_avx512(uint32_t state, const uint8_t* p, size_t n) {
    if (n < 256) return kl_sse42(state, p, n);
    __m512i k = kl_wide(&kl_fold_256);
    __m512i x0 = _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_zextsi128_si512(_mm_cvtsi32_si128((int32_t)state)));
    __m512i x1 = _mm512_loadu_si512(p + 64);
    __m512i x2 = _mm512_loadu_si512(p + 128);
    __m512i x3 = _mm512_loadu_si512(p + 192);
    for (p += 256, n -= 256; n >= 256; p += 256, n -= 256) {
        x0 = kl_fold512(x0, k, _mm512_loadu_si512(p));
        x1 = kl_fold512(x1, k, _mm512_loadu_si512(p + 64));
        x2 = kl_fold512(x2, k, _mm512_loadu_si512(p + 128));
        x3 = kl_fold512(x3, k, _mm512_loadu_si512(p + 192));
    }
    const __m512i k64 = kl_wide(&kl_fold_64);
    x3 = kl_fold512(x2, k64, x3);
    x3 = kl_fold512(x1, kl_wide(&kl_fold_128), x3);
    x3 = kl_fold512(x0, kl_wide(&kl_fold_192), x3);
    for (; n >= 64; p += 64, n -= 64) x3 = kl_fold512(x3, k64, _mm512_loadu_si512(p));

    k = _mm512_loadu_si512(kl_fold_lanes);
    x0 = kl_fold512(x3, k, _mm512_maskz_mov_epi64(0xC0, x3));
    const __m256i y = _mm256_xor_si256(_mm512_castsi512_si256(x0), _mm512_extracti64x4_epi64(x0, 1));
    const __m128i z = _mm_xor_si128(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
    const uint64_t a = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(z));
    return kl_sse42((uint32_t)_mm_crc32_u64(a, (uint64_t)_mm_extract_epi64(z, 1)), p, n);
}

/* CRC-32 has no instruction of its own here: fold to 16 bytes, and let the tables reduce those. */
KL_TARGET_SSE42 static uint32_t kl_crc32_pclmul(uint32_t state, const uint8_t* p, size_t n) {
    if (n < 128) return kl_crc32_portable(state, p, n);
    const __m128i* v = (const __m128i*)p;
    __m128i x0 = _mm_xor_si128(_mm_loadu_si128(v), _mm_cvtsi32_si128((int32_t)state));
    __m128i x1 = _mm_loadu_si128(v + 1), x2 = _mm_loadu_si128(v + 2), x3 = _mm_loadu_si128(v + 3);
    for (v += 4, n -= 64; n >= 64; v += 4, n -= 64) {
        x0 = kl_fold128(x0, &kl_fold_i64, _mm_loadu_si128(v));
        x1 = kl_fold128(x1, &kl_fold_i64, _mm_loadu_si128(v + 1));
        x2 = kl_fold128(x2, &kl_fold_i64, _mm_loadu_si128(v + 2));
        x3 = kl_fold128(x3, &kl_fold_i64, _mm_loadu_si128(v + 3));
    }
    x3 = kl_fold128(x0, &kl_fold_i48, kl_fold128(x1, &kl_fold_i32, kl_fold128(x2, &kl_fold_i16, x3)));
    uint8_t folded[16];
    _mm_storeu_si128((__m128i*)folded, x3);
    return kl_crc32_portable(kl_crc32_portable(0, folded, 16), (const uint8_t*)v, n);
}
#endif

/* --- ARMv8: CRC32 instructions ------------------------------------------------------------------------------------------- */

#if defined(KL_CPU_ARMV8)
#define KL_ARM_STEP(name, instruction, width, type)                                                                    \
    static inline uint32_t name(uint32_t state, type data) {                                                           \
        __asm__(".arch_extension crc\n\t" instruction " %w0, %w0, %" width "1" : "+r"(state) : "r"(data));             \
        return state;                                                                                                  \
    }
KL_ARM_STEP(kl_arm_c8, "crc32cx", "x", uint64_t)
KL_ARM_STEP(kl_arm_c4, "crc32cw", "w", uint32_t)
KL_ARM_STEP(kl_arm_c1, "crc32cb", "w", uint32_t)
KL_ARM_STEP(kl_arm_i8, "crc32x", "x", uint64_t)
KL_ARM_STEP(kl_arm_i4, "crc32w", "w", uint32_t)
KL_ARM_STEP(kl_arm_i1, "crc32b", "w", uint32_t)

#define KL_ARM_STREAM 2048 /* bytes of each of three streams */
static uint32_t kl_arm_power[2][2]; /* [CRC-32C, CRC-32][x^(8 stream), x^(16 stream)] */

static uint32_t kl_multiply(uint32_t a, uint32_t b, uint32_t polynomial) {
    uint32_t product = 0;
    for (uint32_t bit = 0x80000000u; bit; bit >>= 1) {
        product ^= b & (0u - ((a & bit) != 0));
        b = (b >> 1) ^ (polynomial & (0u - (b & 1)));
    }
    return product;
}

#define KL_ARM_CRC(name, step8, step4, step1, polynomial, power)                                                       \
    static uint32_t name(uint32_t state, const uint8_t* p, size_t n) {                                                 \
        for (; n >= 3 * KL_ARM_STREAM; p += 2 * KL_ARM_STREAM, n -= 3 * KL_ARM_STREAM) {                               \
            uint32_t b = 0, c = 0;                                                                                     \
            for (const uint8_t* end = p + KL_ARM_STREAM; p < end; p += 8) {                                            \
                state = step8(state, kl_load_word(p));                                                                 \
                b = step8(b, kl_load_word(p + KL_ARM_STREAM));                                                         \
                c = step8(c, kl_load_word(p + 2 * KL_ARM_STREAM));                                                     \
            }                                                                                                          \
            state = kl_multiply(power[1], state, polynomial) ^ kl_multiply(power[0], b, polynomial) ^ c;               \
        }                                                                                                              \
        for (; n >= 8; p += 8, n -= 8) state = step8(state, kl_load_word(p));                                          \
        if (n & 4) {                                                                                                   \
            uint32_t half;                                                                                             \
            memcpy(&half, p, 4);                                                                                       \
            state = step4(state, half);                                                                                \
            p += 4;                                                                                                    \
        }                                                                                                              \
        for (n &= 3; n; p++, n--) state = step1(state, *p);                                                            \
        return state;                                                                                                  \
    }
KL_ARM_CRC(kl_crc32c_armv8, kl_arm_c8, kl_arm_c4, kl_arm_c1, KL_CASTAGNOLI, kl_arm_power[0])
KL_ARM_CRC(kl_crc32_armv8, kl_arm_i8, kl_arm_i4, kl_arm_i1, KL_IEEE, kl_arm_power[1])

static void kl_fill_arm(void) {
    const uint32_t one = 0x80000000u;
    kl_arm_power[0][0] = kl_append_zeros((const uint32_t(*)[256])kl_table_c, one, KL_ARM_STREAM);
    kl_arm_power[0][1] = kl_append_zeros((const uint32_t(*)[256])kl_table_c, one, 2 * KL_ARM_STREAM);
    kl_arm_power[1][0] = kl_append_zeros((const uint32_t(*)[256])kl_table_i, one, KL_ARM_STREAM);
    kl_arm_power[1][1] = kl_append_zeros((const uint32_t(*)[256])kl_table_i, one, 2 * KL_ARM_STREAM);
}
#endif

/* --- the choice ---------------------------------------------------------------------------------------------------------- */

/* What this machine can run and KAFKALOG_CPU allows, best first; the last is always the portable one. */
static kl_crc_implementation kl_crc_implementations[4];
static int kl_crc_implementation_count;
static kl_crc_fn kl_crc32c_chosen;
static kl_crc_fn kl_crc32_chosen;

static void kl_crc_offer(const char* name, kl_crc_fn crc32c, kl_crc_fn crc32) {
    const kl_crc_implementation made = {name, crc32c, crc32};
    kl_crc_implementations[kl_crc_implementation_count++] = made;
}

__attribute__((constructor)) static void kl_crc_choose(void) {
    kl_fill_table(kl_table_c, KL_CASTAGNOLI);
    kl_fill_table(kl_table_i, KL_IEEE);
    kl_cpu_choose(); /* constructors have no order among themselves */
#if defined(KL_CPU_SSE42)
    kl_fill_x86();
    if (kl_cpu_level >= KL_CPU_AVX512) kl_crc_offer("avx512", kl_crc32c_avx512, kl_crc32_pclmul);
    if (kl_cpu_level >= KL_CPU_AVX2 && kl_cpu_multiplies_wide()) kl_crc_offer("avx2", kl_crc32c_avx2, kl_crc32_pclmul);
    if (kl_cpu_level >= KL_CPU_SSE42) kl_crc_offer("sse4.2", kl_crc32c_sse42, kl_crc32_pclmul);
#elif defined(KL_CPU_ARMV8)
    kl_fill_arm();
    if (kl_cpu_level >= KL_CPU_ARMV8) kl_crc_offer("armv8", kl_crc32c_armv8, kl_crc32_armv8);
#endif
    kl_crc_offer("portable", kl_crc32c_portable, kl_crc32_portable);
    kl_crc32c_chosen = kl_crc_implementations[0].crc32c;
    kl_crc32_chosen = kl_crc_implementations[0].crc32;
}

static inline uint32_t kl_crc32c(uint32_t crc, const uint8_t* p, size_t n) { return ~kl_crc32c_chosen(~crc, p, n); }

static inline uint32_t kl_crc32(uint32_t crc, const uint8_t* p, size_t n) { return ~kl_crc32_chosen(~crc, p, n); }

#endif
