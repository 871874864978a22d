"""Building key indexes in the background."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkalog.keys.manage import build_indexes
from kafkalog.keys.place import KeyIndexPlace
from kafkalog.sidecars.background import SidecarBuilder

if TYPE_CHECKING:
    from kafkalog.storage.log import UnifiedLog


class IndexBuilder(SidecarBuilder):
    """Builds the key indexes that logs lack, in `store`; None is beside the segments."""

    noun = "key indexes"
    logger = logging.getLogger(__name__)

    def __init__(self, store: str | os.PathLike[str] | None, built: Callable[[UnifiedLog], object]) -> None:
        super().__init__(built)
        self._store = store

    def build(self, log: UnifiedLog, known: dict[int, Any]) -> bool:
        """Build the missing indexes of a log."""
        build_indexes(log, KeyIndexPlace(log.path, self._store, log.fs), until=self.is_stopping, known=known)
        return True
