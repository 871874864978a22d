"""Decoders of an export: one for the keys and one for the values of each topic, with the same columns in every run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkalog.dirs.scan import with_decoders
from kafkalog.errors import IllegalArgument
from kafkalog.exchange.intervals import OffsetSet
from kafkalog.log.json_conditions import conditioned
from kafkalog.log.scan import SCHEMA_OPTIONS, check_keywords
from kafkalog.log.settled import LogsInTurn, Settled, decoders_of, settled_of
from kafkalog.log.typed_keywords import OF_ONE_TYPE, selection_of
from kafkalog.records.column_reader import COLUMNS
from kafkalog.tools.directories import PartitionPath
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import FileSystem
from kafkalog.where import parse

if TYPE_CHECKING:
    import pyarrow

    from kafkalog.exchange.manifest import ExportSettings
    from kafkalog.log.log import Log

DECODING: Final = ("key", "value", "on_undecodable", *SCHEMA_OPTIONS)
"""Keywords of an export that decodes: those of a scan."""


def checked_decoding(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords that are given; TypeError for an unknown one, IllegalArgument for what cannot be resumed."""
    check_keywords("export_records", dict(given), DECODING)
    found = {name: value for name, value in given.items() if value is not None}
    for root in ("key", "value"):
        if not isinstance(found.get(root, ""), str):
            raise IllegalArgument(
                f"{root} is a {type(found[root]).__name__}", hint="give a decoder's name, such as 'avro'"
            )
    if found and not found.keys() & {"key", "value"}:
        raise IllegalArgument(f"{next(iter(found))} is given, but nothing is decoded", hint="give value='avro'")
    return found


def topic_decoders(
    found: Iterable[PartitionPath],
    fs: FileSystem,
    settings: ExportSettings,
    given: Mapping[str, Any],
    known: Mapping[str, Settled],
    exported: Mapping[TopicPartition, OffsetSet],
) -> dict[str, tuple[dict[str, Any], Settled]]:
    """Return by topic the keywords of its scans, with decoders for names, and what settles the columns of these.

    Both are empty if nothing is decoded.

    The columns of topics in `known` are those that it settles; others are those of records that are not `exported`.
    `given` are the keywords of a scan. Raises IllegalArgument for keywords, or a condition, that do not fit, and for
    columns that the format does not have.
    """
    if settings.key is None and settings.value is None:
        return {key.topic: ({}, {}) for key, _ in found}
    given = {**given, "where": settings.where}

    def bounds(log: Log) -> dict[str, Any]:
        done = exported.get(TopicPartition(log.topic, log.partition), OffsetSet())
        return {"start": next(done.missing(log.start_offset, log.end_offset), (log.end_offset,))[0]}

    paths: dict[str, list[str]] = {}
    for key, path in found:
        paths.setdefault(key.topic, []).append(path)
    columns = [*(COLUMNS if settings.format == "jsonl" else settings.columns)]
    made = {}
    for topic, some in paths.items():
        try:
            made[topic] = _of_topic(topic, LogsInTurn(some, fs), columns, given, known.get(topic), bounds)
        except IllegalArgument as error:
            if error.path is None and len(paths) > 1:
                error.path = some[0]  # whose types do not fit
            raise
    if settings.format == "parquet":
        for topic, (typed, _) in made.items():
            for root in ("key", "value"):
                if root in typed and root in columns:
                    _check_parquet(typed[root].arrow_type, root, topic)
    return made


def _check_parquet(type: pyarrow.DataType, path: str, topic: str) -> None:
    """Raise IllegalArgument for a struct without fields, which Parquet cannot have."""
    import pyarrow

    if pyarrow.types.is_struct(type) and not type.num_fields:
        raise IllegalArgument(
            f"{path} of {topic} is a record without fields, which Parquet does not have",
            hint="give --format arrow, or jsonl",
        )
    if pyarrow.types.is_nested(type):
        for number in range(type.num_fields):
            field = type.field(number)
            inner = f"{path}.{field.name}" if pyarrow.types.is_struct(type) else path
            _check_parquet(field.type, inner, topic)


def _of_topic(
    topic: str, logs: LogsInTurn, columns: list[str], given: Mapping[str, Any], known: Settled | None,
    bounds: Callable[[Log], dict[str, Any]],
) -> tuple[dict[str, Any], Settled]:  # fmt: skip
    made: dict[str, Any] = {} if known is None else dict(decoders_of(known, given))
    if given.get("where") is not None and not {"schema", "subject"} & given.keys():
        expression = parse(given["where"])
        made |= {root: conditioned(root, made[root], expression) for root in made if given[root] == "json"}
    if any(root in given and root not in made for root in ("key", "value")):
        rest = {name: one for name, one in given.items() if name not in OF_ONE_TYPE or "value" not in made}
        options = with_decoders(topic, logs, columns, {**rest, **made}, bounds)
        made = {root: options[root] for root in ("key", "value") if not isinstance(options.get(root, ""), str)} | made
    kept = {name: given[name] for name in ("on_undecodable",) if made and given.get(name) is not None}
    if made:
        selection_of(columns, {**kept, **made, "where": given.get("where")})
    return {**kept, **made}, settled_of(made)
