"""A part of a log that keys are looked up in: a closed segment, or a piece of the log's end."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from kafkalog._core.keys.key_index import KeyIndex

if TYPE_CHECKING:
    from kafkalog._core.keys.key_map import KeyMap

_LOG: Final = logging.getLogger(__name__)
LAST_OFFSET: Final = 2**63 - 1


class Part:
    """Offsets in [base_offset, bound) of one segment, or of the log's end. Threads: under the lock of the `Parts`."""

    __slots__ = ("base_offset", "bound", "index", "secret", "segment")

    def __init__(
        self, segment: Any, base_offset: int, bound: int, secret: bytes, index: KeyIndex | KeyMap | None
    ) -> None:
        self.segment = segment
        self.base_offset = base_offset
        self.bound = bound
        self.secret = secret
        self.index = index
        """None: the segment is searched."""

    def drop_index(self) -> None:
        """Search the segment from here on: its index is damaged."""
        index, self.index = self.index, None
        error = index.error if isinstance(index, KeyIndex) else None
        _LOG.warning(
            "the key index of segment %d of %s is damaged, the segment is searched instead%s",
            self.base_offset, self.segment.path, "" if error is None else f": {error}",
        )  # fmt: skip
