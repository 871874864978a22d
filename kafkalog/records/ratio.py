"""RatioEstimate: a codec's compression ratio, estimated from the batches seen."""

from __future__ import annotations

from typing import Final

from kafkalog.records.format import BATCH_OVERHEAD_BYTES

MARGIN: Final = 1.05
"""Factor that the reference applies to its estimates (REC-47)."""
_SMALLEST: Final = 1 / 64
_BETTER_STEP: Final = 0.25


class RatioEstimate:
    """Estimated compressed size of records as a fraction of their uncompressed size; 1.0 before the first batch.

    A worse ratio applies at once, so that batches do not become too large; a better one is approached in steps.
    """

    __slots__ = ("ratio",)

    def __init__(self) -> None:
        self.ratio = 1.0

    def observe(self, plain_bytes: int, packed_bytes: int) -> None:
        """Update the estimate with a batch of `plain_bytes` that became `packed_bytes`, headers included."""
        records = plain_bytes - BATCH_OVERHEAD_BYTES
        if records <= 0:
            return
        seen = max((packed_bytes - BATCH_OVERHEAD_BYTES) / records, _SMALLEST)
        self.ratio = seen if seen > self.ratio else self.ratio + (seen - self.ratio) * _BETTER_STEP

    def plain_limit(self, limit_bytes: int) -> int:
        """Return the uncompressed size at which a batch is estimated to have `limit_bytes` compressed (REC-47)."""
        records = max(limit_bytes - BATCH_OVERHEAD_BYTES, 0)
        return BATCH_OVERHEAD_BYTES + int(records / (self.ratio * MARGIN))
