"""How much smaller a codec makes a stream of batches: an estimate that follows what was seen."""

from __future__ import annotations

from typing import Final

from kafkalog.records.format import BATCH_OVERHEAD_BYTES

__all__ = ["MARGIN", "RatioEstimate"]

MARGIN: Final = 1.05
"""What the reference multiplies its estimates with (REC-47)."""
_SMALLEST: Final = 1 / 64
_BETTER_STEP: Final = 0.25


class RatioEstimate:
    """The size that records have when they are compressed, as a part of their plain one; 1.0 before any was seen.

    A worse ratio counts at once, so that batches do not come out too large; a better one is believed step by step.
    """

    __slots__ = ("ratio",)

    def __init__(self) -> None:
        self.ratio = 1.0

    def observe(self, plain_bytes: int, packed_bytes: int) -> None:
        """Takes in a batch of `plain_bytes` that became `packed_bytes`, headers counted."""
        records = plain_bytes - BATCH_OVERHEAD_BYTES
        if records <= 0:
            return
        seen = max((packed_bytes - BATCH_OVERHEAD_BYTES) / records, _SMALLEST)
        self.ratio = seen if seen > self.ratio else self.ratio + (seen - self.ratio) * _BETTER_STEP

    def plain_limit(self, limit_bytes: int) -> int:
        """The plain size at which a batch is estimated to have `limit_bytes` when it is compressed (REC-47)."""
        records = max(limit_bytes - BATCH_OVERHEAD_BYTES, 0)
        return BATCH_OVERHEAD_BYTES + int(records / (self.ratio * MARGIN))
