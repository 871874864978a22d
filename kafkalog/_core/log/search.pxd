"""Binary search over the sorted entries of an index file: no branch depends on the data, so no step is guessed wrong.

An entry kind and its size are constants in every call, so the compiler makes one loop for each. `n` bounds every read.
"""
from libc.stdint cimport int64_t, uint8_t, uint64_t

from kafkalog._core.bytes.endian cimport load32, load64
from kafkalog._core.bytes.prefetch cimport kl_prefetch

cdef extern from *:
    """
    #define KL_LANES 16
    static inline int64_t kl_minus(int64_t a, int64_t b) {
        int64_t r;
        return __builtin_sub_overflow(a, b, &r) ? (a < 0 ? INT64_MIN : INT64_MAX) : r;
    }
    """
    int64_t minus "kl_minus"(int64_t a, int64_t b) noexcept nogil    # at the ends of the range it stays there
    enum: LANES "KL_LANES"

cdef enum:
    OFFSET_ENTRY = 8                # i32 offset - base, i32 position
    TIME_ENTRY = 12                 # i64 timestamp, i32 offset - base
    WARM_BYTES = 8192               # the end of an index that nearly all look-ups of a live log fall into
    FAR = 65536                     # from so many bytes on, the next two places to look at are fetched ahead
    LOOKS = 3                       # guesses before a search by halves: even keys need one, uneven ones two or three
    BESIDE = 4                      # entries on each side of a guess that are looked at with it
    MOST_WRONG = 4                  # guesses of LANES: with more of them, keys do not grow evenly

cdef enum Key:
    BY_OFFSET = 0                   # offset entry: relative offset
    BY_POSITION = 1                 # offset entry: file position
    BY_TIME = 2                     # time entry: timestamp
    BY_TIME_OFFSET = 3              # time entry: relative offset


cdef inline int64_t key_at(const uint8_t* entries, Py_ssize_t i, Key key) noexcept nogil:
    if key == BY_OFFSET:
        return load32(entries + OFFSET_ENTRY * i)
    if key == BY_POSITION:
        return load32(entries + OFFSET_ENTRY * i + 4)
    if key == BY_TIME:
        return load64(entries + TIME_ENTRY * i)
    return load32(entries + TIME_ENTRY * i + 8)


cdef inline Py_ssize_t entry_size(Key key) noexcept nogil:
    return OFFSET_ENTRY if key == BY_OFFSET or key == BY_POSITION else TIME_ENTRY


cdef inline Py_ssize_t count_at_most(const uint8_t* entries, Py_ssize_t n, int64_t target, Key key) noexcept nogil:
    """Return the number of n sorted entries with a key <= target."""
    cdef Py_ssize_t low = 0
    cdef Py_ssize_t half
    while n * entry_size(key) > FAR:
        half = n >> 1
        kl_prefetch(entries + entry_size(key) * (low + (half >> 1)))
        kl_prefetch(entries + entry_size(key) * (low + half + (half >> 1)))
        low += half & -<Py_ssize_t>(key_at(entries, low + half - 1, key) <= target)
        n -= half
    while n > 1:
        half = n >> 1
        low += half & -<Py_ssize_t>(key_at(entries, low + half - 1, key) <= target)
        n -= half
    return low + (1 if n == 1 and key_at(entries, low, key) <= target else 0)


cdef inline double entries_apart(int64_t a, int64_t b, double rate) noexcept nogil:
    """Return the number of entries between the keys a and b at `rate` entries a step; negative where b is lower."""
    return rate * <double>(<uint64_t>b - <uint64_t>a) if b >= a else -rate * <double>(<uint64_t>a - <uint64_t>b)


