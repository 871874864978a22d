"""Memory of columns: counted, aligned, freed with its last reference, in any thread, without the GIL.

A few large pieces are kept for the next record batch, whose consumer has often just let go of the last one: to touch
new memory costs more than to decode into it.
"""
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from kafkalog._core.bytes.large_pages cimport kl_want_whole

cdef extern from *:
    """
    #include <stdint.h>
    #include <stdlib.h>
    enum { KL_LINE = 64, KL_STEP = 128 << 10, KL_SLOTS = 12, KL_MOST = 16 << 20 };
    static const int64_t kl_most_kept = 32 << 20;

    /* the pieces kept; who finds the lock taken goes without them, so that a fork at any moment does no harm */
    static struct { char taken; int count; int64_t bytes; void* data[KL_SLOTS]; int64_t size[KL_SLOTS]; } kl_kept;

    static int kl_lock(void) { return !__atomic_test_and_set(&kl_kept.taken, __ATOMIC_ACQUIRE); }
    static void kl_unlock(void) { __atomic_clear(&kl_kept.taken, __ATOMIC_RELEASE); }

    static void* kl_take(int64_t* size) {
        void* found = NULL;
        int i;
        if (*size > KL_MOST || !kl_lock()) return NULL;
        for (i = 0; i < kl_kept.count; i++)
            if (*size <= kl_kept.size[i] && kl_kept.size[i] <= *size + *size / 2) {
                found = kl_kept.data[i];
                *size = kl_kept.size[i];
                kl_kept.bytes -= *size;
                kl_kept.count--;
                kl_kept.data[i] = kl_kept.data[kl_kept.count];
                kl_kept.size[i] = kl_kept.size[kl_kept.count];
                break;
            }
        kl_unlock();
        return found;
    }

    static int kl_keep(void* data, int64_t size) {
        int kept = 0;
        if (size > KL_MOST || !kl_lock()) return 0;
        if (kl_kept.count < KL_SLOTS && kl_kept.bytes + size <= kl_most_kept) {
            kl_kept.data[kl_kept.count] = data;
            kl_kept.size[kl_kept.count++] = size;
            kl_kept.bytes += size;
            kept = 1;
        }
        kl_unlock();
        return kept;
    }

    static void* kl_allocate(int64_t* size) {
        void* data = NULL;
        if (*size < 1) *size = 1;  /* no buffer of a column is a null pointer */
        if (*size > INT64_MAX / 2) return NULL;
        if (*size >= KL_STEP) {  /* few different sizes, so that one fits the next */
            *size = (*size + KL_STEP - 1) / KL_STEP * KL_STEP;
            if ((data = kl_take(size)) != NULL) return data;
        }
        if (posix_memalign(&data, *size < KL_LARGE_PAGE ? KL_LINE : KL_LARGE_PAGE, (size_t)*size)) return NULL;
        kl_want_whole(data, (size_t)*size);
        return data;
    }

    static void kl_free(void* data, int64_t size) {
        if (size < KL_STEP || !kl_keep(data, size)) free(data);
    }

    #define kl_up(n) ((void)__atomic_add_fetch(n, 1, __ATOMIC_RELAXED))
    #define kl_down(n) __atomic_sub_fetch(n, 1, __ATOMIC_ACQ_REL)
    """
    void* kl_allocate(int64_t* size) noexcept nogil
    void kl_free(void* data, int64_t size) noexcept nogil
    void kl_up(int64_t* n) noexcept nogil
    int64_t kl_down(int64_t* n) noexcept nogil
    int64_t kl_kept_bytes "kl_kept.bytes"
    const int64_t kl_most_kept


cdef Memory* new_memory(int64_t capacity) noexcept nogil:
    """At least `capacity` bytes and at least one, held once; NULL where there are none."""
    cdef Memory* m = <Memory*>malloc(sizeof(Memory))
    if m == NULL:
        return NULL
    m.data = <uint8_t*>kl_allocate(&capacity)
    if m.data == NULL:
        free(m)
        return NULL
    m.refs = 1
    m.capacity = capacity
    return m


cdef Memory* hold_memory(Memory* m) noexcept nogil:
    if m != NULL:
        kl_up(&m.refs)
    return m


cdef void drop_memory(Memory* m) noexcept nogil:
    if m != NULL and kl_down(&m.refs) == 0:
        kl_free(m.data, m.capacity)
        free(m)


cdef Memory* grow_memory(Memory* m, int64_t used, int64_t capacity) noexcept nogil:
    """Grow memory that has one owner, keeping the first `used` bytes; NULL, with the old memory unchanged, on failure."""
    cdef Memory* more = new_memory(capacity)
    if more != NULL and m != NULL:
        memcpy(more.data, m.data, <size_t>used)
        drop_memory(m)
    return more


def kept_bytes() -> int:
    """Bytes that wait for the next record batch, at most MOST_KEPT_BYTES."""
    return kl_kept_bytes


MOST_KEPT_BYTES = kl_most_kept
