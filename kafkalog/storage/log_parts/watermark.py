"""Changes of a log's high watermark (LOG-27 to LOG-29)."""

from __future__ import annotations

from kafkalog.storage.log_parts.core import LogCore
from kafkalog.storage.log_state import high_watermark_incremented, high_watermark_resolved, high_watermark_updated
from kafkalog.storage.read import locate_or_offset_only
from kafkalog.types import LogOffsetMetadata
from kafkalog.util.waiting import held


class HighWatermark:
    """Offset below which every record is known to be safe, with its position."""

    __slots__ = ("_core",)

    def __init__(self, core: LogCore) -> None:
        self._core = core

    def fetch_high_watermark(self) -> LogOffsetMetadata:
        """Return the high watermark with its position; look up and store a missing position (LOG-29)."""
        core = self._core
        state = core.state
        if state.high_watermark_base < 0:
            with held(core.lock):
                state = core.state
                if state.high_watermark_base < 0:
                    mark = locate_or_offset_only(state, state.high_watermark)
                    core.state = high_watermark_resolved(state, mark)
                    core.high_watermark_moved_locked()
                    state = core.state
        return state.high_watermark_metadata

    def update_high_watermark(self, mark: int | LogOffsetMetadata) -> int:
        """Set the high watermark to `mark` within log start ... log end and return it; it may decrease (LOG-27)."""
        core = self._core
        place = mark if isinstance(mark, LogOffsetMetadata) else LogOffsetMetadata(mark)
        with core.lock:
            core.state = state = high_watermark_updated(core.state, place)
            core.high_watermark_moved_locked()
        return state.high_watermark

    def maybe_update_high_watermark(self, mark: int | LogOffsetMetadata) -> int | None:
        """Call `update_high_watermark` and return the result, or None if nothing changed (LOG-83)."""
        before = self._core.state.high_watermark
        after = self.update_high_watermark(mark)
        return None if after == before else after

    def maybe_increment_high_watermark(self, mark: LogOffsetMetadata) -> LogOffsetMetadata | None:
        """Raise the high watermark to a higher `mark` or a newer segment; return the old one, or None (LOG-27).

        IllegalArgument above the log end.
        """
        core = self._core
        old = self.fetch_high_watermark()
        with core.lock:
            state = high_watermark_incremented(core.state, mark)
            if state is None:
                return None
            core.state = state
            core.high_watermark_moved_locked()
        return old
