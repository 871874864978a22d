"""The source's options as one value: parsed and checked once, before any file is opened."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from kafkalog.errors import IllegalArgument
from kafkalog.records.column_reader import COLUMNS, kinds_of
from kafkalog.spark.limits import EARLIEST, LATEST, Limit, Offsets, ending_limit, starting_limit
from kafkalog.spark.option_table import SINK_OPTIONS, SOURCE_OPTIONS, checked_names
from kafkalog.spark.subscriptions import Subscription, subscription_of
from kafkalog.util.keywords import closest_match

MAX_PARTITION_BYTES: Final = 128 << 20
"""Default bytes of log in a Spark partition."""
_PLAIN_COLUMNS: Final = tuple(name for name in COLUMNS if name != "headers")
_DECODING: Final = {
    "key": "key", "value": "value", "schema": "schema", "schemas": "schemas", "registry": "registry",
    "subject": "subject", "message": "message", "framing": "framing", "on_undecodable": "onundecodable",
}  # fmt: skip
"""Names of options, in lower case, by the keywords of decoders."""
_TRIGGER_DELAY_MS: Final = 15 * 60 * 1000
_UNIT_US: Final = {
    "us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "min": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000,
}  # fmt: skip
_TEXT: Final = re.compile(r"(\d{1,18})([a-z]*)", re.ASCII)
_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*):", re.IGNORECASE)
_FILE_URI: Final = re.compile(r"file:(?://(?:localhost)?(?=/)|(?!//))([^?#]+)", re.IGNORECASE)
MAX_MS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Options of a read; the fields are those of `option_table.SOURCE_OPTIONS`.

    `subscription` is None if no topic is named, which is valid only for a `path` of partition directories. `decoding`
    are the keywords of `Log.scan` that decode keys and values, for the columns and for paths of `where` into them.
    """

    paths: tuple[str, ...]
    subscription: Subscription | None
    starting: Limit
    ending: Limit
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_partition_bytes: int = MAX_PARTITION_BYTES
    columns: tuple[str, ...] = _PLAIN_COLUMNS
    where: str | None = None
    decoding: tuple[tuple[str, Any], ...] = ()
    isolation: str = "read_uncommitted"
    verify_crc: bool = True
    on_damage: str = "raise"
    corrupt_report: str | None = None
    push_filters: bool = True
    time_ranges: str | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = _TRIGGER_DELAY_MS
    tiered: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool | None) -> SourceOptions:
        """Parse the options of a batch or stream read, or with None of either of them; names in any case.

        Raises IllegalArgument, with the fix, for an unknown name, an invalid value, and contradictions, in the same
        situations as Spark's Kafka source. Options of Kafka clients (`kafka.*`) cause a warning.
        """
        from kafkalog.reading.source import (
            ISOLATIONS,  # imported late: a caller that needs only the schema opens no files
        )

        given = checked_names(options, SOURCE_OPTIONS, SINK_OPTIONS)
        starting = starting_limit(given, LATEST if streaming else EARLIEST)
        ending = LATEST if streaming else ending_limit(given)
        if streaming:
            _refuse_endings(given)
        elif streaming is not None:
            _check_batch(starting, ending)
        isolation = given.get("isolationlevel", "read_uncommitted").strip()
        _one_of("isolationLevel", isolation, [name for name in ISOLATIONS if name])
        least, most = _count(given, "minOffsetsPerTrigger"), _count(given, "maxOffsetsPerTrigger")
        if least is not None and most is not None and least > most:
            raise IllegalArgument(
                f"minOffsetsPerTrigger is {least}, which is more than maxOffsetsPerTrigger, {most}",
                hint="lower the one or raise the other",
            )
        return cls(
            paths=_paths(given),
            subscription=subscription_of(given),
            starting=starting,
            ending=ending,
            fail_on_data_loss=_flag(given, "failOnDataLoss", True),
            min_partitions=_count(given, "minPartitions"),
            max_records_per_partition=_count(given, "maxRecordsPerPartition"),
            max_partition_bytes=_count(given, "maxPartitionBytes") or MAX_PARTITION_BYTES,
            columns=_columns(given),
            where=_condition(given),
            decoding=_decoding(given),
            isolation=isolation,
            verify_crc=_flag(given, "verifyCrc", True),
            on_damage=_on_damage(given),
            corrupt_report=_report(given),
            push_filters=_one_of("pushFilters", given.get("pushfilters", "auto"), ("auto", "never")) == "auto",
            time_ranges=local_path(given["timeranges"]) if given.get("timeranges") else None,
            max_offsets_per_trigger=most,
            min_offsets_per_trigger=least,
            max_trigger_delay_ms=_duration(given, "maxTriggerDelay", _TRIGGER_DELAY_MS),
            tiered=given.get("tiered", "").strip() or None,
        )


