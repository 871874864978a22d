"""Statistics that need the records: sizes of keys and values, and the spread of records over keys."""

from __future__ import annotations

import secrets
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog._core.batch.decode import RecordTable, decode
from kafkalog._core.batch.scan import BatchTable
from kafkalog._core.log.txns import visible_rows
from kafkalog.errors import KafkalogError
from kafkalog.inspect.histogram import Histogram
from kafkalog.records.plain_runs import PlainRun, plain_runs

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Ints = NDArray[numpy.int64]
    Octets = NDArray[numpy.uint8]
    Hashes = NDArray[numpy.uint64]

DETAIL_BYTES: Final = 32 << 20
"""Bytes of batches whose records are decoded; of a larger sample only every n-th chunk is."""
_MAX_DECODED: Final = 128 << 20
"""Decompressed bytes after which decoding stops; the compressed size of a log predicts them poorly."""
_TOP_KEYS: Final = 20
_POINTS: Final = 100
_LONG_KEY: Final = 4096
"""Longer keys are hashed one by one and displayed up to this length."""


class KeyCount(NamedTuple):
    """A key (None for records without one), its records, and their bytes."""

    key: bytes | None
    records: int
    bytes: int


class KeySpread(NamedTuple):
    """Spread of the decoded records over keys.

    `top` holds the keys with most records; if no record has a key, None is the only entry. `curve` is the share of
    records that the most frequent keys have, from 1 key to all of them: (share of keys, share of records). `is_whole`
    is True if all records of the log were decoded; otherwise there may be more keys.
    """

    records: int
    null_records: int
    distinct: int
    top: tuple[KeyCount, ...]
    curve: tuple[tuple[float, float], ...]
    is_whole: bool

    def share_of_top(self, keys: int) -> float:
        """Return the share of keyed records that the `keys` most frequent keys have, at most as many as `top` holds."""
        keyed = self.records - self.null_records
        return sum(one.records for one in self.top[:keys]) / keyed if keyed else 0.0


