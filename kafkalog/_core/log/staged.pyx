"""The changes that an append would make to its producers, and the transactions that end in it."""
cimport cython


@cython.final
cdef class CompletedTxn:
    """A transaction that a marker ended: its producer, its first offset, the marker's offset, and how it ended."""

    def __init__(self, producer_id: int, first_offset: int, last_offset: int, is_aborted: bool):
        self.producer_id = producer_id
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.is_aborted = is_aborted

    def __eq__(self, other):
        cdef CompletedTxn o
        if not isinstance(other, CompletedTxn):
            return NotImplemented
        o = other
        return (self.producer_id, self.first_offset, self.last_offset, self.is_aborted) == (
            o.producer_id, o.first_offset, o.last_offset, o.is_aborted
        )

    def __hash__(self):
        return hash((self.producer_id, self.first_offset, self.last_offset))

    def __repr__(self):
        how = "aborted" if self.is_aborted else "committed"
        return f"<CompletedTxn of {self.producer_id} from {self.first_offset} to {self.last_offset} {how}>"


@cython.final
cdef class Staged:
    """The changes of the batches of one append, or the rule that batch `row` breaks.

    `fault` is 0, one of the FAULT_ codes, or DUPLICATE, when `duplicate` is (first offset, last offset, timestamp) of
    the batch that was there before. `known` is the producer as it was when the fault was met, or None.
    """

    cdef int happens(self, event) except -1:
        """Notes the begin or the end of a transaction."""
        if self.events is None:
            self.events = []
            self.is_plain = False
        self.events.append(event)
        return 0

    @property
    def completed(self) -> list:
        """The transactions that end, as CompletedTxn in the order of their markers."""
        return [] if self.events is None else [event for event in self.events if type(event) is CompletedTxn]

    @property
    def producer_ids(self) -> list:
        """Ids of the producers of the append."""
        if self.updated is not None:
            return list(self.updated)
        return [] if self.latest is None else [self.latest.producer_id]

    def __repr__(self):
        return f"<Staged {len(self.producer_ids)} producers fault {self.fault} completed {self.completed}>"
