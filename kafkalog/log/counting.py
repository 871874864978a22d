"""Counts of the records of some logs by the value of a path, decoded and filtered as a typed scan does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import IllegalArgument
from kafkalog.inspect.counts import TOP_VALUES, PathCounts, ValueCount, ValueTally, json_value
from kafkalog.log.pruning import PrunedScan
from kafkalog.log.read import offset_range
from kafkalog.log.scan import SCHEMA_OPTIONS, LogScan
from kafkalog.log.selection import Selection
from kafkalog.log.typed_keywords import select_matching, selection_of
from kafkalog.log.typed_scan import SAMPLE_ROWS, first_values
from kafkalog.records.column_reader import COLUMNS
from kafkalog.util.keywords import unknown_keyword
from kafkalog.where import Field, parse_field
from kafkalog.where.nodes import Step

if TYPE_CHECKING:
    import pyarrow

    from kafkalog.log.log import Log
    from kafkalog.storage.damage import Skipped
    from kafkalog.where import Expression

_OF_A_SCHEMA: Final = ("schema", "schemas", "registry", "subject")
_DECODING: Final = ("key", "value", *SCHEMA_OPTIONS)
_BY: Final = "by"


def count_by(
    logs: Sequence[Log],
    path: str,
    *,
    where: str | Expression | None = None,
    most_rows: int = TOP_VALUES,
    tell: Callable[[Log, float], object] | None = None,
    **typed: Any,
) -> PathCounts:
    """Return the counts of all records of the logs of one topic by the value of `path`, a field as in conditions.

    `typed` are the decoders of `Log.scan`, for `path` and `where`. All records that can be read are counted, once each;
    damage is skipped and listed. A field that a JSON value does not have is null, and a field of any kind is
    counted as it is. `tell` is called with the log and the share of its offsets that was read.

    Raises IllegalArgument for a path or condition that does not fit, or for more different values than fit in memory
    (`ValueTally`); errors of the decoders; StorageError.
    """
    field = parse_field(path)
    counter = _Counter(logs, field, where, {name: value for name, value in typed.items() if value is not None})
    for log in logs:
        counter.read(log, tell)
    return counter.result(logs[0].topic, most_rows)


def count_logs_by(
    logs: Sequence[Log],
    path: str,
    where: str | Expression | None,
    top: int,
    progress: Callable[[float], object] | None,
    typed: Mapping[str, Any],
) -> PathCounts:
    """Return the result of the public calls: that of `count_by`, with one share of progress for all logs together.

    Raises TypeError for an unknown keyword.
    """
    if unknown := {name: 0 for name in typed if name not in _DECODING}:
        raise unknown_keyword("count_by", unknown, ("path", "where", "top", "progress", *_DECODING))
    if isinstance(top, bool) or not isinstance(top, int) or top < 0:
        raise IllegalArgument(f"top is {top!r}", hint="give the number of values to list, 0 or more")
    total = sum(log.end_offset - log.start_offset for log in logs)
    done = dict.fromkeys(map(id, logs), 0.0)

    def tell(log: Log, share: float) -> None:
        assert progress is not None
        done[id(log)] = share * (log.end_offset - log.start_offset)
        progress(min(sum(done.values()) / max(total, 1), 1.0))

    return count_by(logs, path, where=where, most_rows=top, tell=None if progress is None else tell, **typed)


class _Counter:
    """One counting in progress."""

    def __init__(
        self, logs: Sequence[Log], field: Field, where: str | Expression | None, typed: Mapping[str, Any]
    ) -> None:
        if field.has_each:
            raise IllegalArgument(
                f"{field} is any number of values, and each record counts once", hint="write [0] for one of them"
            )
        self._logs = logs
        self._field = field
        self._ranges = {id(log): offset_range(log, None, None, None, None, "log_end", True) for log in logs}
        decoders = {root: typed[root] for root in ("key", "value") if root in typed}
        lenient: dict[str, Any] = {"on_undecodable": "null"} if decoders else {}
        topic = logs[0].topic
        own = {**typed, **lenient}
        has_types = typed.get(field.root) != "json" or bool(typed.keys() & _OF_A_SCHEMA)
        self._is_json = not has_types and self._is_plain_path
        if not has_types:
            own[field.root] = self._json_decoder()
        project = {_BY: str(field), "size": "size", "key_size": "key_size"}
        self._by = selection_of(None, {**own, "project": project}, self._sample, topic)
        self._filter: Selection | None = None
        if where is not None:
            self._filter = select_matching(typed, where, self._sample, topic)
        self._check_kind(self._by.schema.field(_BY).type)
        self._tally = ValueTally(str(field))
        self._undecodable = ValueCount(None, 0, 0)
        self._reason: str | None = None
        self._damage: list[Skipped] = []

    @property
    def _is_plain_path(self) -> bool:
        """True for a path whose names can be joined by dots."""
        names = self._field.path[1:]
        return bool(names) and not any("." in name or isinstance(name, Step) for name in names)

    def _json_decoder(self) -> Any:
        """Return a decoder of the one field as JSON text, of whatever kind it is; else of the types of a sample."""
        from kafkalog import values

        if self._is_plain_path:
            return values.decoder("json", fields={".".join(self._field.path[1:]): "json"}, strict=False)
        sample = self._sample(self._field.root)
        return values.decoder("json", sample=sample) if sample else "json"

    def _sample(self, root: str) -> list[bytes]:
        options: dict[str, Any] = {"batch_rows": SAMPLE_ROWS, "on_damage": "skip"}
        return first_values((LogScan(log, *self._ranges[id(log)], [root], **options) for log in self._logs), root)

    def _check_kind(self, type: pyarrow.DataType) -> None:
        from pyarrow import types

        if types.is_nested(type):
            raise IllegalArgument(
                f"{self._field} is a record, list or map", hint=f"write a path into it, such as {self._field}.name"
            )

    def read(self, log: Log, tell: Callable[[Log, float], object] | None) -> None:
        """Count the records of one log."""
        import pyarrow

        first, last = self._ranges[id(log)]
        wanted = {*self._by.columns, *(() if self._filter is None else self._filter.columns)}
        columns = [name for name in COLUMNS if name in wanted]
        options: dict[str, Any] = {"on_damage": "skip", "skipped": self._damage}
        if self._filter is None:
            scan = LogScan(log, first, last, columns, **options)
        else:
            scan = PrunedScan(log, first, last, columns, self._filter.bounds, self._filter.keys, **options)
        rows = 0
        for piece in scan:
            batch = pyarrow.record_batch(piece)
            rows += batch.num_rows
            if self._filter is not None:
                batch = batch.filter(self._filter.mask(batch))
            self._add(self._by.batch(batch))
            if tell is not None:
                tell(log, min(rows / max(last - first, 1), 1.0))

    def _add(self, batch: pyarrow.RecordBatch) -> None:
        import pyarrow.compute as pc

        names = batch.schema.names
        by, size, key_size = (batch.column(names.index(name)) for name in (_BY, "size", "key_size"))
        sizes = pc.add(*(pc.fill_null(one, 0).cast("int64") for one in (size, key_size)))
        error = f"{self._field.root}_error"
        errors = batch.column(names.index(error)) if error in names else None
        if errors is not None and errors.null_count < len(errors):
            failed = pc.is_valid(errors)
            before, lost = self._undecodable, sizes.filter(failed)
            self._undecodable = ValueCount(None, before.records + len(lost), before.bytes + pc.sum(lost).as_py())
            self._reason = self._reason or errors.filter(failed)[0].as_py()
            by, sizes = by.filter(pc.invert(failed)), sizes.filter(pc.invert(failed))
        self._tally.add(by, sizes)

    def result(self, topic: str, most_rows: int) -> PathCounts:
        """Return the counts."""
        found = self._tally.counts(json_value if self._is_json else None)
        rest = found[most_rows:]
        expression = None if self._filter is None else self._filter.expression
        return PathCounts(
            topic=topic, path=str(self._field), where=None if expression is None else str(expression),
            records=sum(one.records for one in found), bytes=sum(one.bytes for one in found), distinct=len(found),
            top=tuple(found[:most_rows]),
            rest=ValueCount(None, sum(one.records for one in rest), sum(one.bytes for one in rest)),
            undecodable=self._undecodable, reason=self._reason,
            unfiltered=0 if self._filter is None else self._filter.undecodable, damage=tuple(self._damage),
        )  # fmt: skip