def _report(given: Mapping[str, str]) -> str | None:
    """Return the directory of `corruptReport`; raise IllegalArgument if it is or lies in a data directory."""
    if not given.get("corruptreport"):
        return None
    from kafkalog.storage.outside_data import refuse_data_directory

    found = local_path(given["corruptreport"])
    refuse_data_directory(found, "reports on damage", [os.path.realpath(path) for path in _paths(given)])
    return found


def columns_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns in the options of a batch or stream; raise IllegalArgument for unknown ones."""
    return _columns(checked_names(options, SOURCE_OPTIONS, SINK_OPTIONS))


def is_decoding(options: Mapping[str, str]) -> bool:
    """Return True if the options of a batch or stream name a decoder of keys or values."""
    return any(name.lower() in ("key", "value") for name in options)


def local_path(text: str) -> str:
    """Return the path of a `path` option: unchanged, or the path of a `file:` URI.

    Raises IllegalArgument for another scheme: kafkalog reads mounted file systems; and for a URI with more than a path.
    """
    named = _SCHEME.match(text)
    scheme = "" if named is None else named[1].lower()
    if scheme == "file":
        found = _FILE_URI.fullmatch(text)
        if found is None:
            raise IllegalArgument(
                f"path {text!r} is not the URI of a local path", hint="give file:///path, with %3F and %23 for ? and #"
            )
        return unquote(found[1])
    if len(scheme) > 1 and "//" in text:
        raise IllegalArgument(
            f"path {text!r} is on {scheme}", hint="kafkalog reads local directories and mounted file systems: mount it"
        )
    return text


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    found = [given["path"]] if given.get("path") else []
    if "paths" in given:
        try:
            listed = json.loads(given["paths"])
        except ValueError:
            listed = None
        if not isinstance(listed, list) or not all(isinstance(one, str) and one for one in listed):
            raise IllegalArgument(f"paths is {given['paths']!r}, not a JSON list of paths", hint="use load([a, b])")
        found += listed
    if not found:
        raise IllegalArgument(
            "no path is given",
            hint="name the data directory: load('/var/lib/kafka/data'); in SQL create a TEMPORARY VIEW, since Spark "
            "does not pass a table's options to its readers",
        )
    return tuple(local_path(one) for one in found)


def _columns(given: Mapping[str, str]) -> tuple[str, ...]:
    with_headers = _flag(given, "includeHeaders", False)
    if "columns" not in given:
        return COLUMNS if with_headers else _PLAIN_COLUMNS
    known = {name.lower(): name for name in COLUMNS}
    names = [known.get(name.lower(), name) for part in given["columns"].split(",") if (name := part.strip())]
    return tuple(COLUMNS[kind] for kind in kinds_of(names))


def _condition(given: Mapping[str, str]) -> str | None:
    """Return the condition in the options, checked; raise IllegalArgument for one that is wrong."""
    text = given.get("where")
    if text is None or not text.strip():
        return None
    from kafkalog.where import parse

    expression = parse(text)
    if "key" not in given and "value" not in given:
        expression.check()  # with decoders it is checked when it is planned, since types may be in the data
    return text


def _decoding(given: Mapping[str, str]) -> tuple[tuple[str, Any], ...]:
    """Return the keywords of decoders in the options; raise IllegalArgument for those of no use."""
    texts = {name: given.get(option, "").strip() for name, option in _DECODING.items()}
    found: dict[str, Any] = {name: text for name, text in texts.items() if text}
    if (schema := found.get("schema", "")).isascii() and schema.isdecimal():
        found["schema"] = int(schema)
    if found and not {"key", "value"} & found.keys():
        raise IllegalArgument(
            f"{_DECODING[next(iter(found))]} is given, but nothing is decoded", hint="name a decoder: value=avro"
        )
    return tuple(found.items())


def _refuse_endings(given: Mapping[str, str]) -> None:
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        if name.lower() in given:
            raise IllegalArgument(f"{name} does not apply to streams", hint="omit it: a stream has no end")


def _check_batch(starting: Limit, ending: Limit) -> None:
    """Raise IllegalArgument for bounds that a batch cannot have."""
    if starting == LATEST:
        raise IllegalArgument("startingOffsets can't be latest for a batch", hint="give earliest, or offsets")
    if ending == EARLIEST:
        raise IllegalArgument("endingOffsets can't be earliest for a batch", hint="give latest, or offsets")
    if isinstance(starting, Offsets):
        for partition, offset in starting.of.items():
            if offset == LATEST.code:
                raise IllegalArgument(
                    f"startingOffsets for {partition} can't be latest (-1) for a batch", hint="give -2 or an offset"
                )
    if isinstance(ending, Offsets):
        for partition, offset in ending.of.items():
            if offset == EARLIEST.code:
                raise IllegalArgument(
                    f"endingOffsets for {partition} can't be earliest (-2) for a batch", hint="give -1 or an offset"
                )


def _on_damage(given: Mapping[str, str]) -> str:
    """Return "raise" or "skip", by the option or its older name; raise IllegalArgument if they contradict."""
    older = _one_of("corruptBatches", given.get("corruptbatches", "fail"), ("fail", "skip"))
    meant = "skip" if older == "skip" else "raise"
    found = _one_of("onDamage", given.get("ondamage", meant), ("raise", "skip"))
    if "corruptbatches" in given and found != meant:
        raise IllegalArgument(
            f"onDamage is {found!r} and corruptBatches, its older name, is {older!r}", hint="give onDamage alone"
        )
    return found


def _one_of(name: str, value: str, known: list[str] | tuple[str, ...]) -> str:
    value = value.strip()
    if value in known:
        return value
    nearest = closest_match(value, known)
    meant = f"did you mean {nearest}? " if nearest else ""
    raise IllegalArgument(f"{name} is {value!r}", hint=f"{meant}give {' or '.join(known)}")


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name.lower())
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise IllegalArgument(f"{name} is {text!r}", hint="give true or false")
    return text.strip().lower() == "true"


def duration_ms(text: str, option: str) -> int:
    """Parse a duration by the rules of Spark's time strings, a number and a unit (default ms), to whole milliseconds.

    Raises IllegalArgument, naming the option, for anything else.
    """
    found = _TEXT.fullmatch(text.strip().lower())
    unit_us = _UNIT_US.get(found[2] or "ms") if found else None
    if found is None or unit_us is None or (length := int(found[1]) * unit_us // 1_000) > MAX_MS:
        units = ", ".join(_UNIT_US)
        raise IllegalArgument(f"{option} is {text!r}", hint=f"give a number and one of {units}, such as 90s or 15m")
    return length


def _duration(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name.lower())
    return default if text is None else duration_ms(text, name)


def _count(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not 0 < number < 2**63:
        raise IllegalArgument(f"{name} is {text!r}", hint="give a whole number above 0")
    return number
