"""A count and a sum that many threads add to."""
cimport cython
from libc.stdint cimport int64_t

from kafkalog._core.bytes.wrap cimport added


@cython.final
cdef class Counter:
    """Number and sum of the values given to `add`. Threads: any; each call is one step under the GIL."""

    cdef readonly int64_t count
    cdef readonly int64_t total

    def add(self, int64_t amount):
        """One more, of so much."""
        self.count += 1
        self.total = added(self.total, amount)

    def __repr__(self):
        return f"<Counter {self.count} calls, {self.total} in all>"
