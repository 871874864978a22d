"""Mapping from rows of CSV, JSON lines and Parquet to records: columns of key, value, time, topic and partition."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkalog.errors import IllegalArgument
from kafkalog.spark.jobs.json_fields import with_fields
from kafkalog.util.keywords import closest_match

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FORMATS: Final = ("text", "csv", "json", "parquet")
_BY_NAME: Final = {
    ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet",
}  # fmt: skip

_PASSED_OVER: Final = re.compile(r"\..*|_[^=]*|.*\._COPYING_", re.DOTALL)
"""Names of files that Spark takes for hidden ones."""
_HINT: Final = "rename it"


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Names of columns; None for a part that records lack, and for `value` if the row itself is the value."""

    value: str | None = None
    key: str | None = None
    timestamp: str | None = None
    topic: str | None = None
    partition: str | None = None

    @property
    def named(self) -> tuple[str, ...]:
        """Columns that are named, each once."""
        given = (getattr(self, field.name) for field in fields(self))
        return tuple(dict.fromkeys(name for name in given if name is not None))

    def check(self, there: Sequence[str]) -> None:
        """Raise IllegalArgument, with the closest match, for a missing column."""
        for field in fields(self):
            name = getattr(self, field.name)
            if name is not None and name not in there:
                nearest = closest_match(name, there)
                meant = f"did you mean {nearest}? " if nearest else ""
                raise IllegalArgument(
                    f"there is no column {name!r} for the {field.name}",
                    hint=f"{meant}columns are {', '.join(there[:20])}",
                )


def format_of(paths: Iterable[str]) -> str:
    """Return the format that the file names indicate; text if they indicate none.

    Raises IllegalArgument if they indicate several.
    """
    found = {_BY_NAME.get(os.path.splitext(path)[1].lower(), "text"): path for path in paths}
    if len(found) > 1:
        shown = ", ".join(f"{path} ({format})" for format, path in sorted(found.items()))
        raise IllegalArgument(f"the files have several formats: {shown}", hint="name the format, or run a job for each")
    return next(iter(found), "text")


def rows_of(
    spark: SparkSession, paths: list[str], format: str, columns: RowColumns, *, header: bool, separator: str
) -> DataFrame:
    """Return the rows of the files; a malformed row, or a CSV header that is not the first file's, ends the job.

    Of JSON lines the named columns are read, as text, and the line itself if no column is the value. A quoted empty
    field of CSV is an empty text, an empty one without quotes null. Raises IllegalArgument for a file that Spark passes
    over or cannot open.
    """
    for path in paths:
        if _PASSED_OVER.fullmatch(os.path.basename(path)):
            raise IllegalArgument("Spark passes over files with such a name", path=path, hint=_HINT)
        if ":" in os.path.basename(path):
            raise IllegalArgument("Spark cannot open a file with a colon in its name", path=path, hint=_HINT)
    reader = spark.read.option("__globPaths__", False)  # Spark's own: the names are no patterns
    if format == "parquet":
        return reader.parquet(*paths)
    if format == "csv":
        reader = reader.options(header=header, sep=separator, mode="FAILFAST", inferSchema=False, escape='"')
        reader = reader.options(enforceSchema=False, columnPruning=False)  # whole rows are checked
        rows = reader.option("nullValue", uuid.uuid4().hex).csv(paths)  # by default it is the empty text
        return _empty_as_null(rows, (columns.timestamp, columns.partition))
    from pyspark.sql import functions as F

    wanted = ", ".join(f"`{name.replace('`', '``')}` string" for name in columns.named)
    if columns.value is not None:
        return reader.schema(wanted).json(paths, mode="FAILFAST")  # numbers and nested values as they are written
    lines = reader.text(paths).where(F.col("value").rlike(r"\S"))
    if not columns.named:
        return lines
    return lines.mapInArrow(partial(with_fields, names=columns.named), f"{_LINE} string, {wanted}")


_LINE: Final = "kafkalog_line"


def _empty_as_null(rows: DataFrame, names: Collection[str | None]) -> DataFrame:
    """Return the rows with null for empty texts in these columns: an empty text is neither a time nor a number."""
    from pyspark.sql import functions as F

    if not set(names) & set(rows.columns):
        return rows
    return rows.select(*[
        F.nullif(_column(name), F.lit("")).alias(name) if name in names else _column(name) for name in rows.columns
    ])  # fmt: skip


def records_of(rows: DataFrame, columns: RowColumns) -> DataFrame:
    """Return the rows as records: a column value, and those of key, timestamp, topic and partition that exist.

    Raises IllegalArgument for a column that is missing or has an unsuitable type.
    """
    from pyspark.sql import functions as F

    there = [name for name in rows.columns if name != _LINE]
    if columns.named or _LINE not in rows.columns:
        columns.check(there)
    if columns.value is not None:
        value = _bytes(rows, columns.value, "value")
    elif _LINE in rows.columns:
        value = _column(_LINE)
    else:
        value = F.to_json(F.struct(*[_column(name) for name in there]))
    parts = [value.alias("value")]
    if columns.key is not None:
        parts.append(_bytes(rows, columns.key, "key").alias("key"))
    if columns.timestamp is not None:
        parts.append(_time(rows, columns.timestamp).alias("timestamp"))
    if columns.topic is not None:
        parts.append(_column(columns.topic).cast("string").alias("topic"))
    if columns.partition is not None:
        number = _column(columns.partition)
        parts.append(_not_null(number.cast("bigint"), number, "partition").alias("partition"))
    return rows.select(*parts)


def _column(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col(f"`{name.replace('`', '``')}`")


def _not_null(cast: Column, column: Column, what: str) -> Column:
    """Return a cast column that raises where it is null and the column is not: Spark's setting ANSI may be off."""
    from pyspark.sql import functions as F

    text = F.concat(F.lit(f"not a {what}: "), column.cast("string"))
    return F.coalesce(cast, F.when(column.isNotNull(), F.raise_error(text)))


def _bytes(rows: DataFrame, name: str, part: str) -> Column:
    """Return a column as bytes or text: numbers as printed, nested types as JSON."""
    from pyspark.sql import functions as F

    kind = rows.schema[name].dataType.typeName()
    if kind in ("binary", "string"):
        return _column(name)
    if kind in ("struct", "array", "map"):
        return F.to_json(_column(name))
    return _column(name).cast("string")


def _time(rows: DataFrame, name: str) -> Column:
    """Return a column as a time: numbers, and text of digits, are ms since 1970; other text is ISO-8601."""
    from pyspark.sql import functions as F

    kind = rows.schema[name].dataType.typeName()
    column = _column(name)
    if kind in ("timestamp", "timestamp_ntz", "date"):
        return column.cast("timestamp")
    if kind in ("long", "integer", "short", "byte"):
        return F.timestamp_millis(column)
    if kind == "string":
        digits = column.rlike("^-?[0-9]+$")
        of_digits = F.timestamp_millis(F.when(digits, column).cast("long"))
        found = F.when(digits, of_digits).otherwise(F.when(~digits, column).cast("timestamp"))
        return _not_null(found, column, "time")
    raise IllegalArgument(
        f"the column {name!r} is {kind}, not a time", hint="name a column of times, ms since 1970 or ISO-8601 text"
    )
