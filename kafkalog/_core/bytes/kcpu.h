/* Which instructions the kernels may use, beyond those that every processor of this kind has.
 *
 * kl_cpu_level is the best level that the processor has and the operating system saves, but none above the one that the
 * environment variable KAFKALOG_CPU names. It is set by a constructor function as a compiled module is loaded, so it is there
 * before any thread can ask, and never changes. Everything is static: each module that includes this file has its own.
 */
#ifndef KAFKALOG_KCPU_H
#define KAFKALOG_KCPU_H

#include <stdlib.h>
#include <string.h>

#define KL_CPU_VARIABLE "KAFKALOG_CPU"
#define KL_CPU_PORTABLE 0

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#define KL_CPU_SSE42 1  /* with PCLMULQDQ */
#define KL_CPU_AVX2 2
#define KL_CPU_AVX512 3 /* F and VL, with VPCLMULQDQ */
static const char* const kl_cpu_names[] = {"portable", "sse4.2", "avx2", "avx512"};

/* `__builtin_cpu_supports` would be shorter, but needs a table in the compiler's library, which not every linker brings. */
static int kl_cpu_found(void) {
    unsigned a, b, c, d, saved, high;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return KL_CPU_PORTABLE;
    if (!(c & (1u << 20)) || !(c & (1u << 1))) return KL_CPU_PORTABLE;
    if (!(c & (1u << 27)) || !(c & (1u << 28))) return KL_CPU_SSE42; /* OSXSAVE, so that XGETBV may be asked, and AVX */
    __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    if ((saved & 0x06) != 0x06 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & (1u << 5))) return KL_CPU_SSE42;
    const unsigned avx512f_vl = (1u << 16) | (1u << 31), vpclmulqdq = 1u << 10;
    return (saved & 0xE6) == 0xE6 && (b & avx512f_vl) == avx512f_vl && (c & vpclmulqdq) ? KL_CPU_AVX512 : KL_CPU_AVX2;
}

/* Whether the processor has VPCLMULQDQ, too: with AVX2, but for the oldest that have it. */
static int kl_cpu_multiplies_wide(void) {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c & (1u << 10));
}

#elif defined(__aarch64__) && defined(__GNUC__) && (defined(__linux__) || defined(__APPLE__))
#if defined(__linux__)
#include <sys/auxv.h>
#endif
#define KL_CPU_ARMV8 1 /* with the CRC32 instructions */
static const char* const kl_cpu_names[] = {"portable", "armv8"};

static int kl_cpu_found(void) {
#if defined(__linux__)
    return getauxval(AT_HWCAP) & (1ul << 7) ? KL_CPU_ARMV8 : KL_CPU_PORTABLE; /* HWCAP_CRC32 */
#else
    return KL_CPU_ARMV8; /* every Apple processor of this kind has them */
#endif
}

#else
static const char* const kl_cpu_names[] = {"portable"};

static int kl_cpu_found(void) { return KL_CPU_PORTABLE; }
#endif

enum { KL_CPU_LEVELS = sizeof(kl_cpu_names) / sizeof(kl_cpu_names[0]) };
static int kl_cpu_level;

/* The level that KAFKALOG_CPU names; the highest where it is unset or empty, -1 where it names none of this architecture. */
static int kl_cpu_ceiling(void) {
    const char* wished = getenv(KL_CPU_VARIABLE);
    if (wished == NULL || !*wished) return KL_CPU_LEVELS - 1;
    for (int level = 0; level < KL_CPU_LEVELS; level++)
        if (!strcmp(wished, kl_cpu_names[level])) return level;
    return -1;
}

__attribute__((constructor)) static void kl_cpu_choose(void) {
    const int found = kl_cpu_found(), ceiling = kl_cpu_ceiling();
    kl_cpu_level = ceiling >= 0 && ceiling < found ? ceiling : found;
}

#endif
