"""State of a log at one moment, an immutable value: readers take it with one load, writers publish a new one."""
cimport cython

from kafkalog._core.bytes.wrap cimport subtracted
from kafkalog._core.log.plan cimport AppendPlan
from kafkalog._core.log.values cimport LogOffsetMetadata, offset_metadata

cdef int64_t LAST_OFFSET = 0x7FFFFFFFFFFFFFFF      # an end after it cannot be said


@cython.final
@cython.freelist(8)
cdef class LogState:
    """All offsets of a log and its segments at one moment; every constructor checks it.

    Always: 0 <= log start <= log end, high watermark <= log end, recovery point <= log end. (A high watermark that
    was resolved to the batch that holds it may lie below a log start inside that batch, LOG-29.) `segments` is the
    owner's immutable segment map; this class does not look into it. What was appended is counted here, where it costs
    nothing: a state and its successors have the counts, and two states that differ in them alone are equal.
    """

    def __init__(
        self,
        segments,
        *,
        log_start_offset: int,
        log_end_offset: int,
        end_base: int,
        end_position: int,
        high_watermark: int,
        high_watermark_base: int = -1,
        high_watermark_position: int = -1,
        recovery_point: int = 0,
        leader_epoch: int = -1,
        first_unstable_offset: int = -1,
    ):
        self.segments = segments
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.end_base = end_base
        self.end_position = end_position
        self.high_watermark = high_watermark
        self.high_watermark_base = high_watermark_base
        self.high_watermark_position = high_watermark_position
        self.recovery_point = recovery_point
        self.leader_epoch = leader_epoch
        self.first_unstable_offset = first_unstable_offset
        self.check()

    cdef int check(self) except -1:
        if self.log_start_offset < 0 or self.log_start_offset > self.log_end_offset:
            raise AssertionError(f"log start {self.log_start_offset} lies outside 0 ... {self.log_end_offset}")
        if self.high_watermark < 0 or self.high_watermark > self.log_end_offset:
            raise AssertionError(f"high watermark {self.high_watermark} lies outside 0 ... {self.log_end_offset}")
        if self.recovery_point < 0 or self.recovery_point > self.log_end_offset:
            raise AssertionError(f"recovery point {self.recovery_point} lies outside 0 ... {self.log_end_offset}")
        return 0

    cdef LogState copy(self):
        cdef LogState s = LogState.__new__(LogState)
        s.segments = self.segments
        s.log_start_offset = self.log_start_offset
        s.log_end_offset = self.log_end_offset
        s.end_base = self.end_base
        s.end_position = self.end_position
        s.high_watermark = self.high_watermark
        s.high_watermark_base = self.high_watermark_base
        s.high_watermark_position = self.high_watermark_position
        s.recovery_point = self.recovery_point
        s.leader_epoch = self.leader_epoch
        s.first_unstable_offset = self.first_unstable_offset
        s.appends = self.appends
        s.appended_batches = self.appended_batches
        s.appended_bytes = self.appended_bytes
        s.appended_offsets = self.appended_offsets
        return s

    @property
    def end_metadata(self) -> LogOffsetMetadata:
        """The log end with its place: active segment and bytes in it."""
        return offset_metadata(self.log_end_offset, self.end_base, self.end_position)

    @property
    def high_watermark_metadata(self) -> LogOffsetMetadata:
        """The high watermark with its place, or the offset only where no read has resolved it yet (LOG-29)."""
        return offset_metadata(self.high_watermark, self.high_watermark_base, self.high_watermark_position)

    @property
    def last_stable_offset(self) -> int:
        """The first unstable offset when it lies below the high watermark, else the high watermark (LOG-30)."""
        if 0 <= self.first_unstable_offset < self.high_watermark:
            return self.first_unstable_offset
        return self.high_watermark

    def appended(self, AppendPlan plan not None, bint high_watermark_follows) -> LogState:
        """Return the state after the write that `plan` describes; with `high_watermark_follows` that rises to the end."""
        if plan.tail is None:
            raise AssertionError(f"{plan!r} writes nothing")
        return self.written(
            plan.stop_row - plan.start_row, subtracted(plan.stop_byte, plan.start_byte), plan.first_offset,
            plan.last_offset, plan.last_leader_epoch, plan.tail.size, high_watermark_follows,
        )

    cdef LogState written(
        self, int64_t batches, int64_t size, int64_t first_offset, int64_t last_offset, int32_t leader_epoch,
        int64_t end_position, bint high_watermark_follows,
    ):
        """This state after an append of `size` bytes with those offsets, up to `end_position` of the active segment."""
        cdef LogState s = self.copy()
        if last_offset < self.log_end_offset or last_offset == LAST_OFFSET:
            raise AssertionError(f"an append that ends at {last_offset} lies below the log end {self.log_end_offset}")
        s.appends += 1
        s.appended_batches += batches
        s.appended_bytes += size
        # a follower's batch may begin behind the end: the gap holds no records
        s.appended_offsets += last_offset + 1 - max(first_offset, self.log_end_offset)
        s.log_end_offset = last_offset + 1
        s.end_position = end_position
        if leader_epoch > s.leader_epoch:
            s.leader_epoch = leader_epoch
        if high_watermark_follows:
            s.high_watermark = s.log_end_offset
            s.high_watermark_base = s.end_base
            s.high_watermark_position = s.end_position
        return s

    def replace(self, **changes) -> LogState:
        """This state with some attributes changed; the result is checked. TypeError for an unknown name."""
        cdef LogState s
        fields = {name: getattr(self, name) for name in _FIELDS}
        for name in changes:
            if name not in fields:
                raise TypeError(f"LogState has no attribute {name!r}")
        fields.update(changes)
        s = LogState(fields.pop("segments"), **fields)
        s.appends = self.appends
        s.appended_batches = self.appended_batches
        s.appended_bytes = self.appended_bytes
        s.appended_offsets = self.appended_offsets
        return s

    def __eq__(self, other):
        if not isinstance(other, LogState):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _FIELDS)

    def __hash__(self):
        return hash((self.log_start_offset, self.log_end_offset, self.end_base, self.end_position, self.high_watermark))

    def __repr__(self):
        return (
            f"<LogState [{self.log_start_offset}, {self.log_end_offset}) hw {self.high_watermark} "
            f"recovery {self.recovery_point} epoch {self.leader_epoch} end {self.end_base}+{self.end_position} B>"
        )


_FIELDS = (
    "segments", "log_start_offset", "log_end_offset", "end_base", "end_position", "high_watermark",
    "high_watermark_base", "high_watermark_position", "recovery_point", "leader_epoch", "first_unstable_offset",
)