cdef inline Py_ssize_t count_at_most_far(const uint8_t* entries, Py_ssize_t n, int64_t target, Key key) noexcept nogil:
    """Find the same as `count_at_most` in many entries, few of them in the processor's cache: each access waits for memory.

    Keys grow about evenly, so the place of the target is estimated from the first and the last key, and again from the
    key found there. An estimate counts if the keys on both sides confirm it. The range that LOOKS estimates leave is
    searched by halves.
    """
    cdef Py_ssize_t low = 0
    cdef Py_ssize_t high = n
    cdef Py_ssize_t at, first, end
    cdef int64_t found = key_at(entries, 0, key)
    cdef int64_t last
    cdef double rate, step
    cdef int look
    if n * entry_size(key) <= FAR:
        return count_at_most(entries, n, target, key)
    last = key_at(entries, n - 1, key)
    if target < found or target >= last:
        return 0 if target < found else n
    rate = <double>(n - 1) / <double>(<uint64_t>last - <uint64_t>found)
    at = 0
    for look in range(LOOKS):
        step = entries_apart(found, target, rate)
        if step > n - 1 - at:
            at = n - 1
        else:
            at = 0 if step < -at else at + <Py_ssize_t>step
        first, end = max(at - BESIDE, <Py_ssize_t>0), min(at + BESIDE, n - 1)
        if key_at(entries, first, key) > target:
            high = min(high, first)
        elif key_at(entries, end, key) <= target:
            low = max(low, end + 1)
        else:
            return first + count_at_most(entries + entry_size(key) * first, end - first, target, key)
        found = key_at(entries, at, key)
    return low + count_at_most(entries + entry_size(key) * low, high - low, target, key) if low < high else high


cdef inline Py_ssize_t count_at_most_warm(
    const uint8_t* entries, Py_ssize_t n, int64_t target, Key key
) noexcept nogil:
    """Find the same as `count_at_most`, trying the last 8192 bytes first, which are in memory and in the processor's cache."""
    cdef Py_ssize_t cold = n - WARM_BYTES // entry_size(key)
    if cold <= 0:
        return count_at_most(entries, n, target, key)
    if key_at(entries, cold, key) <= target:
        return cold + count_at_most(entries + entry_size(key) * cold, n - cold, target, key)
    return count_at_most_far(entries, cold, target, key)


cdef inline bint guess_lanes(
    const uint8_t* entries, Py_ssize_t n, const int64_t* targets, Key key, Py_ssize_t* found
) noexcept nogil:
    """Find the same as `count_at_most` for LANES targets in many entries, if keys grow evenly; False if they do not.

    A guess counts if the keys at both ends of the entries around it confirm it; a target without one is searched alone.
    """
    cdef Py_ssize_t at
    cdef int64_t least = key_at(entries, 0, key)
    cdef int64_t most = key_at(entries, n - 1, key)
    cdef int lane
    cdef int wrong = 0
    if most <= least:
        return False
    cdef double rate = <double>(n - 1) / <double>(<uint64_t>most - <uint64_t>least)
    for lane in range(LANES):
        at = n
        if targets[lane] < most:
            at = 0 if targets[lane] < least else <Py_ssize_t>entries_apart(least, targets[lane], rate)
        at = max(min(at, n - BESIDE) - BESIDE, <Py_ssize_t>0)
        found[lane] = at
        kl_prefetch(entries + entry_size(key) * at)
        kl_prefetch(entries + entry_size(key) * (at + 2 * BESIDE) - 1)
    for lane in range(LANES):
        at = found[lane]
        if (at == 0 or key_at(entries, at, key) <= targets[lane]) and (
            at + 2 * BESIDE >= n or key_at(entries, at + 2 * BESIDE - 1, key) > targets[lane]
        ):
            found[lane] = at + count_at_most(entries + entry_size(key) * at, 2 * BESIDE, targets[lane], key)
            continue
        wrong += 1
        if wrong > MOST_WRONG:
            return False
        found[lane] = count_at_most_far(entries, n, targets[lane], key)
    return True


cdef inline void count_at_most_lanes(
    const uint8_t* entries, Py_ssize_t n, const int64_t* targets, int64_t base, Key key, Py_ssize_t* found, bint* is_even
) noexcept nogil:
    """Find the same as `count_at_most` for LANES targets (minus base) at once: their waits for memory overlap.

    is_even: True before the first ones; False once the keys turn out not to grow evenly, and guesses do not pay.
    """
    cdef int64_t relative[LANES]
    cdef Py_ssize_t half
    cdef int lane
    for lane in range(LANES):
        relative[lane] = minus(targets[lane], base)
    if n * entry_size(key) > FAR and is_even[0]:
        is_even[0] = guess_lanes(entries, n, relative, key, found)
        if is_even[0]:
            return
    for lane in range(LANES):
        found[lane] = 0
    while n > 1:
        half = n >> 1
        for lane in range(LANES):
            found[lane] += half & -<Py_ssize_t>(key_at(entries, found[lane] + half - 1, key) <= relative[lane])
        n -= half
    if n == 1:
        for lane in range(LANES):
            found[lane] += <Py_ssize_t>(key_at(entries, found[lane], key) <= relative[lane])
