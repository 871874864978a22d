"""The scan that a call asks for: a plain one, or a typed one with a predicate, decoders or a projection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kafkalog.log.scan import SCAN_OPTIONS, TYPED_OPTIONS, LogScan

if TYPE_CHECKING:
    from kafkalog.log.log import Log
    from kafkalog.log.typed_scan import TypedScan


def scan_of(
    log: Log, start: int, stop: int, columns: Iterable[str] | None, given: Mapping[str, Any]
) -> LogScan | TypedScan:
    """Return the scan of [start, stop) for the keywords of `Log.scan`: a typed one if any of them asks for it."""
    options: dict[str, Any] = {name: given[name] for name in ("isolation", *SCAN_OPTIONS) if name in given}
    typed = {name: given[name] for name in TYPED_OPTIONS if given.get(name) is not None}
    if not typed:
        return LogScan(log, start, stop, columns, **options)
    from kafkalog.log.typed_scan import typed_scan

    return typed_scan(log, start, stop, columns, typed, options)
