"""Options of `format("kafkalog")` as data: names, defaults, uses, meanings."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kafkalog.errors import IllegalArgument
from kafkalog.util.keywords import closest_match

_LOG: Final = logging.getLogger("kafkalog.spark")
BATCH: Final = "batch"
STREAM: Final = "stream"
BOTH: Final = "batch, stream"


class Option(NamedTuple):
    """An option: its name, the default in words, the reads or writes it applies to, its meaning.

    `kafka` is True if Spark's Kafka source or sink has it with the same meaning.
    """

    name: str
    default: str
    used_by: str
    meaning: str
    kafka: bool = True


SOURCE_OPTIONS: Final = (
    Option("path", "none", BOTH, "a data directory, or a partition's directory; several by `load([a, b])`", False),
    Option("paths", "none", BOTH, "several of them as a JSON list, as Spark passes `load([a, b])`", False),
    Option("subscribe", "none", BOTH, "comma-separated topics"),
    Option("subscribePattern", "none", BOTH,
           "a regular expression to find in topic names; `^orders$` matches the whole name"),
    Option("assign", "none", BOTH, 'partitions as JSON: `{"a":[0,1],"b":[2]}`'),
    Option("startingOffsets", "earliest; latest for streams", BOTH,
           'where to start: `earliest`, `latest` (streams only), or JSON `{"a":{"0":23,"1":-2}}`, -2 the earliest, '
           "-1 the latest; every partition must be named"),
    Option("startingTimestamp", "none", BOTH, "start at the first record at or after this time (ms)"),
    Option("startingOffsetsByTimestamp", "none", BOTH, 'the same for each partition: `{"a":{"0":1700000000000}}`'),
    Option("startingOffsetsByTimestampStrategy", "error", BOTH,
           "if no record is that recent: `error`, or `latest` to start at the end"),
    Option("endingOffsets", "latest", BATCH, "where to end: `latest`, or JSON as for `startingOffsets`, -1 the latest"),
    Option("endingTimestamp", "none", BATCH, "end before the first record at or after this time (ms)"),
    Option("endingOffsetsByTimestamp", "none", BATCH, "the same for each partition"),
    Option("failOnDataLoss", "true", BOTH,
           "fail if records to be read are missing; `false`: warn and read the existing ones"),
    Option("minPartitions", "none", BOTH, "the least number of Spark partitions; the largest are divided"),
    Option("maxRecordsPerPartition", "none", BOTH, "the most offsets in a Spark partition"),
    Option("includeHeaders", "false", BOTH, "include the column `headers`"),
    Option("maxOffsetsPerTrigger", "none", STREAM, "the most offsets in a micro-batch"),
    Option("minOffsetsPerTrigger", "none", STREAM, "the least offsets in a micro-batch"),
    Option("maxTriggerDelay", "15m", STREAM, "the longest time that `minOffsetsPerTrigger` delays a record"),
    Option("groupIdPrefix", "none", BOTH, "accepted and ignored: there is no consumer group"),
    Option("columns", "all", BOTH, "comma-separated columns; only these are decoded", False),
    Option("where", "none", BOTH,
           "a condition ([where](where.md)), such as `key like 'eu-%'`: executors return only the records for which it "
           "is true", False),
    Option("value", "none", BOTH,
           "the decoder of values ([typed values](values.md)), such as `json`: the column `value`, and paths of "
           "`where` into it, are typed", False),
    Option("key", "none", BOTH, "the same for keys", False),
    Option("schema", "none", BOTH,
           "of the decoders: one schema, as text, or its id in `schemas` or `registry`", False),
    Option("schemas", "none", BOTH,
           "of the decoders: a directory of schemas, a registry's address, or a data directory with `_schemas`", False),
    Option("registry", "none", BOTH, "of the decoders: a registry's address", False),
    Option("subject", "none", BOTH, "of the decoders: the subject in the registry; default: `<topic>-value`", False),
    Option("message", "none", BOTH, "of the decoders: the Protobuf message", False),
    Option("framing", "none", BOTH, "of the decoders: what precedes a value", False),
    Option("onUndecodable", "raise", BOTH,
           "for keys and values that do not decode: `raise`; or `null`, with the reason in the column `key_error` or "
           "`value_error`", False),
    Option("isolationLevel", "read_uncommitted", BOTH,
           "`read_committed` skips aborted records and ends at the last stable offset; `high_watermark` ends "
           "there", False),
    Option("verifyCrc", "true", BOTH, "check each batch's checksum; `false` skips the check", False),
    Option("onDamage", "raise", BOTH,
           "`raise` with file and position, or `skip` damaged batches, counting and reporting them", False),
    Option("corruptBatches", "none", BOTH, "the older name of `onDamage`, with `fail` for `raise`", False),
    Option("corruptReport", "none", BOTH,
           "a directory, outside the data directories, for reports on what `skip` left out: a file of JSON lines for "
           "each task with damage", False),
    Option("pushFilters", "auto", BATCH,
           "`auto` applies filters on topic, partition, offset and timestamp that Spark pushes down; `never` "
           "leaves all to Spark", False),
    Option("timeRanges", "none", BATCH,
           "a directory for [time ranges](sql.md#upper-bounds-of-time), by which a plan leaves out offsets after an "
           "upper bound of time", False),
    Option("tiered", "none", BOTH,
           "a tiered store ([tiered topics](tiered.md)): its URL, or the path of its description on every node; topics "
           "are read whole", False),
    Option("maxPartitionBytes", "134217728", BOTH, "the approximate bytes of log in a Spark partition", False),
)  # fmt: skip
"""Options of the source."""

SINK_OPTIONS: Final = (
    Option("path", "none", BOTH, "the data directory; created if only its last component is missing", False),
    Option("topic", "none", BOTH, "the topic of all rows; overrides the column `topic`"),
    Option("includeHeaders", "false", BOTH, "accepted and ignored: a column `headers` is always written"),
    Option("partitions", "1", BOTH, "the number of partitions of a new topic", False),
    Option("compression", "none", BOTH,
           "`gzip`, `snappy`, `lz4` or `zstd`, optionally with a level such as `zstd:9`; a topic's own "
           "`compression.type` takes precedence", False),
    Option("jobId", "random", BATCH,
           "the id of the write: however often it is run under one id, its records are written once", False),
    Option("checkpointLocation", "none", STREAM, "Spark's own: where the query stores its progress"),
    Option("lockWait", "1m", BOTH, "how long a commit waits for the lock of the data directory", False),
    Option("stagingAge", "1d", BOTH, "the age at which staged files are deleted: longer than any job takes", False),
)  # fmt: skip
"""Options of the sink."""

_KAFKA_PREFIX: Final = "kafka."
_OF_TABLES: Final = frozenset({
    "location", "provider", "owner", "comment", "collation", "external", "is_managed_location", "table_type",
})  # fmt: skip
_OPTION_PREFIX: Final = "option."
"""Prefix with which Spark repeats each option among a table's options; `_OF_TABLES` are a table's properties."""


def checked_names(given: Mapping[str, str], own: Iterable[Option], others: Iterable[Option]) -> dict[str, str]:
    """Return the given options that are in `own`, by their names in lower case.

    Options in `others` are ignored: a table in SQL has one set of options for reading and writing. Options of a Kafka
    client (`kafka.*`) have no effect, and a warning says so. Raises IllegalArgument, with the closest match, for any
    other name.
    """
    names = {option.name.lower(): option.name for option in own}
    ignored_names = {option.name.lower() for option in others}
    found: dict[str, str] = {}
    ignored: list[str] = []
    for name, value in given.items():
        key = name.lower()
        if key in names:
            found[key] = value
        elif key.startswith(_KAFKA_PREFIX):
            ignored.append(name)
        elif key not in ignored_names and key not in _OF_TABLES and not key.startswith(_OPTION_PREFIX):
            nearest = closest_match(key, names)
            hint = f"did you mean {names[nearest]}? " if nearest else ""
            raise IllegalArgument(
                f"there is no option {name!r}", hint=f"{hint}options are {', '.join(names.values())}"
            )
    if ignored:
        _LOG.warning("ignoring options of a Kafka client, since kafkalog reads files: %s", ", ".join(sorted(ignored)))
    return found
