"""The fields of a log that an append reads and changes, where compiled code reaches them."""
cimport cython

from kafkalog._core.log.slots cimport Slot, slot_get

cdef Slot CAUSE, RECORDS, SIZE
CAUSE.name, RECORDS.name, SIZE.name = b"cause", b"records", b"size"


cdef class LogFields:
    """Fields of a log that an append reads and changes; `storage.log_parts.core.LogCore` documents each."""

    # What a thread replaces while others read it: without the GIL the last reference could go in between.
    @property
    def state(self) -> LogState:
        with cython.critical_section(self):
            return self._state

    @state.setter
    def state(self, LogState state):
        self.set_state(state)

    @property
    def active(self):
        with cython.critical_section(self):
            return self._active

    @active.setter
    def active(self, segment):
        with cython.critical_section(self):
            self._active = segment

    cdef void set_state(self, LogState state) noexcept:
        with cython.critical_section(self):
            self._state = state

    cdef LeaderLimits current_limits(self):
        with cython.critical_section(self):
            return self.limits

    cdef bint is_ready(self) except -1:
        """True where the log takes writes, and no earlier one has left anything to be made good.

        TypeError before all is set that an append goes by.
        """
        if self.lock is None or self._state is None or self.rules is None or self.limits is None:
            raise TypeError("the fields of this log are not set")
        return (
            slot_get(self.health, &CAUSE) is None and self.staged is None
            and <int64_t>slot_get(slot_get(self._active, &RECORDS), &SIZE) == self._state.end_position
        )

    def ready_locked(self) -> LogState:
        """The state, when the log may be written; what an interrupted append left behind is cut off first."""
        return self._state if self.is_ready() else self.make_ready_locked()
