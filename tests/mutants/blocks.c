/* Remembers which blocks of compiled code ran: gcc's -fsanitize-coverage=trace-pc calls this at the start of each. */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { BITS = 20, SLOTS = 1 << BITS };
static _Atomic uintptr_t ran[SLOTS];

void __sanitizer_cov_trace_pc(void) {
    uintptr_t place = (uintptr_t)__builtin_return_address(0);
    for (size_t at = (place * 0x9E3779B97F4A7C15u) >> (64 - BITS);; at = (at + 1) & (SLOTS - 1)) {
        uintptr_t found = atomic_load_explicit(&ran[at], memory_order_relaxed);
        if (found == place || (found == 0 && atomic_compare_exchange_strong(&ran[at], &found, place)) || found == place)
            return;
    }
}

/* Copies the addresses that ran since the last call, and returns how many there are. */
size_t take_blocks(uintptr_t *places) {
    size_t count = 0;
    for (size_t at = 0; at < SLOTS; at++)
        if (atomic_load_explicit(&ran[at], memory_order_relaxed) != 0)
            places[count++] = atomic_exchange(&ran[at], 0);
    return count;
}
