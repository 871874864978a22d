"""All producers of a log: an append is staged against them first, and takes effect when it has been written.

`Producers.stage` walks the rows of an append and says what they would change, or which rule they break;
`Producers.apply` makes it so. Nothing is half done: a refused append, or one that could not be written, leaves no
trace (PSM-32). Messages are worded above this layer.
"""
from collections import OrderedDict

cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalog._core.batch.check cimport BatchRow, place_of
from kafkalog._core.batch.layout cimport CONTROL_BIT, TRANSACTIONAL_BIT
from kafkalog._core.batch.marker cimport ABORT, COMMIT, UNREADABLE, read_marker
from kafkalog._core.batch.scan cimport BatchTable
from kafkalog._core.bytes.wrap cimport added, subtracted
from kafkalog._core.log.producer_state cimport WINDOW, ProducerState
from kafkalog._core.log.staged cimport CompletedTxn, Staged
from kafkalog._core.log.trace cimport TXN_BEGINS, ProducerTrace, Traced, TxnStep

cdef enum Fault:
    NO_FAULT = 0
    BAD_EPOCH
    BAD_SEQUENCE
    NO_TRANSACTION
    TRANSACTION_OPEN
    BAD_COORDINATOR
    BAD_MARKER
    BAD_VERIFIED_SEQUENCE
    IS_DUPLICATE

ORIGIN_CLIENT = CLIENT
ORIGIN_COORDINATOR = COORDINATOR
ORIGIN_REPLICATION = REPLICATION

FAULT_EPOCH = BAD_EPOCH
FAULT_SEQUENCE = BAD_SEQUENCE
FAULT_NO_TRANSACTION = NO_TRANSACTION
FAULT_TRANSACTION_OPEN = TRANSACTION_OPEN
FAULT_COORDINATOR = BAD_COORDINATOR
FAULT_MARKER = BAD_MARKER
FAULT_VERIFIED_SEQUENCE = BAD_VERIFIED_SEQUENCE
DUPLICATE = IS_DUPLICATE


