"""A count and a sum that many threads add to."""
cimport cython
from libc.stdint cimport int64_t

from kafkalog._core.bytes.wrap cimport added


@cython.final
cdef class Counter:
    """Number and sum of the values given to `add`. Threads: any; each call is one step."""

    cdef int64_t calls
    cdef int64_t total_amount

    def add(self, int64_t amount):
        """One more, of so much."""
        with cython.critical_section(self):
            self.calls += 1
            self.total_amount = added(self.total_amount, amount)

    @property
    def count(self) -> int:
        with cython.critical_section(self):
            return self.calls

    @property
    def total(self) -> int:
        with cython.critical_section(self):
            return self.total_amount

    def __repr__(self):
        return f"<Counter {self.count} calls, {self.total} in all>"
