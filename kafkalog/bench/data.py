"""Records that benchmarks write: the same for the same seed, and compressible to half their size."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kafkalog.bench.settings import Settings

FIRST_TIMESTAMP: Final = 1_767_225_600_000
"""Time of the first record in ms: the start of 2026. Each record is a millisecond later than the one before."""
_POOL_BYTES: Final = 1 << 20
_PIECE: Final = 100
Written = tuple[bytes, bytes, int]


class Data:
    """Records by number: `(key, value, timestamp)`. A codec halves the values, regardless of their size.

    Values are slices of a pool, as in db_bench: pieces of 100 bytes, whose second half repeats the first.
    Threads: immutable.
    """

    def __init__(self, settings: Settings) -> None:
        self._key_size, self._value_size = settings.key_size, settings.value_size
        size = max(_POOL_BYTES, 2 * settings.value_size)
        random = Random(settings.seed)
        half = _PIECE // 2
        self._pool = b"".join(random.randbytes(half) * 2 for _ in range(-(-size // _PIECE)))
        self._places = len(self._pool) - settings.value_size + 1

    def records(self, first: int, stop: int, *, keys: int | None = None) -> list[Written]:
        """Return the records with these numbers; `keys` limits the number of different keys, which repeat."""
        pool, size, places = self._pool, self._value_size, self._places
        made = []
        for n in range(first, stop):
            at = n * size % places
            made.append((self.key(n if keys is None else n % keys), pool[at : at + size], FIRST_TIMESTAMP + n))
        return made

    def key(self, number: int) -> bytes:
        """Return the key of a record: the last digits of its number, as many as a key has bytes."""
        return b"%0*d" % (self._key_size, number % 10**self._key_size)