@cython.final
cdef class Producers:
    """The producers of one log by id, the transactions that are open, and those whose markers are not replicated yet.

    Threads: belongs to the lock of the log that owns it.
    """
    def __init__(self):
        self.verified = {}
        self.must_verify = False
        self.entries = {}
        self.ongoing = OrderedDict()
        self.unreplicated = {}

    def __len__(self):
        return len(self.entries)

    def __iter__(self):
        return iter(self.entries.values())

    def __contains__(self, producer_id):
        return producer_id in self.entries

    def get(self, producer_id: int) -> ProducerState | None:
        """Return the state of a producer, or None."""
        return self.entries.get(producer_id)

    def clear(self) -> None:
        """Forgets everything."""
        self.entries.clear()
        self.verified.clear()
        self.ongoing.clear()
        self.unreplicated.clear()

    def load(self, states) -> None:
        """Adds the producers of a snapshot."""
        cdef ProducerState s
        for s in states:
            self.entries[s.producer_id] = s
            if s.current_txn_first_offset >= 0:
                self.ongoing[s.current_txn_first_offset] = s.producer_id
        self.ongoing = OrderedDict(sorted(self.ongoing.items()))

    def remove_expired(self, oldest_ms: int) -> list:
        """Forgets those last heard of at or before `oldest_ms` that have no transaction open (PSM-15); their ids."""
        cdef ProducerState s
        cdef int64_t oldest = oldest_ms
        gone = []
        for s in self.entries.values():
            if s.current_txn_first_offset < 0 and s.last_timestamp <= oldest:
                gone.append(s.producer_id)
        for producer_id in gone:
            del self.entries[producer_id]
        return gone

    # Appends

    def stage(
        self, BatchTable table not None, Py_ssize_t first, Py_ssize_t last, buffer, int64_t base_position=0,
        int origin=REPLICATION, bint epoch_bumps=False, guard=None,
    ) -> Staged | None:
        """Return the changes that rows `first` up to `last` of `table`, scanned from `buffer`, would make, or None.

        `epoch_bumps`: markers carry a bumped epoch (transaction version 2). `guard`: of the question about the
        transaction that begins. What `verified` has for a producer is (guard, lowest sequence, knows epoch bumps).
        """
        cdef Staged staged = None
        cdef Py_ssize_t i
        cdef BatchRow* row
        if first < 0 or last > table.count or first > last:
            raise IndexError(f"rows {first} to {last} of a table of {table.count}")
        for i in range(first, last):
            row = &table.rows[i]
            if row.producer_id < 0 or row.magic < 2:
                continue
            if staged is None:
                staged = Staged.__new__(Staged)
                staged.is_plain = True
                staged.row = -1
            if row.attributes & CONTROL_BIT:
                staged.fault = self.stage_marker(staged, row, buffer, base_position, origin, epoch_bumps)
            else:
                staged.fault = self.stage_data(staged, row, origin, guard)
            if staged.fault:
                staged.row = i
                staged.known = self.entries.get(row.producer_id)
                break
        if staged is not None:
            staged.end_offset = added(table.rows[last - 1].last_offset, 1)
        return staged

    def stage_simple(self, BatchTable table not None) -> Staged | None:
        """Stage a client's append in the usual case: one sound batch, and no transaction in the log.

        None where it is not: `stage` then says what it is, or which rule it breaks.
        """
        return self.stage_row(&table.rows[0]) if table.count == 1 else None

    cdef Staged stage_row(self, BatchRow* row):
        """`stage_simple` of the batch that `row` describes."""
        cdef Staged staged
        cdef ProducerState s = self.following(row)
        if s is None:
            return None
        staged = Staged.__new__(Staged)
        staged.latest = s
        staged.row = -1
        staged.end_offset = added(row.last_offset, 1)
        staged.is_plain = True
        return staged

    cdef ProducerState following(self, BatchRow* row):
        """The state of a producer after the batch of `row`, which continues it; None where more is to be looked at.

        That is an open transaction of any producer, a marker, a duplicate, a gap, or a new producer.
        """
        cdef ProducerState s
        if self.ongoing or self.unreplicated or self.verified:
            return None
        if row.producer_id < 0 or row.magic < 2 or row.attributes & (CONTROL_BIT | TRANSACTIONAL_BIT):
            return None
        s = self.entries.get(row.producer_id)
        if s is None or row.producer_epoch < s.producer_epoch or s.find(row) >= 0:
            return None
        s = s.copy()
        if not s.continues(row.producer_epoch, row.base_sequence):
            return None
        s.add(row)
        return s

    cdef bint takes_plainly(self, Staged staged):
        """True where nothing of what was staged is refused or known, and no transaction is open or waits."""
        return staged.is_plain and not staged.fault and not (self.ongoing or self.unreplicated)

    cdef int take(self, ProducerState state) except -1:
        """Makes true what `following` gave, once its batch is in the log."""
        self.entries[state.producer_id] = state
        return 0

    cdef ProducerState staged_state(self, Staged staged, int64_t producer_id):
        """The copy of a producer's state that this append changes."""
        cdef ProducerState s = staged.latest
        cdef ProducerState known
        if s is not None and s.producer_id == producer_id:
            return s
        key = producer_id
        if s is not None:
            if staged.updated is None:
                staged.updated = {s.producer_id: s}
            known = staged.updated.get(key)
            if known is not None:
                staged.before = self.entries.get(key)
                staged.latest = known
                return known
        staged.before = known = self.entries.get(key)
        s = ProducerState(key) if known is None else known.copy()
        if staged.updated is not None:
            staged.updated[key] = s
        staged.latest = s
        return s

    cdef int stage_data(self, Staged staged, BatchRow* row, int origin, object guard) except -1:
        cdef ProducerState known
        cdef ProducerState s
        cdef int at
        cdef bint transactional = (row.attributes & TRANSACTIONAL_BIT) != 0
        asked = None
        s = self.staged_state(staged, row.producer_id)
        if origin == CLIENT:
            known = staged.before
            at = -1 if known is None else known.find(row)
            if at >= 0:
                staged.duplicate = (
                    subtracted(known.window[at].last_offset, known.window[at].offset_delta),
                    known.window[at].last_offset, known.window[at].timestamp,
                )
                return IS_DUPLICATE
        if origin != REPLICATION:
            asked = self.verified.get(row.producer_id) if self.verified else None
            if transactional and self.must_verify and (
                s.current_txn_first_offset < 0 or s.producer_epoch != row.producer_epoch
            ) and (asked is None or guard is None or asked[0] is not guard):
                return NO_TRANSACTION
            if row.producer_epoch < s.producer_epoch:
                return BAD_EPOCH
        if origin == CLIENT:
            if asked is not None and (
                row.base_sequence > <int32_t>asked[1] or (asked[2] and row.base_sequence != 0 and s.count == 0)
            ):
                return BAD_VERIFIED_SEQUENCE
            if not s.continues(row.producer_epoch, row.base_sequence):
                return BAD_SEQUENCE
        if s.current_txn_first_offset >= 0 and not transactional and origin != REPLICATION:
            return TRANSACTION_OPEN
        s.add(row)
        if origin == CLIENT:
            s.was_unknown = False       # each batch of a client counts as an append of its own
        if transactional and s.current_txn_first_offset < 0:
            s.current_txn_first_offset = row.base_offset
            staged.happens((row.base_offset, row.producer_id))
        return NO_FAULT

    cdef int stage_marker(
        self, Staged staged, BatchRow* row, object buffer, int64_t base_position, int origin, bint epoch_bumps
    ) except -1:
        cdef Py_buffer view
        cdef ProducerState s
        cdef int64_t at
        cdef int64_t timestamp = -1
        cdef int32_t coordinator_epoch = -1
        cdef int kind = UNREADABLE
        if row.count == 0:              # compaction removed the marker and kept the batch (PSM-12)
            return NO_FAULT
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        at = place_of(row, base_position, view.len)
        if at >= 0:
            kind = read_marker(<const uint8_t*>view.buf + at, row.size, row, &coordinator_epoch, &timestamp)
        PyBuffer_Release(&view)
        if kind > COMMIT:               # nothing a producer's state hangs on; refused where we are asked to write it
            return NO_FAULT if origin == REPLICATION else BAD_MARKER
        s = self.staged_state(staged, row.producer_id)
        if origin != REPLICATION:
            staged.coordinator_epoch = coordinator_epoch
            if row.producer_epoch < s.producer_epoch:
                return BAD_EPOCH
            if epoch_bumps and s.current_txn_first_offset >= 0 and row.producer_epoch == s.producer_epoch:
                return BAD_EPOCH
            if coordinator_epoch < s.coordinator_epoch:
                return BAD_COORDINATOR
        if s.current_txn_first_offset >= 0:
            staged.happens(CompletedTxn(row.producer_id, s.current_txn_first_offset, row.base_offset, kind == ABORT))
        s.take_epoch(row.producer_epoch)
        s.coordinator_epoch = coordinator_epoch
        s.last_timestamp = timestamp
        s.current_txn_first_offset = -1
        return NO_FAULT

    def take_over(self, ProducerTrace trace not None) -> list:
        """Makes true what the batches of a stretch of the log say: (CompletedTxn, last stable offset right after it).

        As `stage`, `completions` and `commit` of them one by one with nothing replicated yet. The stretch begins where
        what is known here ends.
        """
        cdef list states = []
        cdef list completed = []
        cdef ProducerState s
        cdef TxnStep* step
        cdef CompletedTxn txn
        cdef int64_t stable
        cdef Py_ssize_t i
        for i in range(trace.ids.count):
            key = trace.all[i].producer_id
            s = self.entries.get(key)
            states.append(ProducerState(key) if s is None else s.copy())
        for i in range(trace.step_count):
            step = &trace.steps[i]
            s = states[step.producer]
            if step.step == TXN_BEGINS:
                if s.current_txn_first_offset < 0:
                    s.current_txn_first_offset = step.offset
                    self.ongoing[step.offset] = s.producer_id
            elif s.current_txn_first_offset >= 0:
                txn = CompletedTxn(s.producer_id, s.current_txn_first_offset, step.offset, step.step == ABORT)
                stable = step.offset + 1
                for first_offset, producer_id in self.ongoing.items():
                    if producer_id != txn.producer_id:
                        stable = first_offset
                        break
                self.ongoing.pop(txn.first_offset, None)
                self.unreplicated[txn.first_offset] = txn.last_offset
                s.current_txn_first_offset = -1
                completed.append((txn, stable))
        for i in range(trace.ids.count):
            s = states[i]
            take_traced(s, &trace.all[i])
            self.entries[s.producer_id] = s
        return completed

    def apply(self, Staged staged not None) -> None:
        """Makes what was staged true; transactions that ended are completed one by one with `complete`."""
        if staged.fault:
            raise ValueError(f"{staged!r} was refused")
        if staged.updated is not None:
            self.entries.update(staged.updated)
        elif staged.latest is not None:
            self.entries[staged.latest.producer_id] = staged.latest
        if staged.events is not None:
            for event in staged.events:
                if type(event) is tuple:
                    self.ongoing[event[0]] = event[1]

    def commit(self, Staged staged not None, high_watermark: int) -> None:
        """Makes what was staged true, the ends of transactions too, with markers below `high_watermark` replicated.

        A second time it does nothing: who was interrupted behind it may call it again.
        """
        if not staged.applied:
            self.apply(staged)
            if staged.events is not None:
                for event in staged.events:
                    if type(event) is CompletedTxn:
                        self.complete(event)
            staged.applied = True
        if self.unreplicated:
            self.replicated_to(high_watermark)

    def completions(self, Staged staged not None) -> list:
        """(CompletedTxn, last stable offset right after it) of what was staged, before it is applied (PSM-9).

        That offset is where the next open transaction of another producer begins, or comes after the marker.
        """
        cdef CompletedTxn txn
        found = []
        if staged.is_plain:
            return found
        open_ones = OrderedDict(self.ongoing)
        for event in staged.events:
            if type(event) is tuple:
                open_ones[event[0]] = event[1]
                continue
            txn = event
            stable = txn.last_offset + 1
            for first_offset, producer_id in open_ones.items():
                if producer_id != txn.producer_id:
                    stable = first_offset
                    break
            open_ones.pop(txn.first_offset, None)
            found.append((txn, stable))
        return found

    def first_unstable_after(self, Staged staged not None, high_watermark: int) -> int:
        """Return the `first_unstable_offset` after `commit` with this high watermark."""
        cdef int64_t first = -1
        ended = {txn.first_offset: txn.last_offset for txn in staged.completed}
        begun = [] if staged.events is None else [event[0] for event in staged.events if type(event) is tuple]
        for offset in (*self.ongoing, *begun):
            if offset not in ended:
                first = offset
                break
        for offset, last_offset in (*self.unreplicated.items(), *ended.items()):
            if last_offset >= high_watermark and (first < 0 or offset < first):
                first = offset
        return first

    def complete(self, CompletedTxn txn not None) -> None:
        """Ends a transaction; it stays unreplicated until the high watermark has passed its marker."""
        if self.ongoing.pop(txn.first_offset, None) is None:
            raise ValueError(f"{txn!r} was not open")
        self.unreplicated[txn.first_offset] = txn.last_offset

    def replicated_to(self, high_watermark: int) -> None:
        """Forgets the completed transactions whose markers lie below `high_watermark` (PSM-14)."""
        if not self.unreplicated:
            return
        for first_offset, last_offset in list(self.unreplicated.items()):
            if last_offset < high_watermark:
                del self.unreplicated[first_offset]

    @property
    def has_transactions(self) -> bool:
        """True while a transaction is open, or its marker not replicated."""
        return bool(self.ongoing or self.unreplicated)

    @property
    def first_unstable_offset(self) -> int:
        """The lowest first offset of a transaction that is open, or whose marker is not replicated; -1: none (PSM-13)."""
        cdef int64_t first = -1
        for offset in self.ongoing:
            first = offset
            break
        for offset in self.unreplicated:
            if first < 0 or offset < first:
                first = offset
        return first

    @property
    def open_transactions(self) -> dict:
        """First offset -> producer id of the transactions that are open, oldest first."""
        return dict(self.ongoing)

    def __repr__(self):
        return f"<Producers {len(self.entries)}, {len(self.ongoing)} transactions open>"


cdef void take_traced(ProducerState s, Traced* t) noexcept:
    """A producer's state, and its batches in a stretch of the log."""
    cdef int kept = 0 if t.was_reset or s.producer_epoch != t.first_epoch else min(s.count, WINDOW - t.count)
    cdef int i
    for i in range(kept):
        s.window[i] = s.window[s.count - kept + i]
    for i in range(t.count):
        s.window[kept + i] = t.window[i]
    s.count = kept + t.count
    s.producer_epoch = t.epoch
    s.last_timestamp = t.last_timestamp
    if t.has_marker:
        s.coordinator_epoch = t.coordinator_epoch
