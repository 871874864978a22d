"""Transactions that damage leaves undecided, because it may hide their markers."""

from __future__ import annotations

from typing import NamedTuple

from kafkalog._core.log.txns import TxnScan
from kafkalog.errors import CorruptRecord
from kafkalog.records.format import CONTROL_BIT
from kafkalog.storage.damage import HINT, MisplacedBatch


class HiddenEnd(CorruptRecord):
    """Damage that may hide the end of the transaction from `first_offset` on: a committed read ends at that offset."""

    first_offset = -1


class Undecided(NamedTuple):
    """A producer's records with offsets [first_offset, end_offset); `damage` may hide the end of their transaction."""

    producer_id: int
    first_offset: int
    end_offset: int
    damage: CorruptRecord

    def holds(self, producer_id: int, first_offset: int) -> bool:
        """Return True for a transaction of the producer that begins among these records."""
        return producer_id == self.producer_id and self.first_offset <= first_offset < self.end_offset

    def error(self) -> HiddenEnd:
        """Return the error for a reader of committed records that reaches them."""
        damage = self.damage
        error = HiddenEnd(
            f"{damage.message}; the transaction of producer {self.producer_id} from offset {self.first_offset} on may "
            "end there", path=damage.path, offset=damage.offset, position=damage.position, hint=HINT,
        )  # fmt: skip
        error.first_offset = self.first_offset
        return error


class ScanDamage:
    """Damage found by a scan: undecided transactions, and the producers with a marker before each damage."""

    __slots__ = ("places", "undecided")

    def __init__(self) -> None:
        self.places: list[tuple[CorruptRecord, frozenset[int]]] = []
        self.undecided: list[Undecided] = []

    def note(self, error: CorruptRecord, scan: TxnScan, header: bytes) -> None:
        """Record damage behind the data scanned so far; `header` is that of a batch at wrong offsets.

        A marker too early in the file may end a transaction that begins behind it.
        """
        expected = error.offset or 0
        self.places.append((error, frozenset(scan.first_markers)))
        self.undecided += [Undecided(*one, expected, error) for one in scan.open.items()]
        if isinstance(error, MisplacedBatch) and header[16:17] == b"\2" and header[22] & CONTROL_BIT:
            producer_id = int.from_bytes(header[43:51], "big", signed=True)
            self.undecided.append(Undecided(producer_id, expected, error.last_offset, error))

    def before_marker(self, producer_id: int, first_offset: int) -> list[Undecided]:
        """Return the undecided records of a transaction that was open when the scan began."""
        for error, ended in self.places:
            if producer_id not in ended:
                return [Undecided(producer_id, first_offset, error.offset or 0, error)]
        return []
