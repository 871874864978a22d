"""Decoders whose columns are settled once, and stay the same where they are made again, in a task or a later run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kafkalog.log.log import Log
from kafkalog.log.scan import SCHEMA_OPTIONS
from kafkalog.log.selection import ColumnDecoder
from kafkalog.log.typed_keywords import options_of
from kafkalog.storage.readonly.view import LogView
from kafkalog.util.fileio import FileSystem

Settled = dict[str, dict[str, Any]]
"""By column, "key" and "value": the options that settle the columns of its decoder."""


class LogsInTurn:
    """The logs of partitions, to take types from: opened one after the other, whenever they are iterated over."""

    def __init__(self, paths: Iterable[str], fs: FileSystem) -> None:
        self._paths = [*paths]
        self._fs = fs

    def __iter__(self) -> Iterator[Log]:
        for path in self._paths:
            with Log(LogView(path, fs=self._fs), None) as log:
                yield log


def settled_of(decoders: Mapping[str, Any]) -> Settled:
    """Return what settles the columns of decoders, without those that have seen no value, and need one."""
    return {root: one.settled for root, one in decoders.items() if hasattr(one, "settled")}


def decoders_of(settled: Mapping[str, Mapping[str, Any]], given: Mapping[str, Any]) -> dict[str, ColumnDecoder]:
    """Return the decoders whose columns are settled, with `given`, the keywords of a typed scan, for the rest."""
    from kafkalog import values

    names = [root for root in ("value", "key") if given.get(root) is not None]
    options = {name: given[name] for name in SCHEMA_OPTIONS if given.get(name) is not None and name != "subject"}
    found: dict[str, ColumnDecoder] = {}
    for root in names:
        if root in settled:
            own = options_of(root, given[root], names, options)
            if given[root] == "avro" and "schema" in own and not {"schemas", "registry"} & own.keys():
                own = {**own, "writer": own["schema"]}  # of values that do not name their own
            found[root] = values.decoder(given[root], **{**own, **settled[root]})
    return found