class DetailTally:
    """Sizes of keys and values, and keys identified by a 64-bit hash with a secret of this process.

    All work is done on arrays; a record costs no Python object. Only the thread that adds may use it.
    """

    def __init__(self, *, keys: bool) -> None:
        self.key_sizes = Histogram()
        self.value_sizes = Histogram()
        self.records = 0
        self.null_keys = 0
        self.tombstones = 0
        self.null_bytes = 0
        self.decoded_bytes = 0
        self.problems: list[str] = []
        self._keys = keys
        self._secret = secrets.randbits(64) | 1
        self._hashes: list[Hashes] = []
        self._sizes: list[Ints] = []
        self._texts: list[tuple[Hashes, Ints, bytes]] = []  # hashes of new keys, where they end, the keys

    @property
    def is_full(self) -> bool:
        """True when no more records are to be decoded."""
        return self.decoded_bytes >= _MAX_DECODED

    def add(self, data: bytes, table: BatchTable, path: str) -> None:
        """Decode the records of a chunk, without markers; damage ends the decoding and is noted."""
        start = table.position(0)
        try:
            for run in plain_runs(data, visible_rows(table, 0, len(table)), base_position=start):
                place = run.base_position
                records = decode(run.data, run.table, run.first, run.last, base_position=place, ordered=True)
                run.record_damage(records)
                if len(records):
                    self._add_records(run, records)
                run.raise_failure(path)
                if self.is_full:
                    return
        except KafkalogError as error:
            self.problems.append(str(error))

    def _add_records(self, run: PlainRun, records: RecordTable) -> None:
        from kafkalog.records.arrays import numpy

        key_sizes = numpy.asarray(records.key_sizes).astype(numpy.int64)
        value_sizes = numpy.asarray(records.value_sizes).astype(numpy.int64)
        sizes = numpy.asarray(records.record_sizes).astype(numpy.int64)
        self.key_sizes.add(key_sizes)
        self.value_sizes.add(value_sizes)
        self.records += len(key_sizes)
        self.null_keys += int((key_sizes < 0).sum())
        self.null_bytes += int(sizes[key_sizes < 0].sum())
        self.tombstones += int((value_sizes < 0).sum())
        self.decoded_bytes += len(memoryview(run.data))
        if self._keys:
            positions = numpy.asarray(records.key_positions).astype(numpy.int64)
            keyed = key_sizes >= 0
            raw = numpy.frombuffer(memoryview(run.data), numpy.uint8)
            self._add_keys(raw, positions[keyed], key_sizes[keyed], sizes[keyed])

    def _add_keys(self, raw: Octets, positions: Ints, lengths: Ints, sizes: Ints) -> None:
        """Hash keys, all of one length at a time, and store the text of each distinct one."""
        from kafkalog.records.arrays import numpy

        for length in numpy.unique(lengths).tolist():
            chosen = lengths == length
            kept = min(length, _LONG_KEY)
            keys = raw[positions[chosen, None] + numpy.arange(kept)]
            hashes = self._hash_keys(keys)
            if length > kept:
                hashes = self._hash_long_keys(raw, positions[chosen].tolist(), length)
            distinct_hashes, first = numpy.unique(hashes, return_index=True)
            self._texts.append((distinct_hashes, numpy.arange(1, len(first) + 1) * kept, keys[first].tobytes()))
            self._hashes.append(hashes)
            self._sizes.append(sizes[chosen])

    def _hash_long_keys(self, raw: Octets, positions: list[int], length: int) -> Hashes:
        from kafkalog.records.arrays import numpy

        secret = self._secret.to_bytes(8, "big")
        found = (blake2b(raw[at : at + length].data, digest_size=8, key=secret).digest() for at in positions)
        return numpy.frombuffer(b"".join(found), numpy.uint64)

    def _hash_keys(self, keys: Octets) -> Hashes:
        """Return a hash for each row of a matrix of bytes."""
        from kafkalog.records.arrays import numpy

        count, length = keys.shape
        padded = numpy.zeros((count, -(-max(length, 1) // 8) * 8), numpy.uint8)
        padded[:, :length] = keys
        words = padded.view(numpy.uint64)
        factor = numpy.uint64(self._secret)
        hashes = numpy.full(count, (length + 1) * self._secret & (2**64 - 1), numpy.uint64)
        for word in words.T:
            hashes = (hashes ^ word) * factor
            hashes ^= hashes >> numpy.uint64(29)
        return hashes

    def spread(self, is_whole: bool) -> KeySpread:
        """Return the keys ordered by their number of records, largest first."""
        from kafkalog.records.arrays import numpy

        nulls = (KeyCount(None, self.null_keys, self.null_bytes),) if self.null_keys else ()
        if not self._hashes:
            return KeySpread(self.records, self.null_keys, 0, nulls, (), is_whole)
        hashes, first, index = numpy.unique(numpy.concatenate(self._hashes), return_index=True, return_inverse=True)
        counts = numpy.bincount(index)
        sizes = numpy.bincount(index, weights=numpy.concatenate(self._sizes))
        order = numpy.lexsort((first, -counts))  # of equal counts, the first seen
        best = order[:_TOP_KEYS]
        names = self._names(hashes[best])
        top = [KeyCount(name, int(counts[at]), int(sizes[at])) for name, at in zip(names, best.tolist(), strict=True)]
        curve = _curve(counts[order])
        return KeySpread(self.records, self.null_keys, len(hashes), tuple(top), curve, is_whole)

    def _names(self, wanted: Hashes) -> list[bytes]:
        """Return the keys with these hashes."""
        from kafkalog.records.arrays import numpy

        found: dict[int, bytes] = {}
        for hashes, ends, text in self._texts:
            for at in numpy.flatnonzero(numpy.isin(hashes, wanted)).tolist():
                start = int(ends[at - 1]) if at else 0
                found.setdefault(int(hashes[at]), text[start : int(ends[at])])
        return [found[one] for one in wanted.tolist()]


def _curve(counts: Ints) -> tuple[tuple[float, float], ...]:
    """Return points of the share of records by the share of keys; `counts` are in descending order."""
    from kafkalog.records.arrays import numpy

    sums = numpy.cumsum(counts)
    places = numpy.unique(numpy.linspace(0, len(counts) - 1, min(_POINTS, len(counts))).astype(numpy.int64))
    return tuple((float(at + 1) / len(counts), float(sums[at]) / float(sums[-1])) for at in places.tolist())
