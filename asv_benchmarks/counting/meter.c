/* Requests to callgrind from the program that it watches: start to count, forget the count, write the count to a file.
 *
 * A request is an instruction sequence that does nothing on a processor and is known to valgrind (its public interface
 * to the programs that it runs), so off valgrind, and on other processors, each function does nothing and returns 0.
 */
#include <stdint.h>

enum { RUNNING_ON_VALGRIND = 0x1001, CALLGRIND = 'C' << 24 | 'T' << 16 };
enum { DUMP = CALLGRIND, ZERO, START = CALLGRIND + 4, STOP };

static uintptr_t request(uintptr_t what) {
    volatile uintptr_t words[6] = {what, 0, 0, 0, 0, 0};
    uintptr_t answer = 0;
#if defined(__x86_64__) && defined(__GNUC__)
    __asm__ volatile("rolq $3, %%rdi; rolq $13, %%rdi; rolq $61, %%rdi; rolq $51, %%rdi; xchgq %%rbx, %%rbx"
                     : "=d"(answer) : "a"(words), "0"(answer) : "cc", "memory");
#elif defined(__aarch64__) && defined(__GNUC__)
    register volatile uintptr_t *place __asm__("x4") = words;
    register uintptr_t result __asm__("x3") = 0;
    __asm__ volatile("ror x12, x12, #3; ror x12, x12, #13; ror x12, x12, #51; ror x12, x12, #61; orr x10, x10, x10"
                     : "+r"(result) : "r"(place) : "cc", "memory");
    answer = result;
#endif
    return answer;
}

int meter_watched(void) { return request(RUNNING_ON_VALGRIND) != 0; }
void meter_start(void) { request(START); }
void meter_stop(void) { request(STOP); }
void meter_zero(void) { request(ZERO); }
void meter_dump(void) { request(DUMP); }
